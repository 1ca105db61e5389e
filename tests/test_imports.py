"""Outside the wheel, imports run one way: tests, benchmarks, experiments and the soak share through `lab` alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from lab import ROOT

#: Of each folder, what nothing in it may import.
FORBIDDEN = {
    "src": {"lab", "tests", "benchmarks", "experiments", "soak", "examples"},
    "examples": {"lab", "tests", "benchmarks", "experiments", "soak"},
    "lab": {"tests", "benchmarks", "experiments", "soak"},
    "benchmarks": {"tests", "experiments", "soak"},
    "experiments": {"tests", "benchmarks", "soak"},
    "soak": {"tests", "benchmarks", "experiments"},
    "tests": {"tests"},
}
MODULE = re.compile(r"[a-z_]+(\.[a-z_]+)+")


def modules(source: str) -> Iterator[str]:
    """What a file imports, and modules that it names in a text, as `python -m` takes them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            yield node.value


def crossings(source: str, folder: str) -> list[str]:
    """Of what a file imports, that which its folder may not; relative imports hide where they lead."""
    return [m for m in modules(source) if m.startswith(".") or m.partition(".")[0] in FORBIDDEN[folder]]


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_nothing_is_imported_across_a_wall(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, "there is something to look at"
    found = {str(f.relative_to(ROOT)): across for f in files if (across := crossings(f.read_text(), folder))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import tests.joins.test_pwjoin",
        "from tests import oracle",
        "def late():\n    from tests.joins.test_pwjoin import follow",
        "from .scripts import Script",
        'run(["-m", "tests.kafka.broker"])',
    ],
)
def test_every_way_across_is_seen(source: str) -> None:
    assert crossings(source, "tests")
    assert crossings("from lab.joins import oracle\nimport benchmarks.spark", "tests") == []


def test_what_tests_share_is_in_lab() -> None:
    others = [f for f in (ROOT / "tests").rglob("*.py") if not re.fullmatch(r"test_\w+\.py|conftest\.py", f.name)]
    assert [str(f.relative_to(ROOT)) for f in others] == []
