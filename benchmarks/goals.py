"""What the project promises, as numbers, and whether a set of results keeps it."""

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
    SHUFFLE_IDENTITY,
    WATERSMEET,
)
from benchmarks.measures import CaseResults, Statistic

WM = (WATERSMEET,)
ROCKSDB = (NATIVE_ROCKSDB, NATIVE_ROCKSDB_V4)


@dataclass(frozen=True)
class Goal:
    """A ratio of one statistic between contenders: at least `floor` (and better `goal`), or at most `limit`."""

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
    asked: str
    measured: str
    answer: str


GOALS = (
    Goal("times faster than RocksDB, the faster format", "steady-200k", measures.batch_time, ROCKSDB, WM, 6, 10),
    Goal("times faster than the in-memory provider", "steady-200k", measures.batch_time, (NATIVE_MEMORY,), WM, 2, 3),
    Goal("times faster than the in-memory provider", "large-1.6M", measures.batch_time, (NATIVE_MEMORY,), WM, 7, 10),
    Goal(
        "times the batch of source → shuffle → Arrow identity → sink",
        "large-1.6M",
        measures.batch_time,
        WM,
        (SHUFFLE_IDENTITY,),
        limit=1.0,
    ),
    Goal(
        "times fewer checkpoint bytes than the thriftiest native join",
        "steady-200k",
        measures.checkpoint_bytes,
        NATIVE,
        WM,
        10,
    ),
    Goal("times the batch of the fastest native join", "small-1k", measures.batch_time, WM, NATIVE, limit=1.5),
    Goal(
        "times the fastest native start() → first result", "steady-200k", measures.first_result, WM, NATIVE, limit=1.5
    ),
    Goal("times the fastest native start() → first result", "small-1k", measures.first_result, WM, NATIVE, limit=1.5),
)
NOT_JUDGED = "quick, not judged"
GROWTH_LIMIT = 1.5  # of an equal batch, when the state is fifty times as large


def judge(results: dict[str, Any]) -> list[Verdict]:
    """One verdict per goal, one for the batch that must not follow the state, and one per case on the result counts."""
    cases: dict[str, CaseResults] = results["cases"]
    verdicts = [_judge(goal, cases.get(goal.case)) for goal in GOALS]
    verdicts.append(_growth(cases.get("big-state")))
    return verdicts + [_same_results(name, case) for name, case in cases.items()]


def _judge(goal: Goal, case: CaseResults | None) -> Verdict:
    value = measures.ratio(case, goal.over, goal.under, goal.statistic) if case else None
    if case is None or value is None:
        return Verdict(goal.text, goal.case, _asked(goal), "–", "not measured")
    each = (measures.ratio(case, goal.over, goal.under, goal.statistic, r) for r in measures.repetitions(case))
    around = measures.spread(v for v in each if v is not None)
    missing = [name for name in (*goal.over, *goal.under) if not measures.runs_of(case, name)]
    without = f", without {' and '.join(missing)}" if missing else ""
    measured = f"{value:.2f}" + (
        f" ({around.low:.2f}–{around.high:.2f})" if around and around.low < around.high else ""
    )
    answer = _answer(goal, value) if not case["quick"] else NOT_JUDGED
    return Verdict(goal.text, goal.case, _asked(goal), measured + without, answer)


def _asked(goal: Goal) -> str:
    if goal.limit is not None:
        return f"at most {goal.limit:g}"
    return f"floor {goal.floor:g}" + (f", goal {goal.goal:g}" if goal.goal else "")


def _answer(goal: Goal, value: float) -> str:
    if goal.limit is not None:
        return "holds" if value <= goal.limit else "does not hold"
    assert goal.floor is not None, "a goal has a floor or a limit"
    if value < goal.floor:
        return "does not hold"
    return "goal holds" if goal.goal and value >= goal.goal else "floor holds" if goal.goal else "holds"


def _growth(case: CaseResults | None) -> Verdict:
    text, asked = "times an equal batch on a small state", f"at most {GROWTH_LIMIT:g}"
    value = measures.growth(measures.runs_of(case, WATERSMEET)) if case else None
    if case is None or value is None:
        return Verdict(text, "big-state", asked, "–", "not measured")
    answer = "holds" if value <= GROWTH_LIMIT else "does not hold"
    return Verdict(text, "big-state", asked, f"{value:.2f}", NOT_JUDGED if case["quick"] else answer)


def _same_results(name: str, case: CaseResults) -> Verdict:
    """Every join that was started must have finished and found exactly the pairs that the definition gives."""
    started = [run for run in case["runs"] if run["contender"] in JOINS]
    finished = [run for run in started if "error" not in run]
    wrong = {f"{r['contender']}: {r['results']:,}" for r in finished if r["results"] != r["expected_results"]}
    wrong |= {f"{run['contender']}: failed" for run in started if "error" in run}
    text, asked = "results, of every join alike", " / ".join({f"{r['expected_results']:,}" for r in finished}) or "–"
    if not started:
        return Verdict(text, name, asked, "–", "not measured")
    missing = [join for join in case["joins"] if join not in {run["contender"] for run in started}]
    without = f", without {' and '.join(missing)}" if missing else ""
    measured = ("; ".join(sorted(wrong)) or asked) + without
    return Verdict(text, name, asked, measured, "does not hold" if wrong else "holds")
