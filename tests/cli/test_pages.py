"""The commands of docs/pipelines.md do what the page says; its tables have every word."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import ROOT
from lab.pages.commands import Place, blocks, missing
from watersmeet.pipelines import schema


@pytest.mark.spark
@pytest.mark.more
def test_the_commands_of_the_page_of_pipelines(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for commands, given in blocks("pipelines.md"):
        assert missing(given, place.run(commands)) == []


def test_the_pages_have_every_key() -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text() + (ROOT / "docs" / "kafka.md").read_text()
    tables = (schema.STREAM, schema.JOIN, schema.SINK, schema.SESSION, schema.PUNCTUATION, schema.PIPELINE.keys or {})
    for name in {name for table in tables for name in table}:
        assert f"`{name}`" in page or f" {name} = " in page or f"[{name}" in page, name


def test_missing_lines_are_found() -> None:
    assert missing("a\nb … d\n…\n", "x\na\nb c d\n") == ["…"]
    assert missing("a\nb\n", "b\na\n") == ["b"]
