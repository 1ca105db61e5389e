"""A healthy run leaves nothing on standard error that looks like trouble; an error is reported once."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from watersmeet.spark.runtime import daemon

ROOT = Path(__file__).parents[2]
#: The example of the README, a limit that leaves workers writing, new folders of results, and a missing column.
SCRIPT = """
import sys, tempfile
from examples import first_join
import watersmeet as wm

first_join.main()
spark = wm.session(master="local[2]")
home = tempfile.TemporaryDirectory()
for n in "ab":
    spark.range(5).selectExpr("id AS k", f"timestamp_micros(id) AS {n}").write.parquet(f"{home.name}/{n}")
reads = {n: spark.readStream.schema(f"k long, {n} timestamp").parquet(f"{home.name}/{n}") for n in "ab"}
joined = wm.join(*(wm.stream(df, time=n, window="1 second", name=n) for n, df in reads.items()), on="k")
for _ in range(2):
    wm.write(
        joined, checkpoint=f"{home.name}/checkpoint", results=f"{home.name}/results", trigger={"availableNow": True}
    ).awaitTermination()
spark.range(0, 3_000_000, 1, 2).mapInArrow(lambda rows: rows, "id bigint").limit(1).count()
print("BAD COLUMN", file=sys.stderr, flush=True)
spark.range(1).select("nope")
"""
#: A worker of Spark's own daemon, which looks up data sources, finds its driver gone. Ours is silent then.
SPARKS_OWN = re.compile(
    r'Traceback \(most recent call last\):\n(?: +File "[^\n]*pyspark/daemon\.py"[^\n]*\n)+BrokenPipeError: [^\n]*\n'
)


@pytest.mark.spark
@pytest.mark.more
def test_a_healthy_run_is_quiet_and_a_bad_column_is_reported_once() -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    healthy, _, bad = SPARKS_OWN.sub("", ran.stderr).partition("BAD COLUMN\n")
    assert "teapot" in ran.stdout
    for noise in ("Traceback", "Exception", "BrokenPipeError", "ERROR", "doesn't contain a value"):
        assert noise not in healthy, healthy
    assert len(healthy.splitlines()) < 40, healthy
    assert bad.startswith("Traceback"), bad
    assert bad.count("[UNRESOLVED_COLUMN") == 1, bad


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # as Spark's daemon leaves it
def test_a_worker_whose_socket_is_closed_ends_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    mine, theirs = socket.socketpair()

    def worker(sock: socket.socket, authenticated: bool) -> int:
        out = os.fdopen(os.dup(sock.fileno()), "wb", 65536)
        out.write(b"rows")
        out.flush()  # and again when it is dropped
        return 0

    hook = sys.unraisablehook
    try:
        assert daemon.quiet(worker)(mine, True) == 0
        theirs.close()
        assert daemon.quiet(worker)(mine, True) == 1
        assert capfd.readouterr().err == ""
    finally:
        sys.unraisablehook = hook
        mine.close()


def test_a_worker_that_fails_otherwise_is_reported() -> None:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        raise ZeroDivisionError("a mistake")

    hook = sys.unraisablehook
    try:
        with socket.socket() as one, pytest.raises(ZeroDivisionError, match="a mistake"):
            daemon.quiet(worker)(one, True)
    finally:
        sys.unraisablehook = hook
