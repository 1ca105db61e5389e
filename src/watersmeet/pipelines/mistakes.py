"""What is wrong with a pipeline, each with its line."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import PipelineError
from watersmeet.pipelines.places import Path, place
from watersmeet.pipelines.secrets import hide


@dataclass(frozen=True)
class Mistake:
    """What is wrong at the word that `path` ends in (at its value: `value`; in it at `part`), and what to do."""

    path: Path
    what: str
    hint: str
    value: bool = False
    part: str = ""

    def shown(self, file: str, text: str) -> tuple[int, str]:
        """Its line, and the message with the line below it and the word underlined."""
        at = place(text, self.path, value=self.value)
        start, end = at.start, at.end
        if self.part and self.part in at.text[start:end]:
            start = at.text.index(self.part, start)
            end = start + len(self.part)
        mark = f"\n  {at.text}\n  {' ' * start}{'^' * max(1, end - start)}" if at.text else ""
        return at.line, f"{file}, line {at.line}: {self.what}{mark}\nHint: {self.hint}"


@dataclass(frozen=True)
class QueryMistake(Mistake):
    """What is wrong with a query, on a line of it; the message itself shows the line."""

    line: int = 1

    def shown(self, file: str, text: str) -> tuple[int, str]:
        at = place(text, self.path)
        begins = at.line + at.text.rstrip().endswith(('"""', "'''"))  # the line behind the quotes is no part of it
        line = begins + self.line - 1
        return line, f"{file}, line {line}: {self.what}\nHint: {self.hint}"


def refuse(file: str, text: str, mistakes: list[Mistake]) -> None:
    """Raise an error that lists all mistakes, if there are any."""
    if not mistakes:
        return
    shown = [message for _, message in sorted(m.shown(file, text) for m in mistakes)]
    count = f"\n\n{len(shown)} mistakes" if len(shown) > 1 else ""
    raise PipelineError(hide("\n\n".join(shown) + count))


def dotted(path: Path) -> str:
    """A path as TOML writes it."""
    out = ""
    for part in path:
        out += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if out else part
    return out
