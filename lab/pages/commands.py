"""Pages whose commands are run: blocks of `sh`, each followed by a block of `text` if the page shows the output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import ROOT
from lab.processes import environment
from watersmeet.cli import app

_BLOCK = re.compile(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
_SHIM = {
    "watersmeet": '"$PYTHON" -m watersmeet.cli "$@"',
    "run": """job=$1; shift
case $job in
    python) "$PYTHON" "$@" ;;
    watersmeet) "$PYTHON" -m watersmeet.cli "$@" ;;
    kafka) "$PYTHON" -m lab.kafka.broker "$@" ;;
    *) exit 2 ;;
esac""",
}


def blocks(page: str) -> list[tuple[str, str]]:
    """The commands of a page's blocks, each with its output."""
    return [(commands, output or "") for commands, output in _BLOCK.findall((ROOT / "docs" / page).read_text())]


class Place:
    """A folder with the examples, in which commands are run one block after the other."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("out", "__pycache__"))
        for name, text in _SHIM.items():
            program = folder / name
            program.write_text(f"#!/usr/bin/env bash\n{text}\n")
            program.chmod(0o755)
        own = {"PYTHON": sys.executable, "COLUMNS": "200", "PATH": f"{folder}:{os.environ['PATH']}"}
        self.environment = environment(**own, **variables)

    def run(self, commands: str, timeout: float = 300) -> str:
        """The output of the commands, errors included."""
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


def missing(expected: str, printed: str) -> list[str]:
    """Lines of the page that were not printed in this order; `…` stands for any text."""
    lines = iter(printed.splitlines())
    out = []
    for line in expected.splitlines():
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        kept = list(lines)
        found = next((n for n, each in enumerate(kept) if pattern.fullmatch(each)), None)
        out += [line] if found is None else []
        lines = iter(kept if found is None else kept[found + 1 :])
    return out


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    with pytest.raises(SystemExit) as ended:
        app.run(arguments)
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err
