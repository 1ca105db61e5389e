"""Measures of the runs of a case: medians and spreads over steady batches, and ratios between contenders.

Results are kept as plain dictionaries, as in `results/spark.json`: a case has `runs`, a run has `batches`.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

CaseResults = dict[str, Any]
Run = dict[str, Any]
Statistic = Callable[[Sequence[Run]], float | None]


def runs_of(case: CaseResults, contender: str, repetition: int | None = None) -> list[Run]:
    """The finished runs of a contender, of one repetition or of all."""
    return [
        run
        for run in case["runs"]
        if run["contender"] == contender and "error" not in run and repetition in (None, run["repetition"])
    ]


def batch_times(runs: Iterable[Run], phase: str = "steady") -> list[float]:
    """Milliseconds of each batch of a phase, from its trigger to its commit."""
    return [b["durations"]["triggerExecution"] for run in runs for b in run["batches"] if b["phase"] == phase]


def batch_time(runs: Sequence[Run]) -> float | None:
    times = batch_times(runs)
    return median(times) if times else None


def growth(runs: Sequence[Run]) -> float | None:
    """The time of a steady batch over that of an equal batch on a small state."""
    before, after = batch_times(runs, "before"), batch_times(runs)
    return median(after) / median(before) if before and after else None


def first_result(runs: Sequence[Run]) -> float | None:
    return median(run["first_result_s"] for run in runs) if runs else None


def whole_start(runs: Sequence[Run]) -> float | None:
    return median(run["process_to_first_result_s"] for run in runs) if runs else None


def checkpoint_bytes(runs: Sequence[Run]) -> float | None:
    return median(run["checkpoint_bytes"] for run in runs) if runs else None


def state(runs: Sequence[Run], field: str) -> float | None:
    """`state_rows` or `state_bytes` after the last steady batch, as each contender reports them itself."""
    return median(run["batches"][-1][field] for run in runs) if runs else None


def best_of(case: CaseResults, peers: Sequence[str], statistic: Statistic, repetition: int | None) -> float | None:
    """The smallest value among several peers: to beat a family is to beat its best."""
    values = [statistic(runs_of(case, peer, repetition)) for peer in peers]
    return min((v for v in values if v is not None), default=None)


def ratio(
    case: CaseResults, over: Sequence[str], under: Sequence[str], statistic: Statistic, repetition: int | None = None
) -> float | None:
    top, bottom = (best_of(case, names, statistic, repetition) for names in (over, under))
    return top / bottom if top is not None and bottom else None


def repetitions(case: CaseResults) -> list[int]:
    return sorted({run["repetition"] for run in case["runs"]})
