"""Runs of the window joins over circular buffers: nested loops, hash with buckets, invalidation strategies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from experiments.experiment import Run
from experiments.gatherer import follow
from lab.measure.claims import Found
from watersmeet.cost import binary
from watersmeet.cost.calibrate import fit
from watersmeet.cost.parameters import SCAN, Statistics
from watersmeet.cost.work import Constants, Work
from watersmeet.joins.baselines.tuple_at_a_time import INVALIDATION, RunningTupleAtATime
from watersmeet.state.keys import Int64s
from watersmeet.workload.several import Several

WINDOW = 30.0  # seconds, of both streams


class Searching(RunningTupleAtATime):
    """The join without result rows: pairs are found and counted only."""

    def _found(self, out: Int64s) -> Iterator[pa.Table]:
        self.counters.results += out.shape[1]
        yield from ()


@dataclass(frozen=True)
class Setting:
    """Two streams and a join of them; one bucket is the nested-loop join, which keeps nothing stale."""

    rates: tuple[float, float]
    distinct: int = 100
    buckets: int = 100
    invalidation: str = "probe_insert"
    forming: bool = False  # results are formed, not only counted
    seconds: float = WINDOW  # measured as one batch, after as many that are not measured
    seed: int = 1

    def run(self) -> tuple[float, dict[str, int]]:
        """CPU seconds of the timed part, which begins when the windows are full, and what was counted in it."""
        load = Several(self.rates, (WINDOW, WINDOW), (self.distinct,) * 2, self.seed)
        kind = RunningTupleAtATime if self.forming else Searching
        strategy = "all" if self.buckets == 1 else self.invalidation
        join = kind(load.query, self.buckets, strategy, None)
        steps = load.steps(2 * self.seconds, self.seconds)
        return follow(join, steps, batch=self.seconds, sample=self.seconds).since_first()

    def work(self) -> Work:
        """The cost of a second of it by equations 1 and 2."""
        buckets = SCAN if self.buckets == 1 else float(self.buckets)
        a, b = (Statistics(n, r, WINDOW, self.distinct, buckets=buckets) for n, r in zip("ab", self.rates, strict=True))
        return binary.nested_loops(a, b) if self.buckets == 1 else binary.hashed(a, b)


def measure(run: Run, settings: dict[str, Setting], repetitions: int) -> Found:
    """Every setting in turns; the counts of one run, the CPU seconds of all."""
    Setting((50, 50), seconds=WINDOW).run()  # loads the kernels
    counts: Found = {}
    times: Found = {name: [] for name in settings}
    for name, setting in run.steps([item for _ in range(repetitions) for item in settings.items()]):
        seconds, counted = setting.run()
        times[name].append(seconds)
        counts[name] = {k: counted[k] for k in ("rows_in", "probed", "results", "inserted", "expired", "checked")}
    return {"counts": counts, "times": times}


def prices(found: Found, settings: dict[str, Setting]) -> list[float]:
    """Seconds that the equations predict for each setting, with constants fitted to the counted work of all of them."""
    samples = []
    for name in settings:
        work = Work.counted(found["counts"][name], scans=True)
        samples.append((work, sorted(found["times"][name])[len(found["times"][name]) // 2]))
    constants = fit(samples, Constants())
    return [(constants.price(s.work()) * s.seconds + constants.batch) / 1e9 for s in settings.values()]


# ---------------------------------------------------------------- figures

RATES = (100, 200, 500, 1000, 2000)
BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
KEYS = (10, 100, 1000)
SHARED = (10, 30, 100, 300, 1000)


def rates_4(run: Run) -> dict[str, Setting]:
    """Stream a's rate is swept, stream b's stays."""
    part = run.size(1, 5)
    kinds = {
        "nested loops": (1, False),
        "hash": (100, False),
        "nested loops, formed": (1, True),
        "hash, formed": (100, True),
    }
    return {
        f"{name} {rate}": Setting((rate / part, 1000 / part), 100, buckets, forming=forming, seed=run.seed)
        for name, (buckets, forming) in kinds.items()
        for rate in RATES
    }


def run_4(run: Run) -> Found:
    settings = rates_4(run)
    found = measure(run, settings, run.size(3, 1))
    searched = {name: s for name, s in settings.items() if not s.forming}
    part = run.size(1, 5)
    found["counts"]["rates"] = [r / part for r in RATES]
    found["times"]["equations"] = dict(zip(searched, prices(found, searched), strict=True))
    return found


def run_56(run: Run) -> Found:
    rate = run.size(1000.0, 200.0)
    settings = {
        f"{keys} {buckets}": Setting((rate, rate), keys, buckets, seed=run.seed) for keys in KEYS for buckets in BUCKETS
    }
    found = measure(run, settings, run.size(3, 1))
    found["times"]["equations"] = dict(zip(settings, prices(found, settings), strict=True))
    return found


def run_7(run: Run) -> Found:
    seconds = run.size(10, 2) * WINDOW
    settings = {
        f"{strategy} {buckets}": Setting((200, 200), 1000, buckets, strategy, seconds=seconds, seed=run.seed)
        for strategy in INVALIDATION
        for buckets in SHARED
    }
    return measure(run, settings, run.size(5, 1))


def run_8(run: Run) -> Found:
    """Occupancy of a stream with 100 times the rate of the other."""
    fast = run.size(1000.0, 200.0)
    load = Several((fast, fast / 100), (WINDOW, WINDOW), (100, 100), run.seed)
    counts: Found = {"rates": list(load.rates)}
    for strategy in run.steps(list(INVALIDATION)):
        join = Searching(load.query, 100, strategy, None)
        join.sample(2_000_000)
        follow(join, load.steps(run.size(180.0, 90.0), WINDOW), batch=WINDOW, sample=WINDOW)
        at, a, b = (list(column) for column in zip(*join.occupancy, strict=True))
        counts[strategy] = {"at": [t / 1e6 for t in at], "fast": a, "slow": b}
        statistics = [Statistics(n, r, WINDOW, 100, buckets=100) for n, r in zip("ab", load.rates, strict=True)]
        counts[strategy]["predicted"] = load.rates[0] * WINDOW + 100 * binary.stale_tuples(
            statistics[0], statistics[1], strategy
        )
    return {"counts": counts, "times": {}}
