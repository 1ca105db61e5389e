"""Events as metrics, in the text format of Prometheus (0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from watersmeet.model.events import Event

#: The metric families: name, type (counter or gauge), help text.
FAMILIES = {
    "watersmeet_up": ("gauge", "1 while the query runs, 0 after it has ended."),
    "watersmeet_batches_total": ("counter", "Batches."),
    "watersmeet_batch_seconds_total": ("counter", "Time spent in batches."),
    "watersmeet_batch_seconds": ("gauge", "Time of the last batch."),
    "watersmeet_shard_seconds_total": ("counter", "Time of the slowest shard of each batch, by part."),
    "watersmeet_spark_seconds_total": ("counter", "Time of batches as Spark divides it; parts contain each other."),
    "watersmeet_rows_total": ("counter", "Input rows, by stream."),
    "watersmeet_results_total": ("counter", "Output rows."),
    "watersmeet_late_rows_total": ("counter", "Rows that came too late to be joined, by stream."),
    "watersmeet_violating_rows_total": ("counter", "Rows that violate a punctuation of their own stream, by stream."),
    "watersmeet_left_tuples_total": ("counter", "Tuples evicted from the state or never stored, by reason."),
    "watersmeet_state_tuples": ("gauge", "Tuples in the state after the last batch, by stream."),
    "watersmeet_state_predicted_tuples": ("gauge", "Tuples that the cost model expects in the state, by stream."),
    "watersmeet_state_bytes": ("gauge", "Bytes of the state after the last batch, by stream."),
    "watersmeet_lag_seconds": ("gauge", "Event time by which a stream is behind the foremost one."),
    "watersmeet_newest_timestamp_seconds": ("gauge", "Newest event time of a stream, in seconds since 1970."),
    "watersmeet_scrambling_factor": (
        "gauge",
        "Rows that a stream may come behind its sorted place, as the join assumes.",
    ),
    "watersmeet_shard_skew": ("gauge", "Rows of the fullest shard over the mean of the shards, in the last batch."),
}

Labels = tuple[tuple[str, str], ...]


@dataclass
class _Query:
    """The samples of one query, by family and labels."""

    label: str
    samples: dict[str, dict[Labels, float]]

    def set(self, family: str, value: float | None, **labels: str) -> None:
        there = self.samples.setdefault(family, {})
        key = (("query", self.label), *labels.items())
        if value is None:
            there.pop(key, None)
        else:
            there[key] = float(value)

    def add(self, family: str, value: float, **labels: str) -> None:
        there = self.samples.setdefault(family, {})
        key = (("query", self.label), *labels.items())
        there[key] = there.get(key, 0.0) + value


class Metrics:
    """Sums of the events of every query, and the values of its last batch."""

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}
        self._of_run: dict[str, str] = {}
        self._lock = Lock()

    def take(self, event: Event) -> None:
        """Add an event to the sums. A query that restarts keeps its label: its name, or its id."""
        with self._lock:
            match event["kind"]:
                case "started":
                    self._of_run[event["run"]] = event["name"] or event["query"]
                    self._query(event).set("watersmeet_up", 1)
                case "batch":
                    _batch(self._query(event), event)
                case "ended":
                    self._query(event).set("watersmeet_up", 0)

    def text(self) -> str:
        """All metrics."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _query(self, event: Event) -> _Query:
        run: str = event["run"]
        label = self._of_run.get(run, run)
        return self._queries.setdefault(label, _Query(label, {}))

    def _lines(self) -> Iterator[str]:
        for family, (kind, description) in FAMILIES.items():
            samples = [s for q in self._queries.values() for s in q.samples.get(family, {}).items()]
            if samples:
                yield f"# HELP {family} {description}"
                yield f"# TYPE {family} {kind}"
            for labels, value in samples:
                pairs = ",".join(f'{name}="{escaped(text)}"' for name, text in labels)
                yield f"{family}{{{pairs}}} {value!r}"


#: The families of a stream: the value it takes from an event, and whether values are summed or replaced.
STREAM: dict[str, tuple[Callable[[Mapping[str, Any]], float | None], bool]] = {
    "watersmeet_rows_total": (lambda s: s["rows_in"], True),
    "watersmeet_late_rows_total": (lambda s: s["late"], True),
    "watersmeet_violating_rows_total": (lambda s: s["violations"], True),
    "watersmeet_state_tuples": (lambda s: s["stored"], False),
    "watersmeet_state_predicted_tuples": (lambda s: s["predicted"], False),
    "watersmeet_state_bytes": (lambda s: s["bytes"], False),
    "watersmeet_lag_seconds": (lambda s: s["lag"], False),
    "watersmeet_newest_timestamp_seconds": (lambda s: None if s["newest"] is None else s["newest"] / 1e6, False),
    "watersmeet_scrambling_factor": (lambda s: s["scrambling"], False),
}


def _batch(query: _Query, event: Event) -> None:
    query.add("watersmeet_batches_total", 1)
    query.add("watersmeet_batch_seconds_total", event["seconds"])
    query.set("watersmeet_batch_seconds", event["seconds"])
    query.add("watersmeet_results_total", event["rows_out"])
    query.set("watersmeet_shard_skew", event["skew"])
    for reason, count in event["left"].items():
        query.add("watersmeet_left_tuples_total", count, reason=reason)
    for part, ms in event["shard_ms"].items():
        query.add("watersmeet_shard_seconds_total", ms / 1000, part=part)
    for part, ms in event["spark_ms"].items():
        query.add("watersmeet_spark_seconds_total", ms / 1000, part=part)
    for stream in event["streams"]:
        for family, (value, summed) in STREAM.items():
            shown = value(stream)
            if summed and shown is not None:
                query.add(family, shown, stream=stream["name"])
            elif not summed:
                query.set(family, shown, stream=stream["name"])


def escaped(text: str) -> str:
    """A label's value, escaped for its quotes."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
