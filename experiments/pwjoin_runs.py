"""Runs of the joins of punctuated streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.experiment import Run
from experiments.gatherer import Gatherer, follow
from lab.measure.claims import Found
from lab.measure.contender import Contender
from lab.measure.spreads import mean
from watersmeet.cost.memory import punctuated_state, steady_state
from watersmeet.cost.parameters import Statistics
from watersmeet.joins import plan
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.workload.punctuated_streams import Made, Punctuated, stream_spec

ASCENDING = ("punct-asc-100-40", "punct-asc-100-40")
MIXED = ("punct-asc-30-40", "punct-random-30-40")


OPERATORS = {
    "window join": Contender("hash", punctuations=False),
    "window join, 100 buckets": Contender("hash", {"buckets": 100}, punctuations=False),
    "PWJoin": Contender("pwjoin"),
    "PWJoin, no punctuations": Contender("pwjoin", punctuations=False),
    "PJoin": Contender("pjoin", windows=False),
}


@dataclass(frozen=True)
class Streams:
    """Two streams and their windows in seconds (None: unbounded), cut into batches of `batch` seconds."""

    patterns: tuple[str, str]
    tuples: int
    windows: tuple[float | None, float | None]
    batch: float
    gap: float = 0.01
    values: int = 15_000
    irrelevant: bool = False
    seed: int = 1

    def made(self) -> list[Made]:
        kinds = enumerate(self.patterns)
        return [
            Punctuated(p, 2 * self.seed + i, self.gap, self.values, self.irrelevant).take(self.tuples) for i, p in kinds
        ]

    def follow(self, name: str, sample: float | None = None) -> Gatherer:
        """One operator over the streams."""
        operator = OPERATORS[name]
        specs = [stream_spec(n, w if operator.windows else None) for n, w in zip("ab", self.windows, strict=True)]
        query = JoinQuery(tuple(specs))
        join = plan(query, operator.algorithm, **operator.options).start()
        cuts = [
            m.batches(s, self.batch, punctuations=operator.punctuations)
            for m, s in zip(self.made(), specs, strict=True)
        ]
        steps: Iterator[Sequence[Batch]] = zip(*cuts, strict=False)
        return follow(join, steps, batch=self.batch, sample=sample or self.batch)


def in_turns(run: Run, loads: dict[str, Streams], names: Sequence[str], repetitions: int) -> Found:
    """CPU seconds of every operator over every load, taken in turns, and the output of the last turn over CPU time."""
    for load in loads.values():  # loads or compiles the kernels before the measurement
        for name in names:
            replace(load, tuples=500).follow(name)
    counts: Found = {load: {} for load in loads}
    times: Found = {load: {name: [] for name in names} for load in loads}
    turns = [(r, load, name) for r in range(repetitions) for load in loads for name in names]
    for _, load, name in run.steps(turns):
        found = loads[load].follow(name)
        times[load][name].append(found.seconds)
        counts[load][name] = {"results": found.totals["results"], "sums": found.sums}
        times[load].setdefault("cpu", {})[name] = found.cpu
    return {"counts": counts, "times": times}


WINDOWS = (1, 5, 15)


def equation_1(made: Sequence[Made], window: float, rate: float, at: Sequence[float]) -> list[float]:
    """Tuples of both streams by equation 1 at some seconds: λT of each, less the share of its keys closed so far."""
    total = np.zeros(len(at))
    instants = np.array(at) * 1e6
    for own, other in ((made[0], made[1]), (made[1], made[0])):
        seen, closed = keys_seen(own, instants), np.searchsorted(other.closed_at, instants, side="right")
        for n, t in enumerate(at):
            stats = Statistics("b", rate, min(window, t))
            total[n] += punctuated_state(stats, closed[n] / t, t, max(float(seen[n]), 1.0))
    return [float(x) for x in total]


def keys_seen(made: Made, instants: np.ndarray) -> np.ndarray:
    """Distinct keys until each instant."""
    _, first = np.unique(made.keys, return_index=True)
    return np.searchsorted(np.sort(made.times[first]), instants, side="right")


def run_8(run: Run) -> Found:
    seeds = [run.seed + n for n in range(run.size(5, 1))]
    counts: Found = {}
    tuples = run.size(24_000, 6_000)
    for seed, window in run.steps([(s, w) for s in seeds for w in WINDOWS]):
        load = Streams(ASCENDING, tuples, (window, window), 0.5, values=run.size(400, 100), seed=seed)
        mine = counts.setdefault(str(window), {"saved": []})
        states = {name: load.follow(name, 2.0) for name in ("window join", "PWJoin")}
        half = len(states["PWJoin"].at) // 4
        kept = {name: mean(s.tuples[half:]) for name, s in states.items()}
        mine["saved"].append([kept["window join"], kept["PWJoin"]])
        assert states["window join"].sums["results"] == states["PWJoin"].sums["results"], "same results"
        if seed == run.seed:
            at = states["PWJoin"].at
            mine |= {"at": at, **{name: s.tuples for name, s in states.items()}}
            mine["equation 1"] = equation_1(load.made(), window, 1 / load.gap, at)
    return {"counts": counts, "times": {}}


def run_9(run: Run) -> Found:
    tuples = run.size(150_000, 20_000)
    loads = {
        str(window): Streams(ASCENDING, tuples, (window, window), 2.0, 0.001, run.size(2_000, 400), seed=run.seed)
        for window in (5, 15)
    }
    return in_turns(run, loads, ("window join", "window join, 100 buckets", "PWJoin"), run.size(9, 2))


def run_10(run: Run) -> Found:
    load = Streams(MIXED, run.size(800_000, 60_000), (0.5, 0.5), 0.5, 1e-5, 40_000, irrelevant=True, seed=run.seed)
    names = ("window join", "PWJoin, no punctuations", "PWJoin")
    return in_turns(run, {"irrelevant": load}, names, run.size(9, 2))


def propagated(load: Streams) -> Found:
    counts: Found = {}
    for name in ("PWJoin", "PJoin"):
        found = load.follow(name, 1.0)
        counts[name] = found.totals["propagated"]
        counts["at"] = found.at
    return {"counts": counts, "times": {}}


def run_11(run: Run) -> Found:
    tuples, values = run.size((20_000, 1_000), (5_000, 300))
    return propagated(Streams(MIXED, tuples, (1, 1), 0.5, values=values, seed=run.seed))


def run_12(run: Run) -> Found:
    patterns = ("uniform-15000", "punct-asc-30-40")
    return propagated(Streams(patterns, run.size(20_000, 5_000), (None, 5), 0.5, seed=run.seed))


def run_eq1(run: Run) -> Found:
    tuples, values = run.size((24_000, 400), (6_000, 100))
    counts: Found = {}
    for window in run.steps((5, 15)):
        load = Streams(ASCENDING, tuples, (window, window), 0.5, values=values, seed=run.seed)
        state = load.follow("PWJoin", 2.0)
        made, rate = load.made(), 1 / load.gap
        ours = [_hazard(made, window, rate, t) for t in state.at]
        plain = [2 * rate * min(window, t) for t in state.at]
        counts[f"both closing, {window} s"] = {
            "at": state.at, "measured": state.tuples, "Eq. 1": equation_1(made, window, rate, state.at),
            "hazard": ours, "λT": plain,
        }  # fmt: skip
        load = Streams(
            ("punct-asc-30-40", f"uniform-{values * 2}"),
            tuples,
            (window, window),
            0.5,
            values=values * 2,
            seed=run.seed,
        )
        state = load.follow("PWJoin", 2.0)
        made = load.made()
        instants = np.array(state.at) * 1e6
        closed, seen = np.searchsorted(made[0].closed_at, instants, side="right"), keys_seen(made[1], instants)
        one = [
            punctuated_state(Statistics("b", rate, min(window, t)), c / t, t, float(s))
            for t, c, s in zip(state.at, closed, seen, strict=True)
        ]
        plain = [rate * min(window, t) for t in state.at]
        counts[f"one closing, {window} s"] = {"at": state.at, "measured": state.stored[1], "Eq. 1": one, "λT": plain}
    return {"counts": counts, "times": {}}


def _hazard(made: Sequence[Made], window: float, rate: float, t: float) -> float:
    """Tuples of both streams by `steady_state`, from the closed keys and the keys in the window."""
    total, reach = 0.0, min(window, t)
    for own, other in ((made[0], made[1]), (made[1], made[0])):
        inside = slice(*np.searchsorted(own.times, [(t - reach) * 1e6, t * 1e6]))
        distinct = max(1, np.unique(own.keys[inside]).size)
        closed_rate = np.searchsorted(other.closed_at, t * 1e6) / t
        total += steady_state(Statistics("b", rate, reach, distinct), closed_rate)
    return total
