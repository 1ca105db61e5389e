"""From the name of an algorithm and its options to a join."""

from __future__ import annotations

from typing import Any

import pytest

from lab.joins.plain_pairs import query
from watersmeet.errors import QueryError
from watersmeet.joins import Join, plan
from watersmeet.joins.baselines.nested_loop import NestedLoopJoin
from watersmeet.joins.baselines.windowed_hash import WindowedHashJoin
from watersmeet.joins.hash_join import HashJoin


@pytest.mark.parametrize(
    ("algorithm", "options", "join"),
    [
        ("hash", {}, Join(query(), HashJoin())),
        ("hash", {"buckets": 7}, Join(query(), WindowedHashJoin(7, "probe_insert"))),
        ("hash", {"buckets": 7, "invalidation": "all"}, Join(query(), WindowedHashJoin(7, "all"))),
        ("windowed_hash", {"buckets": 7}, Join(query(), WindowedHashJoin(7))),
        ("nested_loop", {}, Join(query(), NestedLoopJoin())),
    ],
)
def test_a_name_stands_for_a_join(algorithm: str, options: dict[str, Any], join: object) -> None:
    assert plan(query(), algorithm, **options) == join


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("hsah", {}, '`algorithm` is "hsah"; known are .*hash.*nested_loop.*\nHint: did you mean `hash`\\?$'),
        ("sort", {}, '`algorithm` is "sort"; known are [^\n]*$'),
        (
            "hash",
            {"bucket": 3},
            '`bucket` is no option of "hash"; it takes buckets, invalidation.\nHint: did you mean `buckets`\\?$',
        ),
        ("nested_loop", {"buckets": 3}, '`buckets` is no option of "nested_loop"; it takes no options.$'),
        (
            "hash",
            {"invalidation": "all"},
            '"hash" needs `buckets` here; what invalidation is about are buckets.\nHint: give buckets=, or take "hash"',
        ),
        ("windowed_hash", {}, '"windowed_hash" needs `buckets` here; what it is about are buckets.\nHint'),
        ("hash", {"buckets": 0}, "`buckets` is 0;"),
    ],
)
def test_what_is_not_known_is_refused(algorithm: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=f"^{message}"):
        plan(query(), algorithm, **options)
