"""Events from the progress of a query: each batch as plain data (see docs/monitoring.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.events import Event
from watersmeet.spark.progress.other_shards import PARTS
from watersmeet.spark.progress.summary import BatchSummary
from watersmeet.state.hot_keys.phases import HOT_KEYS, Phase, from_json

#: Why tuples left the state or were never stored, and the counter of each reason.
REASONS = {"window": "expired", "punctuation": "purged", "dead": "dead", "matched": "matched", "shed": "shed"}
#: Fields of a stream that are summed over the shards.
SUMMED = ("rows_in", "late", "violations", "stored", "bytes", "closed")
#: Number of hot keys that an event lists for a stream.
HOTTEST = 5
SECOND = 1_000_000


class RunEvents:
    """The events of one run of a query; keeps the earlier batches' newest times, for rates and lags."""

    def __init__(self, streams: Sequence[str], *, grouped: bool) -> None:
        self.names = streams
        self.grouped = grouped
        self._newest: list[int | None] = [None] * len(streams)
        self._over: datetime | None = None

    def batch(self, progress: StreamingQueryProgress) -> Event | None:
        """The event of a batch; None if no shard was called in it."""
        batch = BatchSummary.of(progress, streams=self.names)
        if batch is None:
            return None
        counters, shards, seconds, others = batch.counters, batch.shards, batch.seconds, batch.operators
        over = datetime.fromisoformat(progress.timestamp) + timedelta(seconds=seconds)
        since = seconds if self._over is None else max(seconds, (over - self._over).total_seconds())
        self._over = over
        return {
            "kind": "batch",
            "run": str(progress.runId),
            "batch": batch.number,
            "at": progress.timestamp,
            "seconds": seconds,
            "interval": since,
            "rows_in": counters["rows_in"],
            "rows_out": batch.rows_out(grouped=self.grouped),
            "state": {
                "tuples": counters["stored"] + sum(o["stored"] for o in others.values()),
                "bytes": counters["state_bytes"] + sum(o["state_bytes"] for o in others.values()),
            },
            "streams": self._streams(batch.reports),
            "left": {reason: counters[name] for reason, name in REASONS.items()},
            "late": counters["late"],
            "violations": counters["violations"],
            "spark_ms": batch.spark_ms,
            "shard_ms": _slowest(shards),
            "shards": [_shard(s) for s in shards],
            "shard_count": batch.shard_count,
            "skew": _skew(max(s["rows_in"] for s in shards), counters["rows_in"] / batch.shard_count),
            "operators": others,
            "counters": counters,
        }

    def _streams(self, shards: Sequence[dict[str, Any]]) -> list[Event]:
        streams = [_merged(i, shards) for i in range(len(self._newest))]
        for i, stream in enumerate(streams):
            seen = [t for t in (self._newest[i], stream["newest"]) if t is not None]
            self._newest[i] = stream["newest"] = max(seen, default=None)
        foremost = max((t for t in self._newest if t is not None), default=None)
        for stream in streams:
            newest = stream["newest"]
            stream["lag"] = None if newest is None or foremost is None else (foremost - newest) / SECOND
        return streams


def is_of(progress: StreamingQueryProgress, streams: Sequence[str]) -> bool:
    """Whether the progress is that of a join of these streams."""
    batch = BatchSummary.of(progress, streams=streams)
    return batch is not None and batch.streams == list(streams)


def _merged(i: int, shards: Sequence[dict[str, Any]]) -> Event:
    """Stream i, merged from the reports of all shards."""
    mine = [s["streams"][i] for s in shards]
    sums = {name: sum(s[name] for s in mine) for name in SUMMED}
    watermark = min(s["watermarks"][i] for s in shards)
    rows: dict[str, int] = {}  # of a key that is split several shards have some
    for s in mine:
        for key, share in s["hot"]:
            rows[key] = rows.get(key, 0) + round(share * s["rows_in"])
    hot: list[Event] = [{"key": key, "rows": n} for key, n in sorted(rows.items(), key=lambda h: (-h[1], h[0]))]
    table = next((from_json(s[HOT_KEYS]["table"]) for s in shards if HOT_KEYS in s), {})
    return {
        "name": mine[0]["name"],
        **sums,
        "ranges": max(s["ranges"] for s in mine),  # every shard gets each range
        "keys": sum(s["keys"] for s in mine) if "keys" in mine[0] else None,
        "newest": max((s["seen"] for s in mine if s["seen"] is not None), default=None),
        "watermark": watermark if BEFORE_ALL < watermark < AFTER_ALL else None,
        "delay": _of_all(shards, "delays", lambda each: max(each) / SECOND, i),
        "scrambling": _of_all(shards, "scrambling", sum, i),
        **_predicted(i, shards),
        "hot": [h | {"share": round(h["rows"] / sums["rows_in"], 4)} for h in hot[:HOTTEST]],
        "split": sorted(h.key for h in table.values() if h.spread == i and h.phase == Phase.SPREAD),
    }


def _predicted(i: int, shards: Sequence[dict[str, Any]]) -> Event:
    """Tuples and bytes by the cost model; None after an end, which closes all keys at once."""
    over = any(p >= AFTER_ALL for s in shards for p in s["watermarks"])
    pairs = None if over else _of_all(shards, "expected", list, i)
    tuples, size = (None, None) if pairs is None else map(sum, zip(*pairs, strict=True))
    return {"predicted": tuples, "predicted_bytes": size}


def _of_all(shards: Sequence[dict[str, Any]], name: str, together: Callable[[list[Any]], Any], i: int) -> Any:
    """The values of a field for stream i, combined over all shards; None if one shard has none."""
    each = [s[name][i] if name in s else None for s in shards]
    return None if any(e is None for e in each) else together(each)


def _slowest(shards: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Where the time of the slowest shard went, in milliseconds."""
    slowest = max(shards, key=_micros)
    return {part: slowest[f"{part}_us"] / 1000 for part in PARTS if f"{part}_us" in slowest}


def _shard(report: dict[str, Any]) -> Event:
    rest = {"rows_in": report["rows_in"], "tuples": report["stored"], "bytes": report["state_bytes"]}
    return {"shard": report["shard"], **rest, "ms": _micros(report) / 1000}


def _micros(report: dict[str, Any]) -> int:
    return sum(report.get(f"{part}_us", 0) for part in PARTS)


def _skew(most: int, mean: float) -> float | None:
    """Rows of the fullest shard, as a multiple of the mean; None without rows."""
    return round(most / mean, 3) if mean else None
