"""Toward a thousand shards: what a shard, a blob, a byte, a link and a core cost, and what follows for many of them.

    python -m benchmarks.scale [--quick] [--only PART] [--minutes N] [--out DIR]
    python -m benchmarks.scale --redraw          tables, charts and documents again from the last results

Parts keep their last results unless they run. `--minutes` is the time of the one real shard: hours show what minutes do
not. The results are shown in docs/scale.md, those of `workers` in docs/operating.md and those of `memory` in
docs/memory.md.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks import command, data, scale_charts, scale_report
from benchmarks.scale_parts import all_to_all, cost, limited_network, memory, moved_bytes, simulator_runs, workers
from benchmarks.scale_parts.simulator import PerBlob
from lab import ROOT
from lab.measure.circumstances import circumstances
from lab.measure.sections import fill
from lab.processes import measured

#: Named steps of a part; each returns one result or several.
Steps = list[tuple[str, Callable[[], Any]]]
MINUTES, QUICK_MINUTES = 2.0, 0.1
PAGES = {"workers": ROOT / "docs" / "operating.md", "memory": ROOT / "docs" / "memory.md"}
PAGE, PICTURES = ROOT / "docs" / "scale.md", ROOT / "docs" / "pictures"


def shard(quick: bool, minutes: float) -> Steps:
    program = [sys.executable, "-m", "benchmarks.scale_parts.one_shard", f"--minutes={minutes}"]
    log = data.scratch("logs") / "scale-shard.log"
    return [("the one shard", partial(measured, program, log, longest=minutes * 60 + 600))]


def blobs(quick: bool, minutes: float) -> Steps:
    return [("blobs from all to all", partial(all_to_all.run, quick))]


def moved(quick: bool, minutes: float) -> Steps:
    pairs = [(case, name) for case in moved_bytes.CASES for name in moved_bytes.CONTENDERS]
    return [(f"{case}, {name}", partial(moved_bytes.run, case, name, quick)) for case, name in pairs]


def network(quick: bool, minutes: float) -> Steps:
    names = limited_network.CONTENDERS[:1] if quick else limited_network.CONTENDERS
    return [(name, partial(_all, limited_network.run, name, quick)) for name in names]


def simulator(quick: bool, minutes: float) -> Steps:
    runs = simulator_runs.QUICK_RUNS if quick else simulator_runs.RUNS
    return [
        (f"{cores} cores, {shards} shards", partial(simulator_runs.run, cores, shards, quick)) for cores, shards in runs
    ]


def costs(quick: bool, minutes: float) -> Steps:
    return [(name, partial(cost.run, name, quick)) for name in cost.CONTENDERS]


def on_workers(quick: bool, minutes: float) -> Steps:
    return [("workers", partial(_all, workers.run, quick))]


def bounded(quick: bool, minutes: float) -> Steps:
    def of(name: str) -> dict[str, Any]:
        program = [sys.executable, "-m", "benchmarks.scale_parts.memory", name] + ["--quick"] * quick
        return {"name": name} | measured(program, data.scratch("logs") / f"scale-memory-{name}.log")

    return [(f"{name} state", partial(of, name)) for name in memory.VARIANTS]


PARTS: dict[str, Callable[[bool, float], Steps]] = {
    "shard": shard,
    "blobs": blobs,
    "bytes": moved,
    "network": network,
    "simulator": simulator,
    "cost": costs,
    "workers": on_workers,
    "memory": bounded,
}


def _all(generate: Callable[..., Any], *arguments: Any) -> list[Any]:
    return list(generate(*arguments))


def run_part(name: str, quick: bool, minutes: float, console: Console) -> dict[str, Any]:
    """The results of a part, with the circumstances."""
    steps, found = PARTS[name](quick, minutes), []
    about = {"quick": quick} | circumstances()
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=len(steps))
        for label, work in steps:
            progress.update(bar, description=f"{name}: {label}")
            outcome = work()
            found += outcome if isinstance(outcome, list) else [outcome]
            progress.advance(bar)
    return about | {"found": judged(found) if name == "simulator" else found}


def judged(found: list[Any]) -> Any:
    """The simulator's fit and predictions, or what failed."""
    failed = [outcome for outcome in found if isinstance(outcome, str)]
    if failed:
        return {"error": "; ".join(failed)}
    a_blob = all_to_all.about(0, 1_000)
    per_blob = PerBlob(a_blob["pack_us_a_shard"] / 1000, a_blob["unpack_us_a_blob"] / 1000)
    return simulator_runs.judge(found, per_blob)


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    """Tables, charts and, of whole runs, the sections of the documents."""
    whole = folder == command.RESULTS
    texts = {name: scale_report.section(name, results) for name in PARTS if name in results["parts"]}
    (folder / "scale.md").write_text("\n\n".join(texts.values()))
    pictures = PICTURES if whole else folder
    drawn = scale_charts.draw(results, pictures)
    if whole:
        for name, text in texts.items():
            shown = "".join(f"![{alt}](pictures/{file})\n\n" for part, file, alt in drawn if part == name)
            fill(PAGES.get(name, PAGE), {f"scale {name}": shown + text})
    for name in texts:
        for table in scale_report.tables(name, results):
            console.print(table.rich())
    console.print(f"Written to {folder}: scale.json, scale.md; to {pictures}: {', '.join(f for _, f, _ in drawn)}")


def main() -> None:
    parser = command.parser("scale", __doc__, "a twentieth of the data, and fewer sizes")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--minutes", type=float, help=f"of the one shard; default: {MINUTES:g}")
    options = parser.parse_args()
    folder, console = command.folder_of(options), Console()
    stored = folder / "scale.json"
    results = command.read(stored, {"parts": {}})
    if not options.redraw:
        minutes = options.minutes or (QUICK_MINUTES if options.quick else MINUTES)
        for name in options.only or PARTS:
            results["parts"][name] = run_part(name, options.quick, minutes, console)
            stored.write_text(json.dumps(results, indent=1))
    write(results, folder, console)


if __name__ == "__main__":
    main()
