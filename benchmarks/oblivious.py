"""Window-oblivious joins: size and loss of every buffer, results of windows of equal memory, costs of strategies.

    python -m benchmarks.oblivious [--quick] [--only CASE] [--out DIR]
    python -m benchmarks.oblivious --redraw          tables, picture and documents again from the last results

All on the streams of `lab.joins.window_oblivious`. Accuracy, tuples and latencies are counted in the streams' own
time, so they are the same on any machine; CPU seconds are not. What can be chosen is chosen on other seeds than it is
reported on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks import oblivious_report
from benchmarks.command import RESULTS
from lab.joins.window_oblivious import (
    SECONDS,
    BareEquation,
    Outcome,
    arrivals,
    compare,
    depths,
    fixed_windows,
    follow,
    optimum,
    possible,
    query,
    run,
    streams,
)
from watersmeet.joins import Join, plan
from watersmeet.joins.wo_join.key_ranks import running
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.joins.wo_join.retention import LearnedBuffers
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import TimeWindow
from watersmeet.state.statistics.fading_histogram import MatchedDistances
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.scrambled import Scrambled, cut

#: Seeds for the choice of parameters, and seeds for the report.
CHOSEN_ON, REPORTED_ON = range(1000, 1010), range(30)
#: Seconds of a batch when latencies are measured.
FINE = 0.2

Found = dict[str, list[Outcome]]


def tuning(seeds: Sequence[int]) -> dict[str, Any]:
    """The learned buffer with several shares to lose and memories: the smallest that finds 99.5 % of the results."""
    tried = []
    for loss in (0.002, 0.005, 0.01):
        for memory in (2048, 4096, 8192):
            outcomes = []
            for seed in seeds:
                rows = [s.rows(SECONDS, seed=seed, stream=i) for i, s in enumerate(streams(seed))]
                buffers = LearnedBuffers("learned", [None] * 3, loss)
                buffers.matched = [MatchedDistances(loss, memory) for _ in rows]
                outcomes.append(follow(running(query(3), buffers), rows, SECONDS, 1.0))
            accuracy = float(np.median([o.accuracy for o in outcomes]))
            kept = float(np.mean([o.kept for o in outcomes]))
            tried.append({"loss": loss, "memory": memory, "accuracy": accuracy, "kept": kept})
    good = [t for t in tried if t["accuracy"] >= 0.995]
    chosen = min(good, key=lambda t: t["kept"]) if good else None
    return {"seeds": [seeds[0], seeds[-1]], "tried": tried, "chosen": chosen}


def pairs(seeds: Sequence[int]) -> Found:
    """Two streams of one scrambling factor, and equation 7 beside the optimum that backtracking finds."""
    out: Found = {}
    for seed in seeds:
        k = int(np.random.default_rng((seed, 2)).integers(1, 501))
        rows = [Scrambled(k).rows(SECONDS, seed=seed, stream=i) for i in range(2)]
        for name, options in {
            "sound, measured": {},
            "learned": {"buffer": "learned"},
            "equation 7, known": {"buffer": "eq7", "scrambling": (k, k)},
            "equation 7, measured": {"buffer": "eq7"},
        }.items():
            out.setdefault(name, []).append(run(Join(query(2), WOJoin(**options)), rows))
        bare = running(query(2), BareEquation("eq7", (k, k)))
        out.setdefault("equation 7, known, to the letter", []).append(follow(bare, rows, SECONDS, 1.0))
        out.setdefault("optimum", []).append(Outcome(1.0, optimum(rows), 0))
    return out


def windows(seeds: Sequence[int]) -> dict[str, float]:
    """Fixed windows of as many tuples as the sound buffer keeps, and how much larger they must be."""
    share, factor = fixed_windows(seeds)
    return {"share": share, "factor": factor}


def strategies(seeds: Sequence[int]) -> dict[str, list[dict[str, float]]]:
    """A window join, and the sound buffer with tuples held back in every way: tuples in memory, seconds from the
    arrival of a result's last part until it comes out (in the streams' time), CPU seconds of the whole."""
    out: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        made = streams(seed)
        rows = [s.rows(SECONDS, seed=seed, stream=i) for i, s in enumerate(made)]
        known = tuple(s.scrambling for s in made)
        reach = int(max(depths(rows).max(axis=0)) * made[0].gap * SECOND)
        windowed = JoinQuery(tuple(replace(s, window=TimeWindow(reach), delay=0) for s in query(3).streams))
        joins = {"window join": plan(windowed, "general_lazy").start()}
        for strategy in ("none", "dbf", "msf", "hybrid"):
            joins[strategy] = WOJoin(scrambling=known, strategy=strategy).start(query(3))
        for name, join in joins.items():
            out.setdefault(name, []).append(_latency(join, rows))
    return out


def _latency(join: Any, rows: Sequence[Any]) -> dict[str, float]:
    kept, waited, cpu, results = [], [], 0.0, 0
    for n, step in enumerate(cut(rows, SECONDS, FINE)):
        batches = arrivals(step, join.query)
        began = time.process_time()
        tables = list(join.step(batches))
        cpu += time.process_time() - began
        join.arrivals = []
        kept.append(join.counters.stored + join.counters.deferred)
        for table in tables:
            newest = np.max([table.column(f"at_{i}").to_numpy() for i in range(len(rows))], axis=0)
            waited.append((n + 1) * FINE - newest / SECOND)
            results += table.num_rows
    waits = np.concatenate(waited)
    return {
        "kept": float(np.mean(kept)),
        "most": float(np.max(kept)),
        "mean_s": float(waits.mean()),
        "worst_s": float(waits.max()),
        "cpu_s": cpu,
        "share": results / max(1, possible(rows)),
    }


def _plain(found: Found) -> dict[str, list[dict[str, Any]]]:
    return {name: [asdict(o) for o in runs] for name, runs in found.items()}


#: Cases by name; each takes the seeds for the report.
CASES: dict[str, Callable[[Sequence[int]], Any]] = {
    "tuning": lambda seeds: tuning(CHOSEN_ON[: max(2, len(seeds) // 3)]),
    "buffers": lambda seeds: _plain(compare(seeds)),
    "steady": lambda seeds: _plain(compare(seeds[:10], steady=True)),
    "pairs": lambda seeds: _plain(pairs(seeds[:10])),
    "windows": lambda seeds: windows(seeds[:10]),
    "strategies": lambda seeds: strategies(seeds[:4]),
}


def main() -> None:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two seeds, to see that it runs")
    parser.add_argument("--only", choices=CASES, help="one case; the others stay as they are")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are written (%(default)s)")
    parser.add_argument("--redraw", action="store_true", help="run nothing")
    options = parser.parse_args()
    path, console = options.out / "window_oblivious.json", Console()
    results = json.loads(path.read_text()) if path.exists() else {}
    for name, case in CASES.items():
        if options.redraw or options.only not in (None, name):
            continue
        console.print(f"{name} …")
        results[name] = case(REPORTED_ON[: 2 if options.quick else 30])
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1))
    for written in oblivious_report.write(results, options.out, documents=options.out == RESULTS and not options.quick):
        console.print(f"wrote {written}")


if __name__ == "__main__":
    main()
