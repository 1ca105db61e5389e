"""The command line that benchmarks share: what to run, where results are kept, and the README that shows them."""

import json
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import data
from lab.measure.claims import DOES_NOT_HOLD, HOLDS
from lab.measure.sections import fill
from lab.measure.tables import Table

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parent / "README.md"


def parser(name: str, about: str | None, quick: str) -> ArgumentParser:
    """A parser with the common options."""
    made = ArgumentParser(prog=f"python -m benchmarks.{name}", description=(about or "").splitlines()[0])
    made.add_argument("--quick", action="store_true", help=f"{quick}: does everything run?")
    made.add_argument("--out", type=Path, help="folder of the results; default: benchmarks/results for whole runs")
    made.add_argument("--redraw", action="store_true", help="run nothing")
    return made


def folder_of(options: Namespace, *, incomplete: bool = False) -> Path:
    """The folder of the results; those of quick and incomplete runs are not kept in the repository."""
    scratch = options.quick or incomplete
    folder = Path(options.out or (data.scratch("results") if scratch else RESULTS)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def read(stored: Path, empty: dict[str, Any]) -> dict[str, Any]:
    """Results of earlier runs."""
    return dict(json.loads(stored.read_text())) if stored.exists() else empty


def summary(name: str, text: str) -> str:
    """When it was measured, how many claims hold, and a link to the tables."""
    date = re.search(r"\d{4}-\d\d-\d\d", text)
    first_table = [*re.split(r"(?m)^(?=### )", text), "", ""][1]
    answers = re.findall(rf"\| (?:floor )?({HOLDS}|{DOES_NOT_HOLD}) \|$", first_table, re.MULTILINE)
    measured = f"Measured {date[0]}" if date else "Not measured"
    held = f"; {answers.count(HOLDS)} of {len(answers)} claims hold" if answers else ""
    return f"{measured}{held}: [results/{name}.md](results/{name}.md)."


def publish(
    name: str, text: str, tables: Sequence[Table], folder: Path, console: Console, picture: str | None = None
) -> None:
    """Write the text to a folder, print its tables, and put a summary into the README if it shows these results."""
    (folder / f"{name}.md").write_text(text)
    if folder == RESULTS:
        pictures = "" if picture is None else f"![{picture}](results/{name}.svg)\n\n"
        fill(README, {name: pictures + summary(name, text)})
    for table in tables:
        console.print(table.rich())
    written = [f"{name}.json", f"{name}.md", *([] if picture is None else [f"{name}.svg"])]
    console.print(f"Written to {folder}: {', '.join(written)}")
