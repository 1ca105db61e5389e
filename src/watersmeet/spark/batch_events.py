"""From the progress of a query to events: what a batch did, in plain data (see docs/monitoring.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from watersmeet.cost.forecast import Forecast, Shown
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.events import Event
from watersmeet.model.queries import JoinQuery
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
    """The events of one run of a query; a forecast and a lag need what earlier batches showed."""

    def __init__(self, query: JoinQuery, algorithm: str, *, grouped: bool) -> None:
        self.names = [s.name for s in query.streams]
        self.output = "groups" if grouped else "results"
        self.forecast = Forecast(query, algorithm)
        self._newest: list[int | None] = [None] * len(self.names)
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
        told = [_merged([s["streams"][i] for s in shards]) for i in range(len(self.names))]
        for i, stream in enumerate(told):
            seen = [t for t in (self._newest[i], stream["newest"]) if t is not None]
            self._newest[i] = stream["newest"] = max(seen, default=None)
        foremost = max((t for t in self._newest if t is not None), default=None)
        progress = [min(s["progress"][i] for s in shards) for i in range(len(told))]
        foretold = self.forecast.after([_shown(s) for s in told])
        if max(progress) >= AFTER_ALL:  # a stream that has ended closes all keys at once
            foretold = [None] * len(told)
        for stream, tuples, reached in zip(told, foretold, progress, strict=True):
            newest = stream["newest"]
            stream["progress"] = reached if BEFORE_ALL < reached < AFTER_ALL else None
            stream["lag"] = None if newest is None or foremost is None else (foremost - newest) / SECOND
            stream["predicted"] = None if tuples is None else round(tuples)
            each = stream["bytes"] / stream["stored"] if stream["stored"] else None
            stream["predicted_bytes"] = None if tuples is None or each is None else round(tuples * each)
        return told


def of_streams(progress: StreamingQueryProgress) -> list[str]:
    """Names of the streams that the progress is about; none if it is not of a join."""
    shards = counters(progress).get(SHARDS, [])
    return [s["name"] for s in shards[0].get("streams", [])] if shards else []


def _merged(shards: Sequence[dict[str, Any]]) -> Event:
    """One stream, from what each shard says of it."""
    sums = {name: sum(s[name] for s in shards) for name in SUMMED}
    hot = [{"key": key, "rows": round(share * s["rows_in"])} for s in shards for key, share in s["hot"]]
    hot.sort(key=lambda h: (-h["rows"], h["key"]))
    return {
        "name": shards[0]["name"],
        **sums,
        "ranges": max(s["ranges"] for s in shards),  # every shard is told of each
        "keys": sum(s["keys"] for s in shards) if "keys" in shards[0] else None,
        "newest": max((s["seen"] for s in shards if s["seen"] is not None), default=None),
        "scrambling": sum(s["scrambling"] for s in shards) if "scrambling" in shards[0] else None,
        "hot": [h | {"share": round(h["rows"] / sums["rows_in"], 4)} for h in hot[:HOTTEST]],
    }


def _shown(s: Event) -> Shown:
    return Shown(
        s["rows_in"] - s["late"] - s["violations"],
        s["closed"],
        s["ranges"],
        s["newest"],
        s["keys"],
        s["scrambling"] or 0,
    )


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
