"""Sections of documents that are written from results, each between two markers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def filled(text: str, name: str, part: str) -> str:
    """The text with `part` between `<!-- name: begin -->` and `<!-- name: end -->`."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    between = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    out, found = between.subn(lambda _: f"{begin}\n\n{part.strip()}\n\n{end}", text)
    if found != 1:
        raise ValueError(f"The page has {found} pairs of markers {begin} and {end}; it must have one.")
    return out


def fill(page: Path, parts: Mapping[str, str]) -> None:
    """Replace these sections of a page."""
    text = page.read_text()
    for name, part in parts.items():
        text = filled(text, name, part)
    page.write_text(text)
