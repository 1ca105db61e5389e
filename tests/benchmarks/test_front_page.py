"""README and the page of the benchmarks: no longer than they may be, and with the numbers of the result files."""

import json
import re
from statistics import median

import pytest

pytest.importorskip("rich")

from benchmarks import measures, nexmark
from lab import ROOT

README = (ROOT / "README.md").read_text()
ROCKSDB, IN_MEMORY = ("native-rocksdb", "native-rocksdb-v4"), ("native-memory",)


def measured(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def cells(begin):
    """The cells of README's row that begins so: Watersmeet's, Spark's, Flink's."""
    row = next(line for line in README.splitlines() if line.startswith(f"| {begin}"))
    return [cell.strip() for cell in row.strip("| ").split(" | ")[1:]]


@pytest.mark.parametrize(("page", "most"), [("README.md", 81), ("benchmarks/README.md", 150)])
def test_the_pages_are_short(page, most):
    assert len((ROOT / page).read_text().splitlines()) <= most


def test_rows_a_second_are_those_of_the_peers():
    results = measured("peers")

    def speed(peer):
        return median(run["rows"] / run["seconds"] for run in results["runs"] if run["peer"] == peer)

    def thousands(number):
        return f"{number / 1000:.0f} k"

    ours = speed("watersmeet")
    assert cells("a window join") == [
        f"{thousands(ours)} ({thousands(ours / results['machine']['cores'])} a core)",
        f"{thousands(speed('spark-rocksdb'))} RocksDB, {thousands(speed('spark-memory'))} in memory",
        f"{thousands(speed('flink-rocksdb'))} RocksDB, {thousands(speed('flink-heap'))} heap",
    ]


@pytest.mark.parametrize(
    ("row", "statistic", "unit", "name"),
    [("a steady batch of 200 k", measures.batch_time, 1000, "s"), ("… bytes", measures.checkpoint_bytes, 1e6, "MB")],
)
def test_a_steady_batch_is_that_of_the_best_variants(row, statistic, unit, name):
    case = measured("spark")["cases"]["steady-200k"]
    ours, rocksdb, memory = (
        measures.best_of(case, of, statistic, None) / unit for of in (("watersmeet",), ROCKSDB, IN_MEMORY)
    )
    assert cells(row)[1] == f"{rocksdb:.1f} {name} RocksDB, {memory:.1f} {name} in memory"
    shown = re.fullmatch(rf"(\d+\.(\d+)) {name}", cells(row)[0])
    assert shown is not None
    assert shown[1] == f"{ours:.{len(shown[2])}f}"


def test_rows_in_state_are_those_of_nexmark():
    runs = {run["contender"]: run for run in measured("nexmark")["queries"]["q4"]["runs"]}
    ours, *spark = (nexmark.state(runs[name], "state_rows") for name in ("watersmeet", "native-memory", *ROCKSDB[:1]))
    assert cells("NEXMark q4")[:2] == [f"{ours / 1000:.0f} k", f"{min(spark) / 1000:.0f} k"]
