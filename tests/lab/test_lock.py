"""The part of the lock that the demo needs: closed under dependencies, and without the tools of development."""

from __future__ import annotations

import re
import tomllib

from lab import ROOT
from lab.lock import part, roots_of

LOCK = """\
# a header
a==1 \\
    --hash=sha256:1
    # via project (pyproject.toml)
b-c==2 \\
    --hash=sha256:2 \\
    --hash=sha256:3
    # via
    #   A
    #   tool
d==3 ; sys_platform == 'x' \\
    --hash=sha256:4
    # via b.c
tool==4 \\
    --hash=sha256:5
    # via project (pyproject.toml:dev)
"""


def test_a_part_has_what_its_roots_need_with_hashes() -> None:
    cut = part(LOCK, ["a"])
    assert re.findall(r"(?m)^\S+(?===)", cut) == ["a", "b-c", "d"]
    assert cut.count("--hash") == 4
    assert re.findall(r"(?m)^\S+(?===)", part(LOCK, ["a", "tool"], without=["b.c"])) == ["a", "tool"]
    assert part(LOCK, ["d"]).startswith("d==3 ; sys_platform == 'x' \\\n    --hash=sha256:4\n")


def test_the_demo_needs_a_third_of_the_lock() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    names = set(re.findall(r"(?m)^(\S+)==", part(lock, roots_of(project, "demo"))))
    assert {"pyspark", "py4j", "numba", "llvmlite", "matplotlib", "rich", "typer", "sqlglot"} <= names
    assert not {"mypy", "ruff", "pytest", "duckdb", "mkdocs", "playwright"} & names
    assert len(names) < len(re.findall(r"(?m)^\S+==", lock)) / 2
