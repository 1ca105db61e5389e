"""What a run tells: a line for each batch, and a sum at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console

import watersmeet as wm


class Progress(Protocol):
    """Of Spark's progress of a batch, what is told."""

    @property
    def batchId(self) -> int: ...  # noqa: N802  # Spark's names
    @property
    def durationMs(self) -> dict[str, int]: ...  # noqa: N802
    @property
    def observedMetrics(self) -> dict[str, Any]: ...  # noqa: N802


class Running(Protocol):
    """Of Spark's streaming query, what is asked."""

    @property
    def status(self) -> dict[str, Any]: ...
    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802
    def awaitTermination(self, timeout: int | None = None) -> bool | None: ...  # noqa: N802
    def stop(self) -> None: ...


#: Counters that are summed up over the batches.
SUMMED = ("rows_in", "results", "groups", "late", "violations")


@dataclass
class Tally:
    """The batches so far, summed up."""

    streams: Sequence[str]
    last: int = -1
    batches: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*SUMMED, "malformed"), 0))
    now: dict[str, Any] = field(default_factory=dict)  # counters of the last batch

    def update(self, progress: Iterable[Any], console: Console | None = None) -> None:
        """Take in batches that are new, and tell them. A query without input reports its last batch again."""
        for p in progress:
            counted = wm.counters(p)
            if p.batchId <= self.last or not counted:
                continue
            self.last = p.batchId
            self.batches += 1
            self.now = counted
            for name in SUMMED:
                self.sums[name] += counted.get(name, 0)
            self.sums["malformed"] += sum(self._malformed(p))
            if console is not None:
                console.print(self._line(p))

    def _malformed(self, progress: Progress) -> list[int]:
        told = (progress.observedMetrics.get(f"watersmeet_malformed_{name}") for name in self.streams)
        return [row["messages"] for row in told if row is not None]

    def _line(self, progress: Progress) -> str:
        now = self.now
        parts = [f"{now['rows_in']:,} rows in", f"{now.get('groups') or now['results']:,} out"]
        parts += [f"{now[name]:,} {name}" for name in ("late", "violations") if now[name]]
        parts.append(f"{now['stored']:,} tuples in state ({now['state_bytes'] / 1e6:,.1f} MB)")
        parts.append(f"{progress.durationMs['triggerExecution'] / 1000:.1f} s")
        return f"batch {progress.batchId}: {', '.join(parts)}"

    def sum_up(self, console: Console) -> None:
        """Tell what the run came to."""
        sums = self.sums
        out = (
            f"{sums['groups']:,} groups of {sums['results']:,} results"
            if sums["groups"]
            else f"{sums['results']:,} results"
        )
        more = [f"{sums[name]:,} {name}" for name in ("late", "violations", "malformed") if sums[name]]
        kept = f"{self.now['stored']:,} tuples in state" if self.now else "nothing in state"
        console.print(f"{self.batches} batches, {sums['rows_in']:,} rows in, {', '.join([out, *more, kept])}")
