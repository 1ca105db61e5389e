"""Examples in docstrings give what stands below them."""

from __future__ import annotations

import doctest
import re
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

import pytest

import watersmeet
from lab import ROOT

SOURCE = ROOT / "src"
TEXTS = {
    ".".join(file.relative_to(SOURCE).with_suffix("").parts): file.read_text()
    for file in sorted(SOURCE.rglob("*.py"))
    if ">>> " in file.read_text()
}
#: Those whose examples have a session, called `spark`.
ON_SPARK = [name for name, text in TEXTS.items() if re.search(r"(?m)^ *(>>>|\.\.\.) .*\bspark\b", text)]


def check(name: str, **names: Any) -> None:
    with redirect_stdout(StringIO()) as shown:
        ran = doctest.testmod(import_module(name), extraglobs=names, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert ran.attempted > 0
    assert ran.failed == 0, shown.getvalue()  # the reason decides whether a test is run again


@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ON_SPARK])
def test_examples_of_a_module(name: str) -> None:
    check(name)


@pytest.mark.spark
@pytest.mark.parametrize("name", ON_SPARK)
def test_examples_of_a_module_on_spark(spark: Any, name: str) -> None:
    check(name, spark=spark, wm=watersmeet)
