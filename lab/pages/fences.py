"""The fenced blocks of a page, and a page run from top to bottom.

| block  | treatment                                                                                           |
|--------|-----------------------------------------------------------------------------------------------------|
| python | run, in one process and namespace for the page                                                      |
| bash   | run, in the page's folder                                                                           |
| text   | the expected output of the python block before it                                                   |
| shell  | not run: commands of a terminal; only checked to exist                                              |
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Runs blocks, and writes the output of each to a file.
_DRIVER = """
import contextlib, io, json, subprocess, sys
from lab import ROOT
blocks, outputs, names = json.load(open(sys.argv[1])), [], {"__name__": "__main__"}
for language, text, line in blocks:
    out = io.StringIO()
    if language == "bash":
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
    elif language == "python":
        with contextlib.redirect_stdout(out):
            exec(compile("\\n" * line + text, sys.argv[2], "exec"), names)
    outputs.append(out.getvalue())
json.dump(outputs, open(sys.argv[3], "w"))
"""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(f[1], f[2], text.count("\n", 0, f.start()) + 1) for f in _FENCE.finditer(text)]


def printed(page: Path, folder: Path, timeout: float = 600) -> list[tuple[Block, str]]:
    """The page's blocks, each with its output; they run in a folder, in a Python process of their own."""
    found = blocks(page)
    (folder / ".blocks.json").write_text(json.dumps([(b.language, b.text, b.line) for b in found]))
    arguments = [str(folder / ".blocks.json"), str(page), str(folder / ".outputs.json")]
    ran = subprocess.run(
        [sys.executable, "-c", _DRIVER, *arguments],
        cwd=folder,
        env=os.environ
        | {"PYSPARK_PYTHON": sys.executable, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return list(zip(found, json.loads((folder / ".outputs.json").read_text()), strict=True))
