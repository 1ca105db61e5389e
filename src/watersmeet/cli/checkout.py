"""Starts programs that are in a checkout and not in the wheel: benchmarks and experiments."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from watersmeet.cli.failures import MissingError
from watersmeet.errors import QueryError, did_you_mean

_MAIN = 'if __name__ == "__main__"'


def find() -> Path:
    """The checkout around the working folder, or the one of an editable installation."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[3]):
        if _is_checkout(folder):
            return folder
    raise MissingError(
        "benchmarks and experiments are not part of the package, and there is no checkout of watersmeet around "
        f"{here}.",
        hint="clone the repository, and call the command inside it (or ./run bench there).",
    )


def _is_checkout(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    if not project.is_file() or not (folder / "benchmarks").is_dir():
        return False
    named = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {}).get("name")
    return bool(named == "watersmeet")


def programs(checkout: Path, package: str) -> list[str]:
    """Names of the programs in a package: its files with a main part."""
    files = sorted((checkout / package).glob("*.py"))
    return [f.stem for f in files if not f.stem.startswith("_") and _MAIN in f.read_text(encoding="utf-8")]


def start(package: str, name: str | None, arguments: Sequence[str]) -> int:
    """Run a program of a package in the checkout, or the package itself; returns its exit code."""
    checkout = find()
    known = programs(checkout, package)
    if name is not None and name not in known:
        listed = f"they are {', '.join(known)}." if known else f"this checkout has no {package}."
        raise QueryError(f"there is no `{name}` in {package}.", hint=did_you_mean(name, known) or listed)
    path = os.pathsep.join(filter(None, (str(checkout), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    module = package if name is None else f"{package}.{name}"
    return subprocess.call([sys.executable, "-m", module, *arguments], cwd=checkout, env=environment)
