"""The public face: what it promises is there, and looking at it loads nothing heavy."""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version

import pytest

import watersmeet
from lab import ROOT
from lab.pages.fences import blocks


def test_every_public_name_resolves() -> None:
    assert watersmeet.__all__ == sorted(watersmeet.__all__)
    for name in watersmeet.__all__:
        thing = getattr(watersmeet, name)
        assert thing.__name__ == name
        assert thing.__doc__
        assert thing.__module__.startswith("watersmeet.")
        assert name in dir(watersmeet)


def test_nothing_is_public_by_accident() -> None:
    code = "import watersmeet; print(*(n for n in dir(watersmeet) if not n.startswith('_')))"
    known = {"Any", "TYPE_CHECKING", "annotations", "errors", "import_module"}  # what the module itself is made with
    modules = {"aggregates", "testing"}
    assert set(_run(code).split()) - known == {*watersmeet.__all__, *modules, "max", "min", "sum"}


def test_importing_all_shadows_no_builtin() -> None:
    assert not set(watersmeet.__all__) & set(dir(builtins))
    from watersmeet import aggregates

    for name in aggregates.__all__:
        assert getattr(watersmeet, name) is getattr(aggregates, name)
    assert watersmeet.aggregates is aggregates


@pytest.mark.parametrize("module", ["watersmeet", "watersmeet.aggregates", "watersmeet.testing"])
def test_every_public_name_has_an_example_that_the_tests_run(module: str) -> None:
    """In a docstring (tests/test_doctests.py) or on a page (tests/docs/test_pages.py)."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = "\n".join(block.text for page in pages for block in blocks(page) if block.language == "python")
    prefix = {"watersmeet": "wm", "watersmeet.aggregates": "(?:A|wm)", "watersmeet.testing": "testing"}[module]
    called = set(re.findall(rf"\b{prefix}\.(\w+)", shown))
    for file in (ROOT / "src").rglob("*.py"):
        called |= set(re.findall(r"(?m)^ *>>> .*?\b(\w+)\(", file.read_text()))
    assert set(import_module(module).__all__) - called == set()


def test_each_argument_of_join_begins_with_what_spark_calls_it() -> None:
    paragraphs = inspect.cleandoc(watersmeet.join.__doc__ or "").split("\n\n")
    begin = {}
    for paragraph in paragraphs:
        names, colon, text = " ".join(paragraph.split()).partition(": ")
        if colon and re.fullmatch(r"`\w+`(, `\w+`)*", names):
            begin |= dict.fromkeys(re.findall(r"\w+", names), text)
    assert set(begin) == set(inspect.signature(watersmeet.join).parameters)
    for name, text in begin.items():
        first = re.split(r"[.;:] ", text)[0]
        assert "Spark" in first, f"{name}: {first}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'watersmeet' has no attribute 'joyn'"):
        watersmeet.joyn  # noqa: B018  # asking is the test
    with pytest.raises(ImportError):
        from watersmeet import joyn  # noqa: F401


def test_importing_it_loads_neither_spark_nor_numba_nor_a_plotting_library() -> None:
    heavy = {"pyspark", "numba", "matplotlib", "pandas", "pyarrow", "numpy", "rich", "sqlglot"}
    loaded = _run("import sys, watersmeet; print(*{name.partition('.')[0] for name in sys.modules})").split()
    assert not heavy & set(loaded)


def test_the_engine_needs_no_spark() -> None:
    loaded = _run("import sys, watersmeet.joins.hash_join, watersmeet.state.durable.log; print(*sys.modules)").split()
    assert "numba" in loaded
    assert not {"pyspark", "matplotlib", "pandas"} & set(loaded)


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert watersmeet.__version__ == project["version"] == version("watersmeet")


def test_the_pythons_that_are_claimed_are_those_that_were_run() -> None:
    page = (ROOT / "docs" / "versions.md").read_text()
    ran = set(re.findall(r"(?m)^\| 4\.\d\.\d+ \| (3\.\d+) \|", page))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert {text for kind in known for text in re.findall(r"Python :: (3\.\d+)$", kind)} == ran
    listed = ", ".join(sorted(ran)[:-1]) + " and " + max(ran)
    for claim in (page, (ROOT / "README.md").read_text()):
        assert f"Python {listed}," in claim


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
