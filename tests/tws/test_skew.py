"""A key with a large share of the rows is told of, with its shard."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.model.batches import Batch
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.explain import _skew
from watersmeet.spark.skew import FEWEST_ROWS, hot_key

pytestmark = pytest.mark.tws


def given(keys: list[Any], kind: pa.DataType, name: str = "a") -> tuple[StreamSpec, Batch]:
    schema = pa.schema([("t", pa.int64()), ("k", kind)])
    rows = pa.record_batch([pa.array(range(len(keys))), pa.array(keys, kind)], schema=schema)
    return StreamSpec(name, schema, "t", ("k",), TimeWindow(1), 0), Batch.of(rows, "t")


def hottest(*streams: tuple[StreamSpec, Batch]) -> dict[str, Any] | None:
    return hot_key([s for s, _ in streams], [b for _, b in streams])


@pytest.mark.parametrize(("kind", "hot"), [(pa.int64(), 7), (pa.string(), "seven"), (pa.float64(), 7.5)])
def test_the_hottest_key_is_found(kind: pa.DataType, hot: Any) -> None:
    others = [str(n) if kind == pa.string() else float(n) if kind == pa.float64() else n for n in range(100, 7100)]
    keys = [hot if n % 10 < 3 else others[n] for n in range(7000)]
    told = hottest(given(others, kind), given(keys, kind, "b"))
    assert told is not None
    assert (told["stream"], told["key"]) == ("b", {"k": hot})
    assert 25 <= told["percent"] <= 35


def test_neither_null_nor_few_rows_nor_even_keys_are_hot() -> None:
    assert hottest(given([None] * 5000, pa.int64())) is None
    assert hottest(given([1] * (FEWEST_ROWS - 1), pa.int64())) is None
    assert hottest(given([n % 10 for n in range(5000)], pa.int64())) is None
    assert hottest(given([], pa.int64())) is None


def test_it_is_explained() -> None:
    shard = {"shard": 3, "idle": 0, "rows_in": 9, "hot_key": {"stream": "b", "key": {"k": 7}, "percent": 30}}
    progress = {"observedMetrics": {"watersmeet": {"shards": [json.dumps(shard)]}}}
    told = _skew(progress)["hot_keys"]
    assert told == ["k = 7 has 30 % of the rows of b in shard 3, which the others wait for"]
    assert _skew(None) == {}
