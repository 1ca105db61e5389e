"""One window join of two streams by all peers: stream processors, Spark's own join, batches, Watersmeet.

    python -m benchmarks.peers [--quick] [--only NAME] [--out DIR]
    python -m benchmarks.peers --prepare         files and environments alone, so that a run is all measuring
    python -m benchmarks.peers --redraw          tables and README again from the last results

One after the other, over the same rows, each in a process of its own and with the number of its results checked. What
is not among our dependencies gets an environment of its own on first use, which is not part of any time.
"""

import json
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress

from benchmarks import cases, command, data, peers_report
from benchmarks.cases import PEERS, Case
from benchmarks.environments import NotInstalledError, python_of
from benchmarks.spark import run_one
from lab import ROOT
from lab.measure.circumstances import circumstances
from lab.processes import measured

LONGEST_RUN = 300  # seconds; a longer run is shown as not finished


@dataclass(frozen=True)
class Peer:
    """A peer, run by `benchmarks.contenders` on Spark or by a module of `benchmarks.engines`."""

    name: str
    engine: str = ""
    variant: str = ""
    environment: str = ""  # its own, if it has one
    contender: str = ""


CONTENDERS = {
    peer.name: peer
    for peer in (
        Peer("watersmeet", contender=cases.WATERSMEET),
        Peer("spark-rocksdb", contender=cases.NATIVE_ROCKSDB),
        Peer("spark-memory", contender=cases.NATIVE_MEMORY),
        Peer("flink-rocksdb", engine="flink", variant="rocksdb", environment="flink"),
        Peer("flink-heap", engine="flink", variant="heap", environment="flink"),
        Peer("pathway", engine="pathway", environment="pathway"),
        Peer("bytewax", engine="bytewax", environment="bytewax"),
        Peer("duckdb", engine="duckdb"),
        Peer("polars", engine="polars", environment="polars"),
        Peer("kernel", engine="kernel"),
    )
}


def texts_of(case: Case, files: Path) -> Path:
    """The rows as CSV, two files a stream, for peers that do not read Parquet; with headings for some."""
    folder = files.with_name(files.name + "-csv")
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    for stream in case.streams:
        for part in range(data.FILES_PER_BATCH):
            tables = [pq.read_table(f) for f in sorted((files / stream).glob(f"*-{part}.parquet"))]
            rows = pa.concat_tables(tables)
            ms = rows.column(1).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
            plain = pa.table({"k": rows.column(0), "ms": ms, "v": rows.column(2).cast(pa.float64())})
            for place, heading, what in (
                ("", False, plain),
                ("headed", True, plain),
                ("little", False, plain[:20_000]),
            ):
                path = unfinished / place / stream / f"{part}.csv"
                path.parent.mkdir(parents=True, exist_ok=True)
                csv.write_csv(what, path, csv.WriteOptions(include_header=heading))
    unfinished.rename(folder)
    return folder


def run(peer: Peer, case: Case, quick: bool) -> dict[str, Any]:
    """One peer's rows, seconds and results, and the spans of wall time that were measured; or the error."""
    began = time.monotonic()
    outcome = _on_spark(peer, case, quick) if peer.contender else _engine(peer, case)
    return {"peer": peer.name} | outcome | {"process_s": round(time.monotonic() - began, 1)}


def _on_spark(peer: Peer, case: Case, quick: bool) -> dict[str, Any]:
    """Steady batches alone are timed; results are those of all."""
    outcome = run_one(peer.contender, case.name, quick)
    if "error" in outcome:
        return {"error": f"did not finish (reason in {case.name}-{peer.contender}.log)"}
    steady = [b for b in outcome["batches"] if b["phase"] == "steady"]
    return {
        "rows": sum(b["rows"] for b in steady),
        "seconds": sum(b["durations"]["triggerExecution"] for b in steady) / 1000,
        "results": outcome["results"],
        "state_rows": max(b["state_rows"] for b in steady),
        "version": "",
        "spans": [(b["began"], b["ended"]) for b in steady],
    }


def _engine(peer: Peer, case: Case) -> dict[str, Any]:
    try:
        python = python_of(peer.environment) if peer.environment else Path(sys.executable)
    except NotInstalledError as reason:
        return {"error": str(reason), "not_installed": True}
    files = data.make(case)
    state = Path(tempfile.mkdtemp(prefix=peer.name, dir=data.scratch("checkpoints")))
    program = [python, "-m", f"benchmarks.engines.{peer.engine}", files, texts_of(case, files), state]
    program += [data.expected_results(files), f"--variant={peer.variant}"]
    log = data.scratch("logs") / f"peers-{peer.name}.log"
    own = {"PYTHONPATH": str(ROOT), "PATHWAY_THREADS": "2"} if peer.environment else {}
    try:
        outcome = measured([str(part) for part in program], log, longest=LONGEST_RUN, environment=own)
    finally:
        shutil.rmtree(state, ignore_errors=True)
    if "error" in outcome:
        return {"error": f"did not finish, or not within {LONGEST_RUN} s (reason in {log.name})"}
    ended = outcome.pop("ended")
    return outcome | {"spans": [(ended - outcome["seconds"], ended)]}


def prepare(names: list[str], case: Case, console: Console) -> None:
    """Create files and environments unless they exist."""
    texts_of(case, data.make(case))
    for name in dict.fromkeys(CONTENDERS[name].environment for name in names if CONTENDERS[name].environment):
        console.print(f"environment of {name} …")
        try:
            python_of(name)
        except NotInstalledError as reason:
            console.print(f"[yellow]{reason}")


def run_all(names: list[str], case: Case, quick: bool, console: Console) -> dict[str, Any]:
    prepare(names, case, console)
    files = data.make(case)
    about = {"about": case.about, "quick": quick, "rows": case.rows, "expected": data.expected_results(files)}
    found: dict[str, Any] = about | circumstances() | {"runs": []}
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=len(names))
        for name in names:
            progress.update(bar, description=name)
            found["runs"].append(run(CONTENDERS[name], case, quick))
            if "error" in found["runs"][-1]:
                progress.console.print(f"[red]{name}: {found['runs'][-1]['error']}")
            progress.advance(bar)
    return found


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    command.publish("peers", peers_report.markdown(results), peers_report.tables(results), folder, console)


def main() -> None:
    parser = command.parser("peers", __doc__, "a twentieth of the data")
    parser.add_argument(
        "--only", action="append", choices=CONTENDERS, metavar="NAME", help=f"of {', '.join(CONTENDERS)}"
    )
    parser.add_argument("--prepare", action="store_true", help="make files and environments, and measure nothing")
    options = parser.parse_args()
    folder = command.folder_of(options, incomplete=bool(options.only))
    stored, console = folder / "peers.json", Console()
    case, names = PEERS.quick() if options.quick else PEERS, options.only or list(CONTENDERS)
    if options.prepare:
        prepare(names, case, console)
        return
    if not options.redraw:
        results = run_all(names, case, options.quick, console)
        stored.write_text(json.dumps(results, indent=1))
    write(json.loads(stored.read_text()), folder, console)


if __name__ == "__main__":
    main()
