"""The protocol of `test_protocol`, for every kind of operator, with a sample of the single mishaps there can be."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab import ROOT
from lab.tws.mishaps import check, mishaps, untroubled
from lab.tws.subjects import SUBJECTS
from watersmeet.state.durable.parts import DurablePart

pytestmark = pytest.mark.tws


def parts_of(kind: type[DurablePart]) -> Iterator[tuple[str, str]]:
    """What parts of a class, and of those below it, store."""
    if "kind" in vars(kind):
        if kind.changes is not DurablePart.changes:
            yield "rows", kind.kind
        if kind.metadata is not DurablePart.metadata:
            yield "metadata", kind.kind
    for below in kind.__subclasses__():
        yield from parts_of(below)


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_single_mishap_shows(name: str) -> None:
    every = list(mishaps(name))
    assert len(every) > 50
    check(name, every[::31])  # another moment, ending and machine each time; `more` has more, the soak all of them


def test_every_kind_of_part_is_stored_by_a_subject() -> None:
    code = "".join(file.read_text() for file in sorted((ROOT / "src/watersmeet/joins").rglob("*.py")))
    wanted = set(parts_of(DurablePart)) | {("metadata", kind) for kind in re.findall(r'Metadata\("(\w+)"', code)}
    assert {("rows", "closed_keys"), ("metadata", "order")} <= wanted, "classes and names are found"
    found = {part for name in SUBJECTS for part in untroubled(name).parts}
    assert wanted <= found
    assert found - wanted == {("rows", "rows")}


@pytest.mark.more
@pytest.mark.parametrize("name", SUBJECTS)
def test_none_of_many_single_mishaps_shows(name: str) -> None:
    check(name, list(mishaps(name))[5::11])
