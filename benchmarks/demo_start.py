"""The time from `./run demo` in a fresh clone to its first row and to its end, for any commits of this repository.

    python -m benchmarks.demo_start [COMMIT ...] [--runs 1] [--cached] [--out DIR]

Each run clones the repository into a temporary folder and starts `./run demo` there, on a terminal of its own; commits
take turns. The caches of pip and uv are off, so that all packages are downloaded; with --cached they are what they are.
The first row is that of the first frame of the live view with numbers in it. Java must be installed before.
"""

import argparse
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.command import RESULTS
from lab import ROOT
from lab.measure.circumstances import circumstances
from lab.measure.sections import fill
from lab.processes import family, kill

PAGE = ROOT / "docs" / "start.md"
#: What the terminal shows, in this order, without its colours.
SIGNS = {"spark_s": re.compile("starting Spark"), "first_row_s": re.compile(r"rows read\s+[1-9]")}
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ROWS, COLUMNS = 50, 120
LONGEST = 1800  # seconds
NO_CACHES = {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}


def environment(*, cached: bool) -> dict[str, str]:
    """That of a user: nothing of the environment in which this runs."""
    own = {"PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"}
    kept = {name: value for name, value in os.environ.items() if name not in own}
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(sys.prefix)]
    return kept | {"PATH": os.pathsep.join(path), "TERM": "xterm"} | ({} if cached else NO_CACHES)


def run(repository: Path, commit: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Seconds of the demo in a fresh clone of a commit: to the start of Spark, to the first row, to the end."""
    with tempfile.TemporaryDirectory(prefix="demo-start-") as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(repository), clone], check=True)
        subprocess.run(["git", "-C", clone, "checkout", "--quiet", "--detach", commit], check=True)
        return {"commit": commit, **watch(clone, variables)}


def watch(clone: Path, variables: Mapping[str, str]) -> dict[str, float]:
    """Run `./run demo` in a clone and note when each of the signs is first shown."""
    terminal, other_end = pty.openpty()
    fcntl.ioctl(other_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began, seconds, shown = time.monotonic(), dict[str, float](), ""
    process = subprocess.Popen(
        ["./run", "demo"],
        cwd=clone,
        env=variables,
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        start_new_session=True,
    )
    os.close(other_end)
    try:
        while part := _read(terminal):
            shown += part.decode(errors="replace")
            plain = CONTROL.sub("", shown)
            for name, sign in SIGNS.items():
                if name not in seconds and sign.search(plain):
                    seconds[name] = round(time.monotonic() - began, 1)
            if time.monotonic() - began > LONGEST:
                raise AssertionError(f"the demo has not ended after {LONGEST} s:\n{plain[-2000:]}")
        code = process.wait()
    finally:
        os.close(terminal)
        if process.poll() is None:
            kill(*family(process.pid))
            process.wait()
    plain = CONTROL.sub("", shown)
    if code or seconds.keys() != SIGNS.keys():
        raise AssertionError(f"the demo ended with status {code} and showed {sorted(seconds)}:\n{plain[-2000:]}")
    return seconds | {"end_s": round(time.monotonic() - began, 1)}


def _read(terminal: int) -> bytes:
    """What the terminal shows next; nothing when the last process on it has ended."""
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux reports the other end's closing so
        return b""


def summary(results: Mapping[str, Any]) -> str:
    """What a user has to expect: the medians of the last commit that was measured."""
    runs = [one for one in results["runs"] if one["commit"] == results["runs"][-1]["commit"]]
    first, end = (median(one[name] for one in runs) for name in ("first_row_s", "end_s"))
    cores = results["machine"]["cores"]
    caches = "what pip had in its cache" if results["cached"] else "all packages downloaded"
    return (
        f"In a fresh clone on {cores} cores, with {caches}, the first row came after {first:.0f} s and the end after "
        f"{end:.0f} s ({results['date']}, `./run bench demo_start`); a slow network adds to both."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo_start", description=__doc__.splitlines()[0])
    parser.add_argument("commits", nargs="*", default=["HEAD"], metavar="COMMIT", help="the last is the one to quote")
    parser.add_argument("--runs", type=int, default=1, help="of each commit")
    parser.add_argument("--cached", action="store_true", help="let pip and uv use their caches")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    name = ["git", "-C", str(ROOT), "rev-parse", "--short=12"]
    commits = [
        subprocess.run([*name, f"{c}^{{commit}}"], check=True, capture_output=True, text=True).stdout.strip()
        for c in options.commits
    ]
    results = circumstances() | {"cached": options.cached, "runs": []}
    for _ in range(options.runs):
        for commit in commits:
            results["runs"].append(run(ROOT, commit, environment(cached=options.cached)))
            print(json.dumps(results["runs"][-1]), flush=True)
            (options.out / "demo_start.json").write_text(json.dumps(results, indent=1) + "\n")
    if options.out == RESULTS:
        fill(PAGE, {"demo_start": summary(results)})


if __name__ == "__main__":
    main()
