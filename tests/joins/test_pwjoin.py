"""PWJoin and PJoin against the rules of punctuations: results, state and propagated punctuations after every batch."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.limits import LIMITS, small
from lab.joins.oracle import KEYS
from lab.joins.scripts import ORDERED, Comparison, Script, follow, scripts, unbounded
from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.joins import Join
from watersmeet.joins.pjoin import PJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import Punctuation, Range
from watersmeet.model.queries import HOW, JoinQuery
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.state import keys
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log

few = settings(max_examples=max(10, settings().max_examples // 5))
some = settings(max_examples=max(20, settings().max_examples // 3))


@pytest.mark.parametrize("how", HOW)
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it(how: str, data: st.DataObject) -> None:
    follow(data.draw(scripts(how=st.just(how))))


@pytest.mark.parametrize("kind", KEYS)
@few
@given(data=st.data())
def test_keys_of_every_kind_can_be_closed(kind: str, data: st.DataObject) -> None:
    follow(data.draw(scripts(st.just(kind))))


@pytest.mark.parametrize("kind", ORDERED)
@few
@given(data=st.data())
def test_ranges_of_every_ordered_kind(kind: str, data: st.DataObject) -> None:
    follow(data.draw(scripts(st.just(kind), how=st.sampled_from(["inner", "full"]), rows=3)))


@few
@given(script=scripts(window=unbounded()))
def test_pjoin_is_pwjoin_without_windows(script: Script) -> None:
    follow(script, PJoin().start(script.query()))


@few
@given(scripts(st.sampled_from(["string", "decimal38", "two columns", "struct", "list", "binary"])))
def test_keys_that_collide_are_still_distinguished(script: Script) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "HASH_MASK", 0)
        follow(script)


@few
@given(scripts())
def test_the_sides_mirror(script: Script) -> None:
    if script.how not in ("semi", "anti"):
        follow(script.mirrored())


# ---------------------------------------------------------------- lives of a state


@pytest.mark.parametrize("name", LIMITS)
@some
@given(script=scripts(batches=7, rows=4), data=st.data())
def test_a_restart_between_batches_changes_nothing(name: str, script: Script, data: st.DataObject) -> None:
    with small(name):
        comparison, join = Comparison(script), PWJoin().start(script.query())
        store, header = log.MemoryStore(), log.begin(script.query())
        for n in range(len(script.batches)):
            comparison.step(join, n)
            log.commit(join, header, store)
            assert store.header is not None
            header = log.Header.unpack(store.header)
            assert set(store.segments) == {entry.id for entry in header.segments}
            if data.draw(st.booleans(), label="restart"):
                join = PWJoin().start(script.query())
                log.rebuild(join, header, store)
                for i in (0, 1):
                    comparison.check_state(join, i)


@pytest.mark.parametrize("name", ["as it is", "all of it"])
@some
@given(script=scripts(batches=7, rows=4), data=st.data())
def test_a_copy_that_is_behind_catches_up(name: str, script: Script, data: st.DataObject) -> None:
    with small(name):
        comparison, join = Comparison(script), PWJoin().start(script.query())
        store, header = log.MemoryStore(), log.begin(script.query())
        copy, token = PWJoin().start(script.query()), ""
        for n in range(len(script.batches)):
            comparison.step(join, n)
            header = log.commit(join, header, store)
            if not token:
                log.rebuild(copy, header, store)
                token = header.token
            elif data.draw(st.booleans(), label="catch up") and log.catch_up(copy, token, header, store):
                for i in (0, 1):
                    comparison.check_state(copy, i)
                join, copy, token = copy, PWJoin().start(script.query()), ""  # and goes on from here


@few
@given(script=scripts(batches=6, rows=4))
def test_a_working_state_is_picked_up_by_the_next_process(script: Script) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, header = log.MemoryStore(), log.begin(script.query())
        comparison, join = Comparison(script), PWJoin().start(script.query(), MappedArrays(folder))
        for n in range(len(script.batches)):
            comparison.step(join, n)
            header = log.commit(join, header, store)
            cache.save(join, folder)
            join = PWJoin().start(script.query(), MappedArrays(folder))
            assert cache.load(join, folder)
            for i in (0, 1):
                comparison.check_state(join, i)


# ---------------------------------------------------------------- what is refused


def test_two_streams_are_joined() -> None:
    specs = Script("int64", "inner", (TimeWindow(1), TimeWindow(1)), (0, 0), ((), ()), ()).query().streams
    third = replace(specs[1], name="c", schema=pa.schema([("c_ts", pa.int64()), ("j0", pa.int64())]), time="c_ts")
    with pytest.raises(QueryError, match=r'^"pwjoin" computes joins of two streams; got "inner" of 3\.\n'):
        Join(JoinQuery((*specs, third)), PWJoin())


def test_pjoin_knows_no_windows() -> None:
    query = Script("int64", "inner", (Unbounded(), TimeWindow(1)), (0, 0), ((), ()), ()).query()
    with pytest.raises(WindowError) as caught:
        Join(query, PJoin())
    assert str(caught.value) == (
        '`pjoin` knows no windows, and stream `b` has one.\nHint: leave `window` out, or use algorithm="pwjoin".'
    )


def test_a_range_of_several_columns_is_refused() -> None:
    arrivals = Elements(punctuations=(Punctuation(Range(0, 1), 0),))
    script = Script("two columns", "inner", (TimeWindow(1), TimeWindow(1)), (0, 0), ((), ()), ((arrivals, Elements()),))
    with pytest.raises(ColumnError) as caught:
        list(PWJoin().start(script.query()).step([script.batch(0, i) for i in (0, 1)]))
    assert str(caught.value) == (
        "a range closes an interval of one key column; this join's key is 2 columns (int64, string).\n"
        "Hint: close single values, or join on one column of an ordered type."
    )
