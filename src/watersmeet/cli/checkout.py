"""What is in a checkout and not in the wheel: benchmarks and experiments."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from watersmeet.cli.failures import MissingError
from watersmeet.errors import QueryError

_MAIN = 'if __name__ == "__main__"'


def find() -> Path:
    """The checkout around the working folder, or the one that the package was installed from for editing."""
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


def programs(checkout: Path, room: str) -> list[str]:
    """Names of the programs in a room: its files that can be started."""
    files = sorted((checkout / room).glob("*.py"))
    return [f.stem for f in files if not f.stem.startswith("_") and _MAIN in f.read_text(encoding="utf-8")]


def start(room: str, name: str | None, arguments: Sequence[str]) -> int:
    """Start a program of a room in its checkout, or the room itself; its exit code."""
    checkout = find()
    known = programs(checkout, room)
    if name is not None and name not in known:
        from difflib import get_close_matches

        near = get_close_matches(name, known, 1)
        listed = f"they are {', '.join(known)}." if known else f"this checkout has no {room}."
        hint = f"did you mean `{near[0]}`?" if near else listed
        raise QueryError(f"there is no `{name}` in {room}.", hint=hint)
    path = os.pathsep.join(filter(None, (str(checkout), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    module = room if name is None else f"{room}.{name}"
    return subprocess.call([sys.executable, "-m", module, *arguments], cwd=checkout, env=environment)
