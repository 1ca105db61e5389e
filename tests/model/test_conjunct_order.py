"""The order in which the conditions of a predicate are evaluated: cheap and selective first, errors where they were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.model.predicates import Kept, in_order, may_raise
from watersmeet.query.predicate_parser import parse

KINDS = {
    "i": pa.int64(),
    "j": pa.int64(),
    "m": pa.int32(),
    "x": pa.float64(),
    "s": pa.string(),
    "d": pa.decimal128(9, 2),
}
SCHEMA = pa.schema(list(KINDS.items()))
CONDITIONS = [
    "i < j", "i = j", "i <> 0", "j <> 0", "m <= i", "s = 'b'", "s < 'c' OR i > 2", "NOT s = 'a'", "x > 1", "x / 2 < i",
    "i / j < 2", "j % i = 1", "m + m > 0", "abs(i - j) <= 2", "-m < 2", "d > i", "d + d < 4", "i IS NOT NULL",
    "j IN (1, 2, i)", "TRUE", "NULL", "i < j AND x / j > 1", "i > 9223372036854775806 - j",
]  # fmt: skip
VALUES = {
    "i": st.sampled_from([None, -3, 0, 1, 2, 2**62]),
    "j": st.sampled_from([None, -1, 0, 1, 3]),
    "m": st.sampled_from([None, -1, 0, 5, 2**31 - 1]),
    "x": st.sampled_from([None, 0.0, 1.5, float("nan"), float("inf")]),
    "s": st.sampled_from([None, "a", "b", "c"]),
    "d": st.sampled_from([None, 0, 1, 7]),
}


@given(
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=6), st.lists(st.fixed_dictionaries(VALUES), max_size=12)
)
def test_the_order_changes_no_result_and_adds_no_error(texts: list[str], values: list[dict[str, object]]) -> None:
    rows = pa.RecordBatch.from_pylist(values, SCHEMA)
    predicate = parse(" AND ".join(f"({text})" for text in texts), SCHEMA)
    try:
        written = predicate.root.evaluate(rows).fill_null(False).to_pylist()
    except (pa.ArrowInvalid, ZeroDivisionError):
        written = None
    try:
        found = predicate.holds(rows).tolist()
    except QueryError:
        assert written is None
    else:
        assert written is None or found == written


@given(st.permutations(CONDITIONS))
def test_what_may_raise_stays_behind_what_is_written_before_it(texts: Sequence[str]) -> None:
    written = [parse(text, SCHEMA).root for text in texts]
    at = {id(node): n for n, node in enumerate(in_order(written))}
    assert len(at) == len(written)
    for n, node in enumerate(written):
        if may_raise(node):
            assert all(at[id(before)] < at[id(node)] for before in written[:n])


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("s = 'a' AND i < j", ["i < j", "s = 'a'"]),  # texts late
        ("i <> j AND i = j", ["i = j", "i <> j"]),  # selective first
        ("x < 1 AND i < j", ["i < j", "x < 1"]),  # floats are dear: they are brought into Spark's order
        ("i / j < 2 AND i < m", ["i < m", "i / j < 2"]),  # divisions late
        ("s = 'a' AND i / j < 2", ["s = 'a'", "i / j < 2"]),  # which may be an error: not before what excludes it
        ("s = 'a' AND i / j < 2 AND j <> 0 AND i < m", ["i < m", "s = 'a'", "j <> 0", "i / j < 2"]),
        ("abs(i - j) <= 2 AND s = 'a'", ["abs(i - j) <= 2", "s = 'a'"]),
        ("i < j AND j < i", ["i < j", "j < i"]),  # as written where nothing is to be gained
    ],
)
def test_cheap_and_selective_conditions_come_first(text: str, order: list[str]) -> None:
    conditions = [parse(part, SCHEMA).root for part in text.split(" AND ")]
    assert in_order(conditions) == [parse(part, SCHEMA).root for part in order]


def test_a_condition_is_evaluated_for_what_the_ones_before_leave() -> None:
    rows = pa.RecordBatch.from_pylist([{"i": n, "j": n % 10, "s": "ab"[n % 2]} for n in range(100)], SCHEMA)
    evaluated: list[tuple[tuple[str, ...], int]] = []

    def take(columns: Sequence[str], kept: Kept) -> list[pa.Array]:
        at = np.arange(100)[kept]
        evaluated.append((tuple(columns), at.size))
        return [rows.column(c).take(pa.array(at)) for c in columns]

    predicate = parse("s = 'b' AND i / j > 2 AND j = 7", SCHEMA)
    assert np.flatnonzero(predicate.holds_among(100, take)).tolist() == list(range(17, 100, 10))
    assert evaluated == [(("j",), 100), (("s",), 10), (("i", "j"), 10)]
    evaluated.clear()
    assert not parse("j = 11 AND s = 'b'", SCHEMA).holds_among(100, take).any()
    assert evaluated == [(("j",), 100)]


def test_which_expressions_may_be_an_error() -> None:
    raising = [text for text in CONDITIONS if may_raise(parse(text, SCHEMA).root)]
    assert raising == [
        "i / j < 2", "j % i = 1", "m + m > 0", "abs(i - j) <= 2", "-m < 2", "d > i", "d + d < 4",
        "i < j AND x / j > 1", "i > 9223372036854775806 - j",
    ]  # fmt: skip
