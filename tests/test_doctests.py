"""Examples in docstrings give what stands below them."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from lab import ROOT

SOURCE = ROOT / "src"
MODULES = [
    ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    for file in sorted(SOURCE.rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    ran = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert ran.attempted > 0
    assert ran.failed == 0
