"""The summary of a query's batch, for command line, demo, `explain`, live page and Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from watersmeet.spark.progress.counters import METRICS, OTHERS, SHARDS, counters, names_of, summed, unnumbered


@dataclass(frozen=True)
class BatchSummary:
    """The summary of one batch. `counters` are those of one operator, summed over all its shards."""

    counters: dict[str, Any]
    shards: Sequence[dict[str, Any]]  # those that are listed
    others: dict[str, Any] | None = None  # of the shards that are not listed, together
    progress: Any = None  # Spark's, as an object or as a dictionary; None for a static join

    @classmethod
    def of(cls, progress: Any, *, streams: Sequence[str] | None = None, metrics: str = METRICS) -> BatchSummary | None:
        """The summary of a progress, for the operator of `counters`; None if no shard was called in the batch."""
        return cls._of(counters(progress, metrics=metrics, streams=streams), progress)

    @classmethod
    def of_shards(cls, shards: list[dict[str, Any]]) -> BatchSummary | None:
        """The same from the counters of each shard."""
        return cls._of(summed(shards))

    @classmethod
    def _of(cls, sums: dict[str, Any], progress: Any = None) -> BatchSummary | None:
        if not sums:
            return None
        own = {n: value for n, value in sums.items() if n not in (SHARDS, OTHERS)}
        return cls(own, sums[SHARDS], sums.get(OTHERS), progress)

    def count(self, name: str) -> int:
        """A counter of the operator; 0 if it has none of this name."""
        value: int = self.counters.get(name, 0)
        return value

    @property
    def reports(self) -> Sequence[dict[str, Any]]:
        """Reports that together are about all shards."""
        return self.shards if self.others is None else [*self.shards, self.others]

    @property
    def shard_count(self) -> int:
        return len(self.shards) + (self.others["shards"] if self.others else 0)

    @property
    def streams(self) -> list[str]:
        """Names of the streams that the operator joins."""
        return names_of(self.shards[0])

    @property
    def number(self) -> int:
        batch: int = self._field("batchId")
        return batch

    @property
    def spark_ms(self) -> dict[str, int]:
        """Where the time of the batch went, as Spark divides it."""
        return dict(self._field("durationMs"))

    @property
    def seconds(self) -> float:
        return self.spark_ms["triggerExecution"] / 1000

    @property
    def offsets(self) -> list[str]:
        """Up to where each source was read."""
        return [source.endOffset for source in self._field("sources")]

    @property
    def predicted_tuples(self) -> int | None:
        """Tuples in state by the cost models."""
        predicted: Mapping[str, int] = self.counters.get("predicted", {})
        return predicted.get("stored")

    @cached_property
    def operators(self) -> dict[str, dict[str, Any]]:
        """Counters of the further operators of the query: joins before the last one, groups behind it."""
        out: dict[str, dict[str, Any]] = {}
        for name in self._field("observedMetrics"):
            operator = (unnumbered(name) or "").removeprefix(METRICS).removeprefix("_")
            found = BatchSummary.of(self.progress, metrics=name) if operator else None
            if found is not None:
                out[operator if operator not in out else name.removeprefix(f"{METRICS}_")] = found.counters
        return out

    def rows_out(self, *, grouped: bool) -> int:
        """Rows that came out of the last operator."""
        groups = self.operators.get("groups")
        out: int = groups["groups"] if groups else self.counters["groups" if grouped else "results"]
        return out

    def malformed(self, streams: Iterable[str]) -> int:
        """Messages of these streams that could not be read as rows."""
        found = (self._field("observedMetrics").get(f"{METRICS}_malformed_{name}") for name in streams)
        return sum(row["messages"] for row in found if row is not None)

    def _field(self, name: str) -> Any:
        return self.progress[name] if isinstance(self.progress, Mapping) else getattr(self.progress, name)


def new_batches(progress: Iterable[Any], last: int) -> list[BatchSummary]:
    """Summaries of the batches after number `last`. A query without input reports its last batch again."""
    out: list[BatchSummary] = []
    for p in progress:
        summary = BatchSummary.of(p) if p.batchId > (out[-1].number if out else last) else None
        if summary is not None:
            out.append(summary)
    return out
