"""Output of a run: a line for each batch, and totals at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console

if TYPE_CHECKING:
    from watersmeet.spark.progress.summary import BatchSummary


class Running(Protocol):
    """The part of Spark's StreamingQuery that is used here."""

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
    """Totals over the batches so far."""

    streams: Sequence[str]
    last: int = -1
    batches: int = 0
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*SUMMED, "malformed"), 0))
    now: BatchSummary | None = None  # the last batch

    def update(self, progress: Iterable[Any], console: Console | None = None) -> None:
        """Add the batches that are new, and print a line for each."""
        from watersmeet.spark.progress.summary import new_batches

        for batch in new_batches(progress, self.last):
            self.last = batch.number
            self.batches += 1
            self.now = batch
            for name in SUMMED:
                self.sums[name] += batch.count(name)
            self.sums["malformed"] += batch.malformed(self.streams)
            if console is not None:
                console.print(_line(batch))

    def sum_up(self, console: Console) -> None:
        """Print the totals of the run."""
        sums = self.sums
        out = (
            f"{sums['groups']:,} groups of {sums['results']:,} results"
            if sums["groups"]
            else f"{sums['results']:,} results"
        )
        more = [f"{sums[name]:,} {name}" for name in ("late", "violations", "malformed") if sums[name]]
        kept = f"{self.now.count('stored'):,} tuples in state" if self.now else "nothing in state"
        console.print(f"{self.batches} batches, {sums['rows_in']:,} rows in, {', '.join([out, *more, kept])}")


def _line(batch: BatchSummary) -> str:
    rows_out = batch.rows_out(grouped=bool(batch.count("groups")))
    parts = [f"{batch.count('rows_in'):,} rows in", f"{rows_out:,} out"]
    parts += [f"{batch.count(name):,} {name}" for name in ("late", "violations") if batch.count(name)]
    parts.append(f"{batch.count('stored'):,} tuples in state ({batch.count('state_bytes') / 1e6:,.1f} MB)")
    parts.append(f"{batch.seconds:.1f} s")
    return f"batch {batch.number}: {', '.join(parts)}"
