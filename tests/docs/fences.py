"""The fenced blocks of a page, and a page run from top to bottom.

| block  | what happens to it                                                                                  |
|--------|-----------------------------------------------------------------------------------------------------|
| python | run, in one process and namespace for the page                                                      |
| bash   | run, in the page's folder                                                                           |
| text   | what the python block before it has printed                                                         |
| shell  | not run: commands of a terminal; that they exist is checked                                         |
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Runs blocks, and says what each has printed.
_DRIVER = """
import contextlib, io, json, subprocess, sys
blocks, said, names = json.load(open(sys.argv[1])), [], {"__name__": "__main__"}
for language, text, line in blocks:
    out = io.StringIO()
    if language == "bash":
        subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)
    elif language == "python":
        with contextlib.redirect_stdout(out):
            exec(compile("\\n" * line + text, sys.argv[2], "exec"), names)
    said.append(out.getvalue())
json.dump(said, open(sys.argv[3], "w"))
"""


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [Block(f[1], f[2], text.count("\n", 0, f.start()) + 1) for f in _FENCE.finditer(text)]


def printed(page: Path, folder: Path, timeout: float = 300) -> list[tuple[Block, str]]:
    """The page's blocks, run in a folder by a Python of their own, each with what it has printed."""
    found = blocks(page)
    (folder / ".blocks.json").write_text(json.dumps([(b.language, b.text, b.line) for b in found]))
    arguments = [str(folder / ".blocks.json"), str(page), str(folder / ".said.json")]
    ran = subprocess.run(
        [sys.executable, "-c", _DRIVER, *arguments],
        cwd=folder,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return list(zip(found, json.loads((folder / ".said.json").read_text()), strict=True))
