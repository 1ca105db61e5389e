"""Mistakes in a pipeline, each with its line."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import PipelineError
from watersmeet.pipelines.secrets import hide
from watersmeet.pipelines.toml_positions import Path, position


@dataclass(frozen=True)
class Mistake:
    """A mistake at the key that `path` ends in (with `value`: at its value; with `part`: in it), and a hint."""

    path: Path
    what: str
    hint: str
    value: bool = False
    part: str = ""

    def shown(self, file: str, text: str) -> tuple[int, str]:
        """The line's number, and the message with that line below it, the mistake underlined."""
        at = position(text, self.path, value=self.value)
        start, end = at.start, at.end
        if self.part and self.part in at.text[start:end]:
            start = at.text.index(self.part, start)
            end = start + len(self.part)
        mark = f"\n  {at.text}\n  {' ' * start}{'^' * max(1, end - start)}" if at.text else ""
        return at.line, f"{file}, line {at.line}: {self.what}{mark}\nHint: {self.hint}"


@dataclass(frozen=True)
class QueryMistake(Mistake):
    """A mistake in a query, on a line of it; `what` itself shows the line."""

    line: int = 1

    def shown(self, file: str, text: str) -> tuple[int, str]:
        at = position(text, self.path)
        begins = at.line + at.text.rstrip().endswith(('"""', "'''"))  # the query begins on the line after the quotes
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
    """The path as a dotted TOML key."""
    out = ""
    for part in path:
        out += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if out else part
    return out
