"""Coverage-guided fuzzing, by atheris, of the readers of states, of pipeline files and of event files.

`python -m soak guided` makes the first inputs and stores the outcome; `python -m soak.guided TARGET [libFuzzer's
options]` is the fuzzer alone. Both need the group `fuzz`, which has wheels for some Pythons only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from random import Random
from typing import Any

from lab import ROOT
from lab.dashboard.run_events import run as events_of_a_run
from lab.processes import environment
from watersmeet.model.events import to_line

LONGEST_INPUT = 8192


def state_bytes(data: bytes) -> None:
    """Bytes as a header, alone and under a checksum that fits, and as a segment: all of the state read, or refused."""
    from watersmeet.errors import StateError
    from watersmeet.joins import plan
    from watersmeet.state import segments
    from watersmeet.state.durable import log

    given, algorithm, options, store = _kept()[0]
    sealed = f"watersmeet-state {log.FORMAT} {zlib.crc32(data):08x}\n".encode() + data
    for header in (data, sealed):
        try:
            log.rebuild(plan(given.query(), algorithm, **options).start(), log.Header.unpack(header), store)
        except StateError:
            continue
    try:
        segments.unpack(1, data, zlib.crc32(data))
    except StateError:
        return


def operator_states(data: bytes) -> None:
    """The first byte chooses an operator, the others are its header under a checksum that fits: read, or refused."""
    from soak import targets
    from watersmeet.checkpoints.reopen import reopen
    from watersmeet.errors import StateError
    from watersmeet.state.durable import log

    states = targets.golden_states()
    body = data[1:]
    try:
        header = log.Header.unpack(f"watersmeet-state {log.FORMAT} {zlib.crc32(body):08x}\n".encode() + body)
        reopen(header, states[(data or b"\0")[0] % len(states)])
    except StateError:
        return


def pipeline_files(data: bytes) -> None:
    """Bytes as the text of a pipeline file: read, or refused."""
    from watersmeet.errors import PipelineError
    from watersmeet.pipelines.loader import from_text

    try:
        from_text(data.decode("utf-8", "replace"), "pipeline.toml", Path("."), {"BROKERS": "127.0.0.1:1"})
    except PipelineError:
        return


def event_files(data: bytes) -> None:
    """Bytes as the lines of an event file, handed to the page: read, or refused."""
    from soak import targets
    from watersmeet.errors import EventError

    try:
        targets.handed_on(data)
    except EventError:
        return


GUIDED: dict[str, Callable[[bytes], None]] = {
    "state_bytes": state_bytes,
    "operator_states": operator_states,
    "pipeline_files": pipeline_files,
    "event_files": event_files,
}


@cache
def _kept() -> list[Any]:
    """States of a few joins; a fuzzed header is read with the segments of the first."""
    from soak import targets

    chance = Random(1)
    return [targets.Kept.some(chance) for _ in range(40)]


def seeds(target: str) -> list[bytes]:
    """The first inputs: states of a few joins, the pipelines of the examples, or the events of a run."""
    from soak import targets

    if target == "event_files":
        return ["\n".join(map(to_line, events_of_a_run(n))).encode() for n in range(3)]
    if target == "pipeline_files":
        return [text.encode() for text in targets.PIPELINES]
    if target == "operator_states":
        bodies = [(store.header or b"").partition(b"\n")[2] for store in targets.golden_states()]
        return [bytes([n]) + body for n, body in enumerate(bodies) if len(body) < LONGEST_INPUT]
    found = []
    for *_, store in _kept():
        header = store.header or b""
        found += [header, header.partition(b"\n")[2], *store.segments.values()]
    return [one for one in found if len(one) <= LONGEST_INPUT]


def run(results: Path, *, runs: int, seed: int, wanted: list[str]) -> dict[str, Any]:
    """Fuzz each target, in processes of their own; returns the stored outcomes of all targets."""
    if find_spec("atheris") is None:
        raise SystemExit("atheris is not installed here: python -m pip install --group fuzz")
    known: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    for target in wanted:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            for number, seed_input in enumerate(seeds(target)):
                (Path(folder) / str(number)).write_bytes(seed_input)
            options = [f"-runs={runs}", f"-seed={seed}", f"-max_len={LONGEST_INPUT}", f"-artifact_prefix={folder}/"]
            command = [sys.executable, "-m", "soak.guided", target, *options, folder]
            done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, check=False)
            known[target] = {"seed": seed} | outcome(done.stderr, done.returncode, done.stdout)
        results.write_text(json.dumps(known, indent=1) + "\n")
    return known


def outcome(printed: str, code: int, raised: str = "") -> dict[str, Any]:
    """Runs, seconds and places reached, from the fuzzer's output; the end of the output if it found something."""
    through = re.search(r"Done (\d+) runs in (\d+) second", printed)
    reached = re.findall(r"cov: (\d+)", printed)
    runs, seconds = (int(through[1]), int(through[2])) if through else (0, 0)
    fine = code == 0 and through is not None
    return {
        "runs": runs,
        "seconds": seconds,
        "places": [int(reached[0]), int(reached[-1])] if reached else [],
        "finding": None if fine else f"ended with {code}: {raised[-1500:]}{printed[-500:]}",
    }


def main(target: str, options: list[str]) -> None:
    import atheris

    from watersmeet import kernels

    for module in walk_packages(kernels.__path__, f"{kernels.__name__}."):  # uninstrumented: Numba compiles them
        import_module(module.name)
    with atheris.instrument_imports(include=["watersmeet"]):
        import_module("soak.targets")
    atheris.Setup([sys.argv[0], *options], GUIDED[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
