"""Tables of results: as Markdown, and with Rich on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Column
from rich.table import Table as RichTable

from lab.measure.claims import DOES_NOT_HOLD, HOLDS, NOT_JUDGED, NOT_MEASURED

STYLES = {
    "goal holds": "bold green",
    "floor holds": "green",
    HOLDS: "green",
    DOES_NOT_HOLD: "bold red",
    NOT_MEASURED: "yellow",
    NOT_JUDGED: "yellow",
}


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


@dataclass(frozen=True)
class Table:
    """A table with a title and a caption. `whole`: a cell is always shown on one line."""

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    whole: bool = False

    def markdown(self, level: int = 3) -> str:
        return f"{'#' * level} {self.title}\n\n{self.caption}\n\n{markdown_table(self.columns, self.rows)}\n"

    def rich(self) -> RichTable:
        table = RichTable(
            *(Column(name, no_wrap=self.whole) for name in self.columns),
            title=self.title,
            caption=self.caption,
            title_justify="left",
        )
        for row in self.rows:
            table.add_row(*row, style=STYLES.get(row[-1]))
        return table
