"""Pages whose commands are run: blocks of `sh`, each followed by what is printed, a block of `text`, if it says so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
_SHIM = {
    "watersmeet": '"$PYTHON" -m watersmeet.cli "$@"',
    "run": 'job=$1; shift; case $job in python) "$PYTHON" "$@";; kafka) "$PYTHON" -m tests.kafka.broker "$@";; esac',
}


def blocks(page: str) -> list[tuple[str, str]]:
    """Commands, and what they print, of the blocks of a page."""
    return [(commands, told or "") for commands, told in _BLOCK.findall((ROOT / "docs" / page).read_text())]


class Place:
    """A folder with the examples, in which commands are run one block after the other."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("out", "__pycache__"))
        for name, text in _SHIM.items():
            program = folder / name
            program.write_text(f"#!/usr/bin/env bash\n{text}\n")
            program.chmod(0o755)
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        told = {"PYTHON": sys.executable, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "COLUMNS": "200"}
        self.environment = os.environ | told | {"PATH": f"{folder}:{os.environ['PATH']}"} | variables

    def run(self, commands: str, timeout: float = 300) -> str:
        """What they print, errors too."""
        ran = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
        return ran.stdout


def missing(told: str, printed: str) -> list[str]:
    """Lines of the page that were not printed, in this order; `…` stands for anything."""
    lines = iter(printed.splitlines())
    out = []
    for line in told.splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        kept = list(lines)
        found = next((n for n, each in enumerate(kept) if pattern.fullmatch(each)), None)
        out += [line] if found is None else []
        lines = iter(kept if found is None else kept[found + 1 :])
    return out
