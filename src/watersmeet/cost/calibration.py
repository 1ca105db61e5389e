"""Fit the constants of this machine: run every family of joins over a few loads, with counters and times.

    python -m watersmeet.cost.calibration [--quick]

The constants are stored per machine (see `machine.constants_path`); from then on the optimiser uses them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.cost.calibrate import fit
from watersmeet.cost.machine import DEFAULT, Machine, families, save
from watersmeet.cost.measured_parameters import LIST_BYTES
from watersmeet.cost.work import Work
from watersmeet.joins import REGISTRY, plan
from watersmeet.joins.base import RunningJoin
from watersmeet.model.batches import Batch
from watersmeet.state.durable import log
from watersmeet.workload.steady import Steady

REPETITIONS = 3

Sample = tuple[Work, float]


@dataclass(frozen=True)
class Load:
    """A join, and the streams that it is run over."""

    algorithm: str
    streams: Steady
    seconds: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def scans(self) -> bool:
        """Whether the tuples that it counts as probed are scanned."""
        return REGISTRY[self.algorithm].traits.family == "nested_loop" or self.options.get("index") == "scan"

    def samples(self) -> Iterator[Sample]:
        """Work and CPU seconds of each batch, the log included; without the first two, which load the kernels."""
        query = self.streams.query
        join = plan(query, self.algorithm, **self.options).start()
        store, header = log.MemoryStore(), log.begin(query)
        for n, batches in enumerate(self.streams.steps(self.seconds)):
            began = time.process_time()
            for _ in join.step(batches):
                pass
            seconds = time.process_time() - began
            # before the commit, which clears the arrivals
            work = work_of(self.algorithm, join, batches, scans=self.scans)
            began = time.process_time()
            header = log.commit(join, header, store)
            seconds += time.process_time() - began
            if n > 1:
                yield work, seconds


def work_of(algorithm: str, join: RunningJoin[Any], batches: Sequence[Batch], *, scans: bool) -> Work:
    """The work of the batch that a join just processed: counters, punctuations, bytes added to the state, levels."""
    punctuations = sum(b.punctuations.keys.num_rows for b in batches if b.punctuations is not None)
    counted = Work.counted(join.counters.as_dict(), scans=scans, punctuations=punctuations)
    each = ((LIST_BYTES + a.rows.nbytes / max(1, a.rows.num_rows)) * a.stored.size for a in join.arrivals)
    n, by_level = len(batches), REGISTRY[algorithm].traits.family == "general_lazy"
    return counted + Work(bytes=float(sum(each)), levels=float(n * (n - 1)) if by_level else 0.0)


def loads(quick: bool = False) -> dict[str, list[Load]]:
    """The loads of each family: few and many rows, few and many matches, short and long windows."""
    sizes = (100, 1_000) if quick else (30, 300, 3_000, 10_000)
    seconds = 6
    out: dict[str, list[Load]] = {name: [] for name in families()}
    for rate in sizes:
        for per_key in (0.2, 3.0):
            keys = max(1, round(rate * 4 / per_key))
            two = Steady((rate, rate), (4.0, 2.0), (keys, keys))
            three = Steady((rate, rate / 2, rate), (4.0, 2.0, 2.0), (keys, keys, keys))
            out["hash"].append(Load("hash", two, seconds))
            punctuated = replace(two, punctuations=max(1.0, keys / 3))
            out["hash"].append(Load("pwjoin", punctuated, seconds))
            punctuated_three = replace(three, punctuations=punctuated.punctuations)
            out["general_lazy"] += [
                Load("general_lazy", load, seconds) for load in (two, punctuated, three, punctuated_three)
            ]
            out["eager"] += [Load("eager", load, seconds, {"order": (1, 2, 0)}) for load in (three, punctuated_three)]
            if rate <= 300:
                five = Steady((rate,) * 5, (1.0, 2.0, 1.0, 2.0, 1.0), (keys,) * 5)
                out["general_lazy"].append(Load("general_lazy", five, seconds))
                out["eager"].append(Load("eager", five, seconds))
            if rate <= 1_000:
                out["nested_loop"].append(Load("nested_loop", two, seconds))
                out["eager"].append(Load("eager", two, seconds, {"index": "scan"}))
            for buckets in (16, 256):
                options = {"buckets": buckets, "invalidation": "probe_insert"}
                out["nested_loop"].append(Load("windowed_hash", two, seconds, options))
    return out


def calibrate(quick: bool = False, report: Any = lambda line: None) -> tuple[Machine, dict[str, dict[str, float]]]:
    """The constants of this machine, and how well they predict each family's batches; `report` takes a line each."""
    families, quality = {}, {}
    for name, runs in loads(quick).items():
        for load in runs[:2]:  # loads the kernels, and compiles them the first time
            for _ in load.samples():
                pass
        samples = [sample for load in runs for sample in _least(load)]
        families[name] = fit(samples, DEFAULT.of(name))
        quality[name] = _quality(samples, families[name])
        report(f"{name}: {_quality_text(quality[name])}")
    return Machine(families=families, fitted=True), quality


def _least(load: Load) -> Iterator[Sample]:
    """Work of each batch, and its shortest time of several runs: other load of the machine only adds to it."""
    for repeated in zip(*(load.samples() for _ in range(REPETITIONS)), strict=True):
        yield repeated[0][0], min(seconds for _, seconds in repeated)


def _quality(samples: list[Sample], constants: Any) -> dict[str, float]:
    """Measured seconds divided by predicted seconds: the 10th, 50th and 90th percentile of the batches."""
    ratios = sorted(seconds * 1e9 / (constants.price(work) + constants.batch) for work, seconds in samples)
    at = {name: ratios[int(share * (len(ratios) - 1))] for name, share in (("low", 0.1), ("mid", 0.5), ("high", 0.9))}
    return at | {"batches": len(samples)}


def _quality_text(q: dict[str, float]) -> str:
    return (
        f"{q['batches']:.0f} batches took {q['low']:.2f} to {q['high']:.2f} times what the constants predict "
        f"(four in five of them; median {q['mid']:.2f})"
    )


def main() -> None:
    machine, _ = calibrate("--quick" in sys.argv[1:], report=print)
    path = save(machine)
    print(f"kept in {path}" if path else "not kept: WATERSMEET_CONSTANTS is empty")


if __name__ == "__main__":
    main()
