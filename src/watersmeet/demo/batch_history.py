"""The progress of a running query, batch by batch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from watersmeet.spark.progress.summary import BatchSummary, new_batches

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress


@dataclass(frozen=True)
class Batch:
    """One micro-batch."""

    number: int
    rows: int  # input rows of the join, as on the live page: rows filtered out before it do not count
    results: int
    late: int
    stored: int  # tuples in state after the batch
    state_bytes: int
    seconds: float
    stream_time: tuple[int, ...]  # microseconds up to which each source has been read
    predicted: int | None = None  # tuples in state, by the cost models

    @classmethod
    def of(cls, batch: BatchSummary) -> Batch:
        return cls(
            number=batch.number,
            rows=batch.count("rows_in"),
            results=batch.count("results"),
            late=batch.count("late"),
            stored=batch.count("stored"),
            state_bytes=batch.count("state_bytes"),
            seconds=batch.seconds,
            stream_time=tuple(json.loads(offset)["micros"] for offset in batch.offsets),
            predicted=batch.predicted_tuples,
        )


@dataclass
class Run:
    """The batches so far."""

    batches: list[Batch] = field(default_factory=list)

    def update(self, progress: Iterable[StreamingQueryProgress]) -> None:
        """Take in the batches that are new."""
        last = self.batches[-1].number if self.batches else -1
        self.batches += map(Batch.of, new_batches(progress, last))

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def results(self) -> int:
        return sum(batch.results for batch in self.batches)

    @property
    def late(self) -> int:
        return sum(batch.late for batch in self.batches)
