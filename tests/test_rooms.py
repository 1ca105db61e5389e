"""Files are named after things, in rooms of a size that is taken in at a glance, and no name speaks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from lab import ROOT

SOURCE = ROOT / "src" / "watersmeet"
FILES = [file for file in sorted(SOURCE.rglob("*.py")) if file.name != "__init__.py"]
MOST_FILES = 20
#: Gerunds that are the field's own nouns: techniques, not activities of a program.
TECHNIQUES = {"grouping", "hashing", "lowering", "monitoring", "packing", "sorting", "testing", "unpacking"}
#: What stands beside the wheel.
ROOMS_BESIDE = ("lab", "benchmarks", "experiments", "soak", "examples")
BESIDE = [file for room in ROOMS_BESIDE for file in sorted((ROOT / room).rglob("*.py"))]
#: Parts of a name count, too: `asked_for`.
SPEAKING = re.compile(r"(?<![a-z])(said|told|heard|asked|tellers?|news)(?![a-z])", re.IGNORECASE)
#: One thing at two levels: its kernel or model, its state, its operator, its door on Spark, its cost.
LEVELS = {
    *("__main__", "aggregates", "asof", "circular_buffers", "closed_keys", "columns", "counters", "hyperloglog"),
    *("multiway", "multiway_loops", "operator", "punctuations", "sorted_index", "tuple_at_a_time", "value_lists"),
}


def test_no_room_is_overfull() -> None:
    rooms: dict[Path, list[str]] = defaultdict(list)
    for file in FILES:
        rooms[file.parent].append(file.name)
    assert {str(room): len(files) for room, files in rooms.items() if len(files) > MOST_FILES} == {}


def test_no_file_is_named_after_an_activity() -> None:
    assert {file.stem for file in FILES if file.stem.endswith("ing")} <= TECHNIQUES


def test_no_name_is_used_for_two_things() -> None:
    named: dict[str, list[str]] = defaultdict(list)
    for file in FILES:
        named[file.stem].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in named.items() if len(files) > 1 and name not in LEVELS} == {}


@pytest.mark.parametrize("room", ROOMS_BESIDE)
def test_no_name_is_used_for_two_things_beside_the_wheel(room: str) -> None:
    """Each of these folders has its own rooms. In `tests` a room is part of the name: it is that of what is tested."""
    count = Counter(file.name for file in BESIDE if file.is_relative_to(ROOT / room) and file.name != "__init__.py")
    assert count, "there is something to look at"
    assert [name for name, files in count.items() if files > 1] == []


def test_nothing_is_named_after_speaking() -> None:
    every = [*sorted(SOURCE.rglob("*.py")), *BESIDE]
    found = [(str(file), line) for file in every for line in file.read_text().splitlines() if SPEAKING.search(line)]
    assert found == []
