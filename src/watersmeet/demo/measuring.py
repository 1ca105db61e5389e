"""What a running query tells about itself, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import watersmeet as wm

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


@dataclass(frozen=True)
class Batch:
    """One micro-batch."""

    number: int
    rows: int
    results: int
    late: int
    stored: int  # tuples in state after the batch
    state_bytes: int
    seconds: float
    stream_time: tuple[int, ...]  # microseconds up to which each source has been read
    predicted: int | None = None  # tuples in state, by the cost models

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> Batch:
        counters = wm.counters(progress)
        return cls(
            number=progress.batchId,
            rows=progress.numInputRows,
            results=counters["results"],
            late=counters["late"],
            stored=counters["stored"],
            state_bytes=counters["state_bytes"],
            seconds=progress.durationMs["triggerExecution"] / 1000,
            stream_time=tuple(json.loads(source.endOffset)["micros"] for source in progress.sources),
            predicted=counters.get("predicted", {}).get("stored"),
        )


@dataclass
class Run:
    """The batches so far."""

    batches: list[Batch] = field(default_factory=list)

    def update(self, progress: Iterable[StreamingQueryProgress]) -> None:
        """Take in the batches that are new; a query without input reports its last batch again."""
        last = self.batches[-1].number if self.batches else -1
        self.batches += [Batch.of(p) for p in progress if p.batchId > last and p.numInputRows > 0]

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def results(self) -> int:
        return sum(batch.results for batch in self.batches)

    @property
    def late(self) -> int:
        return sum(batch.late for batch in self.batches)
