"""From the progress of a query to events: what a batch did, in plain data (see docs/monitoring.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.events import Event
from watersmeet.spark.counters import METRICS, SHARDS, counters

#: Why tuples left the state, or did not stay in it, and the counter that says how many.
REASONS = {"window": "invalidated", "punctuation": "purged", "dead": "dead", "matched": "matched", "shed": "shed"}
#: Where a shard's time goes.
PARTS = ("decode", "load", "join", "emit", "watch", "save")
#: Of a stream, what is summed over the shards.
SUMMED = ("rows_in", "late", "violations", "stored", "bytes", "closed")
#: Keys that are told of a stream.
HOTTEST = 5
SECOND = 1_000_000


class RunEvents:
    """The events of one run of a query; rates and lags need what earlier batches showed."""

    def __init__(self, streams: int, *, grouped: bool) -> None:
        self.output = "groups" if grouped else "results"
        self._newest: list[int | None] = [None] * streams
        self._over: datetime | None = None

    def batch(self, progress: StreamingQueryProgress) -> Event | None:
        """The event of a batch; None if no shard was called in it."""
        said = counters(progress)
        if not said:
            return None
        shards = said.pop(SHARDS)
        seconds = progress.durationMs["triggerExecution"] / 1000
        over = datetime.fromisoformat(progress.timestamp) + timedelta(seconds=seconds)
        since = seconds if self._over is None else max(seconds, (over - self._over).total_seconds())
        self._over = over
        others = _others(progress)
        out = others["groups"]["groups"] if "groups" in others else said[self.output]
        return {
            "kind": "batch",
            "run": str(progress.runId),
            "batch": progress.batchId,
            "at": progress.timestamp,
            "seconds": seconds,
            "interval": since,
            "rows_in": said["rows_in"],
            "rows_out": out,
            "state": {
                "tuples": said["stored"] + sum(o["stored"] for o in others.values()),
                "bytes": said["state_bytes"] + sum(o["state_bytes"] for o in others.values()),
            },
            "streams": self._streams(shards),
            "left": {reason: said[name] for reason, name in REASONS.items()},
            "late": said["late"],
            "violations": said["violations"],
            "spark_ms": dict(progress.durationMs),
            "shard_ms": _slowest(shards),
            "shards": [_shard(s) for s in shards],
            "skew": _skew([s["rows_in"] for s in shards]),
            "operators": others,
            "counters": said,
        }

    def _streams(self, shards: Sequence[dict[str, Any]]) -> list[Event]:
        told = [_merged(i, shards) for i in range(len(self._newest))]
        for i, stream in enumerate(told):
            seen = [t for t in (self._newest[i], stream["newest"]) if t is not None]
            self._newest[i] = stream["newest"] = max(seen, default=None)
        foremost = max((t for t in self._newest if t is not None), default=None)
        for stream in told:
            newest = stream["newest"]
            stream["lag"] = None if newest is None or foremost is None else (foremost - newest) / SECOND
        return told


def of_streams(progress: StreamingQueryProgress) -> list[str]:
    """Names of the streams that the progress is about; none if it is not of a join."""
    shards = counters(progress).get(SHARDS, [])
    return [s["name"] for s in shards[0].get("streams", [])] if shards else []


def _merged(i: int, shards: Sequence[dict[str, Any]]) -> Event:
    """Stream i, from what each shard says of it."""
    mine = [s["streams"][i] for s in shards]
    sums = {name: sum(s[name] for s in mine) for name in SUMMED}
    progress = min(s["progress"][i] for s in shards)
    hot = [{"key": key, "rows": round(share * s["rows_in"])} for s in mine for key, share in s["hot"]]
    hot.sort(key=lambda h: (-h["rows"], h["key"]))
    return {
        "name": mine[0]["name"],
        **sums,
        "ranges": max(s["ranges"] for s in mine),  # every shard is told of each
        "keys": sum(s["keys"] for s in mine) if "keys" in mine[0] else None,
        "newest": max((s["seen"] for s in mine if s["seen"] is not None), default=None),
        "progress": progress if BEFORE_ALL < progress < AFTER_ALL else None,
        "delay": _of_all(shards, "delays", lambda each: max(each) / SECOND, i),
        "scrambling": _of_all(shards, "scrambling", sum, i),
        **_foretold(i, shards),
        "hot": [h | {"share": round(h["rows"] / sums["rows_in"], 4)} for h in hot[:HOTTEST]],
    }


def _foretold(i: int, shards: Sequence[dict[str, Any]]) -> Event:
    """Tuples and bytes that the cost model expects; nothing after an end, which closes all keys at once."""
    over = any(p >= AFTER_ALL for s in shards for p in s["progress"])
    pairs = None if over else _of_all(shards, "expected", list, i)
    tuples, size = (None, None) if pairs is None else map(sum, zip(*pairs, strict=True))
    return {"predicted": tuples, "predicted_bytes": size}


def _of_all(shards: Sequence[dict[str, Any]], name: str, together: Callable[[list[Any]], Any], i: int) -> Any:
    """What all shards say of stream i under a name, taken together; None if one of them does not."""
    each = [s[name][i] if name in s else None for s in shards]
    return None if any(e is None for e in each) else together(each)


def _others(progress: StreamingQueryProgress) -> dict[str, Event]:
    """Counters of the further operators of the query: joins before the last one, groups behind it."""
    out = {}
    for name in progress.observedMetrics:
        if name.startswith(f"{METRICS}_"):
            said = counters(progress, metrics=name)
            said.pop(SHARDS, None)
            if said:
                out[name.removeprefix(f"{METRICS}_")] = said
    return out


def _slowest(shards: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Where the time of the slowest shard went, in milliseconds."""
    slowest = max(shards, key=_micros)
    return {part: slowest[f"{part}_us"] / 1000 for part in PARTS if f"{part}_us" in slowest}


def _shard(said: dict[str, Any]) -> Event:
    rest = {"rows_in": said["rows_in"], "tuples": said["stored"], "bytes": said["state_bytes"]}
    return {"shard": said["shard"], **rest, "ms": _micros(said) / 1000}


def _micros(said: dict[str, Any]) -> int:
    return sum(said.get(f"{part}_us", 0) for part in PARTS)


def _skew(rows: Sequence[int]) -> float | None:
    """How much more the fullest shard got than the mean; None without rows."""
    return round(max(rows) * len(rows) / sum(rows), 3) if sum(rows) else None
