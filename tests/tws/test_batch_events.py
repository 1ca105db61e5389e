"""From what the shards of a batch said to its event."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.outputs import Counters
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.batch_events import RunEvents, of_streams

pytestmark = pytest.mark.tws

SECOND = 1_000_000


def spec(name: str) -> StreamSpec:
    schema = pa.schema([("k", pa.int64()), (f"{name}_ts", pa.timestamp("us", "UTC"))])
    return StreamSpec(name, schema, f"{name}_ts", ("k",), TimeWindow(10 * SECOND))


def stream(name: str, rows: int, seen: int | None = 0, **more: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(("late", "violations", "stored", "bytes", "closed", "ranges", "keys"), 0)
    return zeros | {"name": name, "rows_in": rows, "seen": seen, "hot": []} | more


def shard(number: int, streams: list[dict[str, Any]], **more: Any) -> str:
    counted = Counters(rows_in=sum(s["rows_in"] for s in streams), stored=sum(s["stored"] for s in streams))
    said = counted.as_dict() | {"shard": number, "streams": streams, "progress": [0, 0], "join_us": 1000} | more
    return json.dumps(said)


def progress(batch: int, *shards: str, second: float = 0.0, took: int = 500, **observed: list[str]) -> Any:
    told = {"watersmeet": {"shards": list(shards)}} | {name: {"shards": said} for name, said in observed.items()}
    return SimpleNamespace(
        runId="r",
        batchId=batch,
        timestamp=f"2026-01-01T00:00:{second:06.3f}Z",
        durationMs={"triggerExecution": took, "addBatch": took // 2},
        observedMetrics=told,
    )


def events(grouped: bool = False) -> RunEvents:
    return RunEvents(JoinQuery((spec("a"), spec("b"))), "hash", grouped=grouped)


def test_streams_are_summed_and_the_slowest_shard_is_told() -> None:
    one = [stream("a", 6, 8 * SECOND, stored=3, bytes=30, hot=[("x", 0.5), ("y", 0.3333)]), stream("b", 1, 5 * SECOND)]
    two = [stream("a", 2, 8 * SECOND, stored=1, bytes=10, hot=[("z", 1.0)]), stream("b", 3, 5 * SECOND)]
    event = events().batch(progress(0, shard(4, two, save_us=2500), shard(0, one)))
    assert event is not None
    a, b = event["streams"]
    assert (a["rows_in"], a["stored"], a["bytes"], a["lag"], b["lag"]) == (8, 4, 40, 0, 3)
    assert a["hot"] == [
        {"key": "x", "rows": 3, "share": 0.375},
        {"key": "y", "rows": 2, "share": 0.25},
        {"key": "z", "rows": 2, "share": 0.25},
    ]
    assert [(s["shard"], s["rows_in"], s["ms"]) for s in event["shards"]] == [(0, 7, 1.0), (4, 5, 3.5)]
    assert event["shard_ms"] == {"join": 1.0, "save": 2.5}
    assert event["skew"] == round(7 / 6, 3)


def test_rates_are_over_the_time_between_the_ends_of_batches() -> None:
    run, said = events(), shard(0, [stream("a", 1), stream("b", 1)])
    told = [run.batch(progress(n, said, second=s, took=ms)) for n, s, ms in ((0, 0, 4000), (1, 4, 500), (2, 10, 1000))]
    assert [e["interval"] for e in told if e] == [4, 0.5, 6.5]


def test_a_stream_that_is_silent_falls_behind_by_what_it_showed_last() -> None:
    run = events()
    run.batch(progress(0, shard(0, [stream("a", 1, 5 * SECOND), stream("b", 1, 4 * SECOND)])))
    event = run.batch(progress(1, shard(0, [stream("a", 1, 9 * SECOND), stream("b", 0, None)])))
    assert event is not None
    assert [s["lag"] for s in event["streams"]] == [0, 5]
    assert event["streams"][1]["newest"] == 4 * SECOND


def test_no_progress_is_told_before_the_first_row_nor_a_forecast_after_an_end() -> None:
    run = events()
    for n in range(4):
        streams = [stream("a", 10, n * SECOND), stream("b", 10, n * SECOND)]
        event = run.batch(progress(n, shard(0, streams, progress=[n, BEFORE_ALL if n < 3 else AFTER_ALL])))
        assert event is not None
        foretold = [s["predicted"] for s in event["streams"]]
        assert foretold == ([None, None] if n in (0, 3) else [10 * (n + 1)] * 2)
        assert [s["progress"] for s in event["streams"]] == [n, None]


def test_the_state_of_further_operators_counts() -> None:
    said = shard(0, [stream("a", 1, stored=2), stream("b", 1)])
    groups = json.dumps(Counters(stored=0, state_bytes=7, open_groups=3, groups=2).as_dict() | {"shard": 0})
    event = events(grouped=True).batch(progress(0, said, watersmeet_groups=[groups]))
    assert event is not None
    assert event["rows_out"] == 2
    assert event["state"] == {"tuples": 2, "bytes": 7}
    assert event["operators"]["groups"]["open_groups"] == 3


def test_a_batch_without_shards_is_no_event_and_a_foreign_query_has_no_streams() -> None:
    empty = SimpleNamespace(observedMetrics={})
    assert events().batch(empty) is None
    assert of_streams(empty) == []
    assert of_streams(progress(0, shard(0, [stream("a", 1), stream("b", 1)]))) == ["a", "b"]
