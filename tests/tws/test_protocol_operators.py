"""Every kind of operator and of durable part is among the subjects of the protocol; none of a sample of the single
mishaps there can be shows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from lab import ROOT
from lab.tws.attempts import Attempt
from lab.tws.mishaps import check, mishaps, untroubled
from lab.tws.subject_runs import INPUTS
from lab.tws.subjects import SUBJECTS, Input, hot_script, subject, tables_of_key_0
from lab.tws.task import header_of
from watersmeet.checkpoints.gaps import GAPS
from watersmeet.errors import StateMismatchError
from watersmeet.joins import REGISTRY, HashJoin, Join
from watersmeet.joins.group_by.operator import GroupedJoin, GroupsOf
from watersmeet.state.durable.log import MemoryStore
from watersmeet.state.durable.parts import DurablePart
from watersmeet.state.hot_keys.phases import HOT_KEYS, Phase

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


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_state_that_has_ended_is_refused(name: str) -> None:
    of = subject(name)
    if isinstance(of.join, GroupsOf):
        return  # it ends with the join before it
    shard, last = of.ids[0], Attempt(of, of.ids[0], MemoryStore(), of.given[0], ended=True)
    last.run()
    with pytest.raises(StateMismatchError, match="the checkpoint has ended"):
        Attempt(of, shard, last.task.store(), of.given[1]).run()


def test_every_operator_is_a_subject() -> None:
    joins = [subject(name).join for name in SUBJECTS]
    assert {join.name for join in joins if isinstance(join, Join)} == set(REGISTRY), "lab/tws/subjects.py"


def test_an_operator_that_is_no_subject_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "toy", HashJoin)
    with pytest.raises(AssertionError, match=r"(?s)lab/tws/subjects\.py.*toy"):
        test_every_operator_is_a_subject()


def test_groups_trees_and_split_keys_are_subjects() -> None:
    joins = [subject(name).join for name in SUBJECTS]
    assert {type(join) for join in joins} == {Join, GroupedJoin, GroupsOf}, "and groups, here and behind a join"
    streams = [spec for join in joins for spec in join.query.streams]
    assert any(spec.upstream_shards for spec in streams), "and the second operator of a tree"
    assert any("part" in spec.key for spec in streams), "and a split key"


def test_a_hot_key_goes_through_all_phases_of_either_stream() -> None:
    tables = [table for input in INPUTS for table in tables_of_key_0(hot_script(input), input.seed % 2)]
    found = {(hot.spread, hot.phase) for table in tables for hot in table.values()}
    assert found == {(stream, phase) for stream in (0, 1) for phase in Phase}


def test_states_that_were_rescaled_and_evolved_are_subjects() -> None:
    carried = [of for name in SUBJECTS if (of := subject(name)).found]
    gaps = [header_of(store).metadata.get(GAPS) for of in carried for store in of.stores().values()]
    assert any(gaps), "and one of a changed window"
    assert any(isinstance(of.join, GroupedJoin) for of in carried)


def every_kind_of_part() -> set[tuple[str, str]]:
    """But for the mark of a state that has ended, which the state machine writes in batches that do not commit."""
    code = "".join(file.read_text() for file in sorted((ROOT / "src/watersmeet/joins").rglob("*.py")))
    kinds = set(parts_of(DurablePart)) | {("metadata", kind) for kind in re.findall(r'Metadata\("(\w+)"', code)}
    assert {("rows", "closed_keys"), ("metadata", "order")} <= kinds, "classes and names are found"
    return kinds | {("metadata", name) for name in (GAPS, HOT_KEYS)}


def test_every_kind_of_part_is_stored_by_a_subject() -> None:
    assert INPUTS[0] == Input(batches=8), "an input of the state machine begins with the same batches"
    found = {part for name in SUBJECTS for part in untroubled(name).parts}
    assert every_kind_of_part() <= found
    assert found - every_kind_of_part() == {("rows", "rows")}


@pytest.mark.more
@pytest.mark.parametrize("name", SUBJECTS)
def test_none_of_many_single_mishaps_shows(name: str) -> None:
    check(name, list(mishaps(name))[5::11])
