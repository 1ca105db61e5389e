"""The project's goals, as numbers, and the verdicts on a set of results."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import measures
from benchmarks.cases import (
    JOINS,
    NATIVE,
    NATIVE_MEMORY,
    NATIVE_ROCKSDB,
    NATIVE_ROCKSDB_V4,
    PACKED_IDENTITY,
    WATERSMEET,
    WATERSMEET_WRITE,
)
from benchmarks.measures import CaseResults, Statistic
from lab.measure.claims import NOT_JUDGED, NOT_MEASURED, answer
from lab.measure.spreads import spread

WM = (WATERSMEET,)
ROCKSDB = (NATIVE_ROCKSDB, NATIVE_ROCKSDB_V4)
MEMORY, PACKED, WRITE = (NATIVE_MEMORY,), (PACKED_IDENTITY,), (WATERSMEET_WRITE,)


@dataclass(frozen=True)
class Goal:
    """A ratio of one statistic between contenders: at least `floor` or at most `limit`; what is aimed at is `goal`."""

    text: str
    case: str
    statistic: Statistic
    over: Sequence[str]
    under: Sequence[str]
    floor: float | None = None
    goal: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Verdict:
    text: str
    case: str
    required: str
    measured: str
    answer: str


ROCKSDB_TEXT = "times faster than RocksDB, the faster format"
MEMORY_TEXT = "times faster than the in-memory provider"
FIRST_TEXT = "times the fastest native start() → first result"
COLD_TEXT = "times the fastest native empty process → first result"

GOALS = (
    Goal(ROCKSDB_TEXT, "steady-200k", measures.batch_time, ROCKSDB, WM, 9, 12),
    Goal(MEMORY_TEXT, "steady-200k", measures.batch_time, MEMORY, WM, 3, 4),
    Goal(MEMORY_TEXT, "large-1.6M", measures.batch_time, MEMORY, WM, 8, 10),
    Goal("times the batch of packed-identity", "large-1.6M", measures.batch_time, WM, PACKED, goal=1.4, limit=1.8),
    Goal(MEMORY_TEXT, "strings", measures.batch_time, MEMORY, WM, 2, 3),
    Goal(ROCKSDB_TEXT, "strings", measures.batch_time, ROCKSDB, WM, 4, 6),
    Goal(MEMORY_TEXT, "dense", measures.batch_time, MEMORY, WM, 2.5, 4),
    Goal(
        "times the batch of the fastest native join", "small-1k", measures.batch_time, WM, NATIVE, goal=0.6, limit=0.85
    ),
    *(
        Goal(FIRST_TEXT, case, measures.first_result, WM, NATIVE, goal=1, limit=1.3)
        for case in ("small-1k", "steady-200k")
    ),
    *(
        Goal(COLD_TEXT, case, measures.whole_start, WM, NATIVE, goal=1, limit=1.2)
        for case in ("small-1k", "steady-200k")
    ),
    Goal(
        "times the batch of writeStream of the same join",
        "parquet-200k",
        measures.batch_time,
        WRITE,
        WM,
        goal=1.05,
        limit=1.15,
    ),
    Goal(
        "times fewer checkpoint bytes than the thriftiest native join",
        "steady-200k",
        measures.checkpoint_bytes,
        NATIVE,
        WM,
        10,
    ),
)
GROWTH_LIMIT = 1.5  # the time of an equal batch on a state fifty times as large


def judge(results: dict[str, Any]) -> list[Verdict]:
    """One verdict per goal, one on the growth of batch time with the state, and one per case on the result counts."""
    cases: dict[str, CaseResults] = results["cases"]
    verdicts = [_judge(goal, cases.get(goal.case)) for goal in GOALS]
    verdicts.append(_growth(cases.get("big-state")))
    return verdicts + [_same_results(name, case) for name, case in cases.items()]


def _judge(goal: Goal, case: CaseResults | None) -> Verdict:
    value = measures.ratio(case, goal.over, goal.under, goal.statistic) if case else None
    if case is None or value is None:
        return Verdict(goal.text, goal.case, _required(goal), "–", NOT_MEASURED)
    each = (measures.ratio(case, goal.over, goal.under, goal.statistic, r) for r in measures.repetitions(case))
    around = spread(v for v in each if v is not None)
    missing = [name for name in (*goal.over, *goal.under) if not measures.runs_of(case, name)]
    without = f", without {' and '.join(missing)}" if missing else ""
    measured = f"{value:.2f}" + (
        f" ({around.low:.2f}–{around.high:.2f})" if around and around.low < around.high else ""
    )
    judged = NOT_JUDGED if case["quick"] else _answer(goal, value)
    return Verdict(goal.text, goal.case, _required(goal), measured + without, judged)


def _required(goal: Goal) -> str:
    bound = f"at most {goal.limit:g}" if goal.limit is not None else f"floor {goal.floor:g}"
    return bound + (f", goal {goal.goal:g}" if goal.goal else "")


def _answer(goal: Goal, value: float) -> str:
    def within(bound: float) -> bool:
        return value >= bound if goal.limit is None else value <= bound

    least = goal.floor if goal.limit is None else goal.limit
    assert least is not None, "a goal has a floor or a limit"
    if not within(least) or not goal.goal:
        return answer(within(least))
    return "goal holds" if within(goal.goal) else "floor holds"


def _growth(case: CaseResults | None) -> Verdict:
    text, required = "times an equal batch on a small state", f"at most {GROWTH_LIMIT:g}"
    value = measures.growth(measures.runs_of(case, WATERSMEET)) if case else None
    if case is None or value is None:
        return Verdict(text, "big-state", required, "–", NOT_MEASURED)
    return Verdict(text, "big-state", required, f"{value:.2f}", answer(value <= GROWTH_LIMIT, quick=case["quick"]))


def _same_results(name: str, case: CaseResults) -> Verdict:
    """Every join that was started must have finished and found exactly the pairs that the definition gives."""
    started = [run for run in case["runs"] if run["contender"] in JOINS]
    finished = [run for run in started if "error" not in run]
    wrong = {f"{r['contender']}: {r['results']:,}" for r in finished if r["results"] != r["expected_results"]}
    wrong |= {f"{run['contender']}: failed" for run in started if "error" in run}
    text, required = "results, of every join alike", " / ".join({f"{r['expected_results']:,}" for r in finished}) or "–"
    if not started:
        return Verdict(text, name, required, "–", NOT_MEASURED)
    missing = [join for join in case["joins"] if join not in {run["contender"] for run in started}]
    without = f", without {' and '.join(missing)}" if missing else ""
    measured = ("; ".join(sorted(wrong)) or required) + without
    return Verdict(text, name, required, measured, answer(not wrong))
