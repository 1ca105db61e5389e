"""Hot keys split over shards by a table: results, late rows and state do not depend on it, whatever the phases."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lab.joins.oracle import KEYS, bag, intervals, rows_of
from lab.joins.scripts import Comparison, Script, scripts
from lab.joins.split_shards import SplitShards
from watersmeet.errors import StateMismatchError
from watersmeet.joins import plan
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.punctuations import Unique
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import RowsWindow, TimeWindow, Tumbling, Unbounded
from watersmeet.state.hot_keys.phases import (
    HotKey,
    Phase,
    Reached,
    Table,
    as_json,
    from_json,
    may_split,
    require_following,
)
from watersmeet.state.hot_keys.rule import MOST_KEYS, Decision, Load, Rule
from watersmeet.state.keys import encode_key
from watersmeet.state.shards import ShardKeys

some = settings(max_examples=max(40, settings().max_examples // 2), deadline=None)
LENGTH = 6


@st.composite
def long_scripts(draw: Any, **options: Any) -> Script:
    """Many batches whose times go on, so that phases end; few keys, so that rows meet."""
    short = st.builds(TimeWindow, st.integers(1, 8), st.just(True))
    how = st.sampled_from(["inner", "inner", "left", "semi", "anti", "right"])
    options = {"window": short} | options
    kind = st.sampled_from(["int64", "string", "two columns"])
    made: Script = draw(scripts(kind, how, batches=24, rows=4, punctuated=False, **options))
    batches = tuple(tuple(replace(e, punctuations=()) for e in batch) for batch in made.batches)
    null_safe = (True,) * len(KEYS[made.kind]) if draw(st.booleans()) else ()
    return replace(made, batches=batches, null_safe=null_safe)


def words_of(script: Script, n: int) -> dict[int, str]:
    """The words of the keys of a batch, NULLs among them."""
    out: dict[int, str] = {}
    for i, spec in enumerate(script.query().streams):
        rows = script.batch(n, i).rows
        keys = encode_key([rows.column(k) for k in spec.key], spec.null_safe)
        out |= {word: f"key {word}" for word in keys.words.tolist()}
    return out


def drawn_table(data: st.DataObject, table: Table, reached: Reached, words: dict[int, str], may: Any) -> Table:
    """Any table that follows: entries stay, or go on; keys of the batch begin."""
    out: dict[int, HotKey] = {}
    for word, entry in table.items():
        choices = [entry, *reached.following(entry).values()]
        found = data.draw(st.sampled_from(choices + choices[1:] * 3), label="following")
        if found is not None:
            out[word] = found
    for word in sorted(set(words) - set(table)):
        if data.draw(st.booleans(), label="begins"):
            out[word] = reached.begin(words[word], data.draw(st.sampled_from(may), label="spread"))
    return out


@some
@given(data=st.data())
def test_any_tables_that_follow_give_the_results_of_the_definition(data: st.DataObject) -> None:
    drawn = data.draw(st.sampled_from(["time", "interval", "tumbling"]))
    options: dict[str, Any] = {"interval": {"windows_of_all": intervals()}}.get(drawn, {})
    script = data.draw(long_scripts(**options))
    if drawn == "tumbling":
        windows, batches = (Tumbling(LENGTH),) * 2, pieced(script)
        script = replace(script, windows=windows, kind="two columns", null_safe=(), batches=batches)
    query = script.query()
    may = may_split(query)
    assert may == {"inner": (0, 1), "right": (1,)}.get(script.how, (0,))
    comparison = Comparison(script)
    shards = SplitShards(plan(query, "pwjoin"), data.draw(st.integers(1, 5), label="shards"))
    table: Table = {}
    for n in range(len(script.batches)):
        table = drawn_table(data, table, shards.reached(), words_of(script, n), may)
        results = shards.step_with(table, [script.batch(n, i) for i in (0, 1)])
        for entry in table.values():
            event(entry.phase)
        outcome = comparison.rules.step([script.for_rules(e) for e in script.batches[n]], script.clock(n))
        wanted = [comparison.combination(pair) for pair in outcome.pairs]
        wanted += [comparison.single(i, t) for i in (0, 1) for t in outcome.alone[i]]
        assert bag(results) == bag(wanted)
        for i in (0, 1):
            late = [row for running in shards.running for row in rows_of(running.late[i])]
            assert bag(late) == bag([comparison.row(i, t) for t in outcome.late[i]])
            check_state(shards, table, i, [comparison.row(i, t) for t in comparison.rules.stored(i)])
        change = data.draw(st.sampled_from(["", "", "", "restart", "rescale"]), label="change")
        if change == "restart":
            shards.restart()
        if change == "rescale":  # every key has one shard again
            shards.rescale(data.draw(st.integers(1, 5), label="new shards"))
            table = {}
            for i in (0, 1):
                check_state(shards, table, i, [comparison.row(i, t) for t in comparison.rules.stored(i)])
        assert shards.tables == [table] * len(shards.stores)


def check_state(shards: SplitShards, table: Table, i: int, wanted: list[Any]) -> None:
    """Every tuple is stored once beside its copies; what is away from home is there by the phase of its key."""
    held = [(n, *entry) for n in range(len(shards.stores)) for entry in shards.held_at(n, i)]
    assert bag([row for _, row, _, copy in held if not copy]) == bag(wanted)
    at_home: dict[int, list[Any]] = {}
    for n, row, word, _ in held:
        if ShardKeys(n, len(shards.stores)).index == home(word, len(shards.stores)):
            at_home.setdefault(word, []).append(row)
    for n, row, word, copy in held:
        if n == home(word, len(shards.stores)):
            assert not copy
            continue
        entry = table[word]  # without an entry everything is at home
        if copy:
            assert entry.copied == i
            assert row in at_home[word], "a copy of a tuple that the home has"
        else:
            assert entry.spread == i
            assert entry.phase in (Phase.SPREAD, Phase.COOLING)


def home(word: int, shards: int) -> int:
    return next(n for n in range(shards) if ShardKeys(n, shards)(np.array([word]))[0])


def pieced(script: Script) -> Any:
    """The second part of a key is the piece of time that the tuple is in."""

    def of(e: Any) -> Any:
        tuples = (replace(t, key=(0, None if t.ts is None else str(t.ts // LENGTH))) for t in e.tuples)
        return replace(e, tuples=tuple(tuples))

    return tuple(tuple(map(of, batch)) for batch in script.batches)


# ---------------------------------------------------------------- phases

#: Two streams with windows of 10 and 20 and delays of 3 and 5; their watermarks are 100 and 90.
SPEC_A, SPEC_B = (
    StreamSpec(n, pa.schema([("k", pa.int64()), (f"{n}_ts", pa.int64())]), f"{n}_ts", ("k",), TimeWindow(length), delay)
    for n, length, delay in (("a", 10, 3), ("b", 20, 5))
)
QUERY = JoinQuery((SPEC_A, SPEC_B))
REACHED = Reached.of(QUERY, [100, 90])


def test_how_far_the_streams_are() -> None:
    assert (REACHED.newest, REACHED.alive_from) == ((103, 95), (80, 80))
    assert Reached.of(QUERY, [100, 90], newest=98).newest == (103, 98), "rows under an earlier delay"
    assert REACHED.expired(0, 79)
    assert not REACHED.expired(0, 80), "it may match a row at the watermark"


def test_what_follows_each_phase() -> None:
    begun = REACHED.begin("x", 0)
    assert begun == HotKey("x", 0, Phase.COPYING, 95)
    assert REACHED.begin("x", 1) == HotKey("x", 1, Phase.COPYING, 103)

    def following(phase: Phase, bound: int) -> dict[Phase | None, HotKey | None]:
        return REACHED.following(HotKey("x", 0, phase, bound))

    spread, expiring = HotKey("x", 0, Phase.SPREAD), HotKey("x", 0, Phase.EXPIRING, 95)
    assert following(Phase.COPYING, 80) == {Phase.EXPIRING: expiring}
    assert following(Phase.COPYING, 79) == {Phase.EXPIRING: expiring, Phase.SPREAD: spread}
    assert following(Phase.SPREAD, BEFORE_ALL) == {Phase.COOLING: HotKey("x", 0, Phase.COOLING, 103)}
    assert following(Phase.COOLING, 80) == {Phase.SPREAD: spread}
    assert following(Phase.COOLING, 79) == {Phase.SPREAD: spread, Phase.EXPIRING: expiring}
    assert following(Phase.EXPIRING, 80) == {Phase.COPYING: begun}
    assert following(Phase.EXPIRING, 79) == {Phase.COPYING: begun, None: None}


def test_a_table_that_does_not_follow_is_refused() -> None:
    begun = REACHED.begin("x", 0)
    require_following({}, {1: begun}, REACHED, (0, 1))
    require_following({1: begun}, {1: begun}, REACHED, (0, 1))
    for before, after in (
        ({}, {1: REACHED.begin("x", 1)}),  # not spreadable
        ({}, {1: replace(begun, bound=94)}),
        ({}, {1: HotKey("x", 0, Phase.SPREAD)}),
        ({1: begun}, {}),
        ({1: begun}, {1: HotKey("x", 0, Phase.SPREAD)}),
        ({1: begun}, {1: replace(begun, spread=1)}),
        ({1: HotKey("x", 0, Phase.SPREAD)}, {}),
    ):
        with pytest.raises(StateMismatchError) as error:
            require_following(before, after, REACHED, (0,))
        assert "rows of key x were sent as" in str(error.value)
        assert "run the query with wm.write and split_hot_keys" in str(error.value)


def test_a_table_is_json() -> None:
    table = {5: REACHED.begin("x", 1), -3: HotKey("y, 2", 0, Phase.SPREAD)}
    assert from_json(json.loads(json.dumps(as_json(table)))) == table


@pytest.mark.parametrize(
    ("query", "spreadable"),
    [
        (QUERY, (0, 1)),
        (replace(QUERY, how="left"), (0,)),
        (replace(QUERY, how="right"), (1,)),
        (replace(QUERY, how="full"), ()),
        (replace(QUERY, how="semi"), (0,)),
        (JoinQuery((SPEC_A, replace(SPEC_B, window=Unbounded()))), ()),
        (JoinQuery((SPEC_A, replace(SPEC_B, window=RowsWindow(3, per_key=True), order_by="b_ts"))), ()),
        (JoinQuery((SPEC_A, replace(SPEC_B, late_share=0.01))), ()),
        (JoinQuery((SPEC_A, replace(SPEC_B, constraints=(Unique(),)))), ()),
        (JoinQuery((SPEC_A, replace(SPEC_B, upstream_shards=2))), ()),
        (
            JoinQuery(
                (
                    SPEC_A,
                    SPEC_B,
                    StreamSpec("c", pa.schema([("k", pa.int64()), ("c", pa.int64())]), "c", ("k",), TimeWindow(1)),
                )
            ),
            (),
        ),
    ],
)
def test_streams_that_may_be_spread(query: JoinQuery, spreadable: tuple[int, ...]) -> None:
    assert may_split(query) == spreadable


# ---------------------------------------------------------------- the rule


def decided(decision: Decision, table: Table, batches: int, load: tuple[int, int], total: int = 100_000) -> Table:
    """The table after so many batches with this load of key 1."""
    for _ in range(batches):
        table = decision.next(table, REACHED, {1: Load("x", load)}, total)
    return table


def test_a_key_that_was_hot_in_three_batches_is_split() -> None:
    decision = Decision(2, (0, 1))
    assert decided(decision, {}, 2, (20_000, 0)) == {}
    assert decided(decision, {}, 1, (20_000, 0)) == {1: REACHED.begin("x", 0)}
    assert decided(Decision(2, (0, 1)), {}, 3, (1_000, 20_000)) == {1: REACHED.begin("x", 1)}, "the larger one"


@pytest.mark.parametrize(
    ("load", "total", "shards", "hot"),
    [
        ((20_000, 10_000), 100_000, 2, True),
        ((19_999, 0), 100_000, 2, False),  # less than 20 % above the mean
        ((9_999, 0), 10_000, 2, False),  # few rows
        ((20_000, 10_001), 100_000, 2, False),  # copies would be more than the rows
        ((25_000, 0), 500_000, 5, True),
        ((25_000, 0), 500_001, 5, False),
    ],
)
def test_which_key_is_hot(load: tuple[int, int], total: int, shards: int, hot: bool) -> None:
    assert bool(decided(Decision(shards, (0, 1)), {}, 5, load, total)) == hot


def test_a_pause_begins_anew() -> None:
    decision = Decision(2, (0, 1))
    decided(decision, {}, 2, (20_000, 0))
    decided(decision, {}, 1, (0, 0))
    assert decided(decision, {}, 2, (20_000, 0)) == {}


def test_a_split_key_is_merged_when_it_was_cool_in_ten_batches() -> None:
    table: Table = {1: HotKey("x", 0, Phase.SPREAD)}
    warm = Decision(2, (0, 1))
    assert decided(warm, table, 50, (10_000, 0)) == table, "half of the bounds"
    cool = Decision(2, (0, 1))
    assert decided(cool, table, 9, (9_999, 0)) == table
    assert decided(cool, table, 1, (9_999, 0)) == {1: HotKey("x", 0, Phase.COOLING, 103)}
    none = Decision(2, ())
    assert decided(none, table, 10, (50_000, 0)) == {1: HotKey("x", 0, Phase.COOLING, 103)}, "no key is to be split"


def test_phases_go_on_when_they_may() -> None:
    rule = Rule(rows=1, hot_batches=1, cool_batches=1)
    hot, cool = (60_000, 0), (0, 0)
    copying, expiring = HotKey("x", 0, Phase.COPYING, 79), HotKey("x", 0, Phase.EXPIRING, 79)
    spread, cooling = HotKey("x", 0, Phase.SPREAD), HotKey("x", 0, Phase.COOLING, 79)
    for entry, load, then in (
        (copying, hot, spread),
        (replace(copying, bound=80), hot, replace(copying, bound=80)),
        (copying, cool, replace(expiring, bound=95)),
        (spread, hot, spread),
        (spread, cool, replace(cooling, bound=103)),
        (cooling, hot, spread),
        (cooling, cool, replace(expiring, bound=95)),
        (replace(cooling, bound=80), cool, replace(cooling, bound=80)),
        (expiring, hot, replace(copying, bound=95)),
        (expiring, cool, None),
        (replace(expiring, bound=80), cool, replace(expiring, bound=80)),
    ):
        found = decided(Decision(2, (0, 1), rule), {1: entry}, 1, load)
        assert found == ({} if then is None else {1: then}), (entry, load)


def test_a_table_has_a_bound() -> None:
    decision = Decision(64, (0, 1), Rule(hot_batches=1))
    loads = {word: Load(str(word), (10_000, 0)) for word in range(40)}
    assert len(decision.next({}, REACHED, loads, 500_000)) == MOST_KEYS
