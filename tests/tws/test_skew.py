"""A key with a large share of a shard's rows is told of in `explain`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from watersmeet.spark.explain import HOT_ROWS, _skew

pytestmark = pytest.mark.tws


def progress(rows: int, hot: list[tuple[str, float]]) -> dict[str, Any]:
    streams = [{"name": "a", "rows_in": 0, "hot": []}, {"name": "b", "rows_in": rows, "hot": hot}]
    shards = [{"shard": 3, "idle": 0, "streams": streams}, {"shard": 7, "idle": 0}]
    return {"observedMetrics": {"watersmeet": {"shards": [json.dumps(s) for s in shards]}}}


def test_a_hot_key_is_told_with_its_stream_and_shard() -> None:
    told = _skew(progress(HOT_ROWS, [("item 7", 0.31), ("item 8", 0.05)]))
    assert told == {"hot_keys": ["item 7 has 31% of the rows of b in shard 3, which the others wait for"]}


def test_of_few_rows_every_key_has_a_large_share() -> None:
    assert _skew(progress(HOT_ROWS - 1, [("item 7", 0.31)])) == {}
    assert _skew(progress(HOT_ROWS, [("item 7", 0.19)])) == {}
    assert _skew(None) == {}
