"""From the reports of the shards of a batch to its event."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.counters import Counters
from watersmeet.spark.progress.batch_events import RunEvents, is_of

pytestmark = pytest.mark.tws

SECOND = 1_000_000


def stream(name: str, rows: int, seen: int | None = 0, **more: Any) -> dict[str, Any]:
    zeros = dict.fromkeys(("late", "violations", "stored", "bytes", "closed", "ranges", "keys"), 0)
    return zeros | {"name": name, "rows_in": rows, "seen": seen, "hot": []} | more


def shard(number: int, streams: list[dict[str, Any]], **more: Any) -> str:
    counted = Counters(rows_in=sum(s["rows_in"] for s in streams), stored=sum(s["stored"] for s in streams))
    counters = counted.as_dict() | {"shard": number, "streams": streams, "watermarks": [0, 0], "join_us": 1000} | more
    return json.dumps(counters)


def progress(batch: int, *shards: str, second: float = 0.0, took: int = 500, **observed: list[str]) -> Any:
    outcome = {"watersmeet": {"shards": list(shards)}} | {name: {"shards": found} for name, found in observed.items()}
    return SimpleNamespace(
        runId="r",
        batchId=batch,
        timestamp=f"2026-01-01T00:00:{second:06.3f}Z",
        durationMs={"triggerExecution": took, "addBatch": took // 2},
        observedMetrics=outcome,
    )


def events(grouped: bool = False) -> RunEvents:
    return RunEvents(["a", "b"], grouped=grouped)


def test_streams_are_summed_and_the_slowest_shard_is_reported() -> None:
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


def test_a_split_key_is_one_key_of_the_stream_that_is_spread() -> None:
    table = [[1, "x", 0, "spread", 0], [2, "y", 0, "copying", 0], [3, "z", 1, "spread", 0]]
    one, two = ([stream("a", 4, hot=[("x", 0.5)]), stream("b", 1)] for _ in range(2))
    about = {"hot_keys": {"table": table}}
    event = events().batch(progress(0, shard(0, one, **about), shard(1, two, **about)))
    assert event is not None
    a, b = event["streams"]
    assert (a["split"], b["split"]) == (["x"], ["z"])
    assert a["hot"] == [{"key": "x", "rows": 4, "share": 0.5}]


def test_rates_are_over_the_time_between_the_ends_of_batches() -> None:
    run, counters = events(), shard(0, [stream("a", 1), stream("b", 1)])
    output = [
        run.batch(progress(n, counters, second=s, took=ms)) for n, s, ms in ((0, 0, 4000), (1, 4, 500), (2, 10, 1000))
    ]
    assert [e["interval"] for e in output if e] == [4, 0.5, 6.5]


def test_a_stream_that_is_silent_falls_behind_by_what_it_showed_last() -> None:
    run = events()
    run.batch(progress(0, shard(0, [stream("a", 1, 5 * SECOND), stream("b", 1, 4 * SECOND)])))
    event = run.batch(progress(1, shard(0, [stream("a", 1, 9 * SECOND), stream("b", 0, None)])))
    assert event is not None
    assert [s["lag"] for s in event["streams"]] == [0, 5]
    assert event["streams"][1]["newest"] == 4 * SECOND


def test_what_the_shards_expect_is_summed_unless_one_does_not_know_or_a_stream_has_ended() -> None:
    streams = [stream("a", 10), stream("b", 10)]
    one, two = (shard(n, streams, expected=[[10, 900], [20, 800]], scrambling=[n, 5], delays=[n, None]) for n in (3, 4))
    event = events().batch(progress(0, one, two))
    assert event is not None
    a, b = event["streams"]
    assert (a["predicted"], a["predicted_bytes"], b["predicted"]) == (20, 1800, 40)
    assert (a["scrambling"], b["scrambling"], a["delay"], b["delay"]) == (7, 10, 4e-6, None)
    over = shard(5, streams, expected=[[1, 1], [1, 1]], watermarks=[0, AFTER_ALL])
    for other in (shard(5, streams), over):
        event = events().batch(progress(0, one, other))
        assert event is not None
        assert [s["predicted"] for s in event["streams"]] == [None, None]


def test_there_is_no_watermark_before_the_first_row_and_after_the_end() -> None:
    for unknown in (BEFORE_ALL, AFTER_ALL):
        event = events().batch(progress(0, shard(0, [stream("a", 1), stream("b", 1)], watermarks=[5, unknown])))
        assert event is not None
        assert [s["watermark"] for s in event["streams"]] == [5, None]


def test_the_state_of_further_operators_counts() -> None:
    counters = shard(0, [stream("a", 1, stored=2), stream("b", 1)])
    groups = json.dumps(Counters(stored=0, state_bytes=7, open_groups=3, groups=2).as_dict() | {"shard": 0})
    event = events(grouped=True).batch(progress(0, counters, **{"watersmeet_groups#1": [groups]}))
    assert event is not None
    assert event["rows_out"] == 2
    assert event["state"] == {"tuples": 2, "bytes": 7}
    assert event["operators"]["groups"]["open_groups"] == 3


def test_a_batch_without_shards_is_no_event_and_a_foreign_query_has_no_streams() -> None:
    empty = SimpleNamespace(observedMetrics={})
    assert events().batch(empty) is None
    assert not is_of(empty, ["a", "b"])
    counters = progress(0, shard(0, [stream("a", 1), stream("b", 1)]))
    assert is_of(counters, ["a", "b"])
    assert not is_of(counters, ["a", "c"])
