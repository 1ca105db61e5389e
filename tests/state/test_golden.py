"""States that earlier versions wrote: read and continued, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.golden.hash_join_state import FOLDER, IDS, WRITTEN, scenario
from lab.joins.oracle import Scenario, bag, duckdb_join, expected, expected_state, step, stored
from watersmeet.errors import StateFormatError
from watersmeet.joins.hash_join import HashJoin, RunningHashJoin
from watersmeet.state.durable import log
from watersmeet.state.durable.log import Header, MemoryStore

READABLE = ("format-2",)


class Golden:
    """A golden state, and the input that it comes from."""

    def __init__(self, folder: Path) -> None:
        self.scenario: Scenario = scenario(json.loads((folder / "input.json").read_text()))
        self.store = MemoryStore()
        self.store.header = (folder / "header").read_bytes()
        self.store.segments = {int(file.stem): file.read_bytes() for file in folder.glob("*.arrow")}

    def join(self) -> tuple[RunningHashJoin, Header]:
        assert self.store.header is not None
        header, query = Header.unpack(self.store.header), self.scenario.query()
        header.check(query, 0, len(IDS), IDS)
        join = HashJoin().start(query)
        log.rebuild(join, header, self.store)
        return join, header


@pytest.mark.parametrize("name", READABLE)
def test_a_golden_state_is_read_and_continued(name: str) -> None:
    golden = Golden(FOLDER / name)
    given = golden.scenario
    join, header = golden.join()
    assert header.batches == WRITTEN
    assert {e.id for e in header.segments} == set(golden.store.segments)
    assert any(v.rewritten for v in header.versions)
    assert [bag(stored(join, i)) for i in (0, 1)] == [bag(expected_state(given, i)[WRITTEN - 1]) for i in (0, 1)]
    assert all(len(stream) for stream in join.streams)
    rest = expected(given)[WRITTEN:]
    assert sum(map(len, rest)) > 10
    for n, results in enumerate(rest, WRITTEN):
        assert bag(step(join, given.batches(n))) == bag(results)
        header = log.commit(join, header, golden.store)
        assert [bag(stored(join, i)) for i in (0, 1)] == [bag(expected_state(given, i)[n]) for i in (0, 1)]
    assert bag([row for results in expected(given) for row in results]) == bag(duckdb_join(given))


def test_every_golden_state_is_tested() -> None:
    assert {folder.name for folder in FOLDER.glob("format-*")} == set(READABLE)
    assert f"format-{log.FORMAT}" in READABLE


@pytest.mark.parametrize("name", READABLE)
@pytest.mark.parametrize("format", [0, 1, 10])
def test_another_format_is_refused_by_name(name: str, format: int) -> None:
    written = (FOLDER / name / "header").read_bytes()
    other = written.replace(b"watersmeet-state 2 ", f"watersmeet-state {format} ".encode(), 1)
    with pytest.raises(StateFormatError) as caught:
        Header.unpack(other)
    assert str(caught.value) == (
        f"the state has format {format}; this version reads format 2.\n"
        "Hint: use the version that wrote it, or start from a new checkpoint."
    )
