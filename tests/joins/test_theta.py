"""Joins without equality, by loops over blocks and by sorted indexes, beside the rules."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.configurations import WITHOUT_EQUALITY
from lab.joins.oracle import Row, bag, step, stored
from lab.joins.theta_scripts import (
    CONDITIONS,
    INDEXABLE,
    Condition,
    ThetaComparison,
    ThetaScript,
    started,
    theta_scripts,
)
from watersmeet.checkpoints.redistribute import redistribute
from watersmeet.checkpoints.reopen import reopen
from watersmeet.cost.measured_parameters import assumed
from watersmeet.cost.options import cost_of_join
from watersmeet.errors import QueryError, StateMismatchError, WindowError
from watersmeet.joins import plan
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.punctuations import BatchPunctuations, Ordered, Punctuation, Range
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.optimizer.planner import make_plan
from watersmeet.query.predicate_parser import parse
from watersmeet.state import value_lists
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log
from watersmeet.state.shards import ShardKeys

few = settings(max_examples=max(10, settings().max_examples // 2))
CONDITIONS_OF = dict(zip(WITHOUT_EQUALITY, (CONDITIONS, INDEXABLE), strict=True))
Case = tuple[str, ThetaScript]


@st.composite
def cases(draw: st.DrawFn, batches: int = 5, *, punctuated: bool = True) -> Case:
    algorithm = draw(st.sampled_from(WITHOUT_EQUALITY))
    return algorithm, draw(theta_scripts(CONDITIONS_OF[algorithm], batches=batches, punctuated=punctuated))


# ---------------------------------------------------------------- beside the rules


@few
@given(cases(), st.integers(1, 4))
def test_every_batch_is_what_the_rules_make_of_it(case: Case, shards: int) -> None:
    algorithm, script = case
    joins = [started(script, algorithm, shard, shards) for shard in range(shards)]
    comparison = ThetaComparison(script)
    for n in range(len(script.batches)):
        comparison.step(joins, n)


@few
@given(cases(batches=6), st.data())
def test_a_restart_between_batches_changes_nothing(case: Case, data: st.DataObject) -> None:
    algorithm, script = case
    comparison, join = ThetaComparison(script), started(script, algorithm)
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(len(script.batches)):
        outcome = comparison.step([join], n)
        header = log.commit(join, header, store)
        if data.draw(st.booleans(), label="restart"):
            join = started(script, algorithm)
            log.rebuild(join, header, store)
            comparison.check_state([join], outcome)


@few
@given(cases(batches=6), st.data())
def test_a_copy_that_is_behind_catches_up(case: Case, data: st.DataObject) -> None:
    algorithm, script = case
    comparison, join = ThetaComparison(script), started(script, algorithm)
    store, header = log.MemoryStore(), log.begin(script.query())
    copy, token = started(script, algorithm), ""
    for n in range(len(script.batches)):
        outcome = comparison.step([join], n)
        header = log.commit(join, header, store)
        if not token:
            log.rebuild(copy, header, store)
            token = header.token
        elif data.draw(st.booleans(), label="catch up") and log.catch_up(copy, token, header, store):
            comparison.check_state([copy], outcome)
            join, copy, token = copy, started(script, algorithm), ""


@few
@given(cases(batches=4))
def test_a_working_state_is_picked_up_by_the_next_process(case: Case) -> None:
    algorithm, script = case
    with tempfile.TemporaryDirectory() as name:
        folder, store = Path(name), log.MemoryStore()
        comparison, header = ThetaComparison(script), log.begin(script.query())
        join = plan(script.query(), algorithm).start(MappedArrays(folder))
        for n in range(len(script.batches)):
            outcome = comparison.step([join], n)
            header = log.commit(join, header, store)
            cache.save(join, folder)
            join = plan(script.query(), algorithm).start(MappedArrays(folder))
            assert cache.load(join, folder)
            comparison.check_state([join], outcome)


@few
@given(cases(), st.integers(1, 3))
def test_results_may_come_in_small_pieces(case: Case, chunk: int) -> None:
    algorithm, script = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_lists, "CHUNK", chunk)
        comparison, join = ThetaComparison(script), started(script, algorithm)
        for n in range(len(script.batches)):
            comparison.step([join], n)


# ---------------------------------------------------------------- beside DuckDB

SQL = {
    "inner": "SELECT * FROM a JOIN b ON {on}",
    "left": "SELECT * FROM a LEFT JOIN b ON {on}",
    "semi": "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {on})",
    "anti": "SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {on})",
}


@few
@given(cases(punctuated=False), st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_a_batch_join_in_sql_gives_the_same(case: Case, lengths: tuple[int, int]) -> None:
    algorithm, made = case
    whole = [tuple(t for pair in made.batches for t in pair[i].tuples if t.ts is not None) for i in (0, 1)]
    ended = ((Elements(whole[0], ended=True), Elements(whole[1], ended=True)),)
    script = replace(made, windows=tuple(map(TimeWindow, lengths)), batches=ended)
    batches = [script.batch(0, i) for i in (0, 1)]
    found = step(plan(script.query(), algorithm).start(), batches)
    assert bag(found) == in_sql(batches, script.how, script.condition.sql, lengths)


def in_sql(batches: list[Batch], how: str, where: str, lengths: tuple[int, int]) -> Counter[Row]:
    on = f"a_ts >= b_ts - {lengths[0]} AND b_ts >= a_ts - {lengths[1]} AND ({where})"
    with duckdb.connect(config={"threads": 1}) as database:
        for name, batch in zip("ab", batches, strict=True):
            database.register(name, batch.rows)
        return bag(database.execute(SQL[how].format(on=on)).fetchall())


# ---------------------------------------------------------------- types

NAN, INF = float("nan"), float("inf")
#: Values near which doubles round, NaN and infinities.
FLOATS = [0.1, 0.2, 0.30000000000000004, 0.3, -0.0, 0.0, 1e15 + 0.5, -1e300, 1e300, NAN, INF, -INF, None, 5.1, 5.0]
WHOLE = [0, 1, 5, 6, -5, 2**53, 2**53 + 1, 2**62, -(2**62), None]
FLOATING = ["x <= y", "x < y", "abs(x - y) <= 5", "x - y >= 0.1", "5 <= x - y", "x + 0.1 = y", "y - x < 0.2", "x = y"]
IN_TIME = [
    "x <= y",
    "x < y",
    "x > y",
    "x = y",
    "abs(x - y) <= INTERVAL 1 MICROSECOND",
    "-(y - x) > INTERVAL -5 SECONDS",
]
WIDE = ["x <= y", "x < y", "x > y", "x = y", "x + 1 <= y", "abs(x - y) <= 1"]


TENTHS = [None, *(Decimal(n).scaleb(-1) for n in range(-20, 40))]


@pytest.mark.parametrize(
    ("kinds", "values", "conditions"),
    [
        ((pa.float64(),) * 2, [*FLOATS, 5e-324, 1e-323], [*FLOATING, "x * 0.1 = y * 0.1"]),
        ((pa.float32(),) * 2, FLOATS[:6] + FLOATS[9:], FLOATING),
        ((pa.float32(), pa.float64()), FLOATS[:6] + FLOATS[9:], FLOATING),
        ((pa.int64(),) * 2, WHOLE[:7] + WHOLE[9:], WIDE),
        ((pa.decimal128(20, 2),) * 2, [None if v is None else v * 100 for v in WHOLE[:7]], WIDE),
        ((pa.decimal128(5, 1), pa.decimal128(10, 3)), TENTHS, WIDE),
        ((pa.decimal128(10, 3), pa.decimal128(5, 1)), TENTHS, WIDE),
        ((pa.decimal128(5, 1), pa.float64()), TENTHS, WIDE),
        ((pa.int64(), pa.decimal128(10, 3)), WHOLE[:5], WIDE),
        ((pa.timestamp("us", "UTC"),) * 2, [*WHOLE[:5], 1_700_000_000_000_001, 1_700_000_000_000_000], IN_TIME),
    ],
    ids=lambda v: "-".join(map(str, v)) if isinstance(v[0], pa.DataType) else "",
)
def test_the_index_misses_no_match(
    kinds: tuple[pa.DataType, pa.DataType], values: list[Any], conditions: list[str]
) -> None:
    columns = [_column(values, kind) for kind in kinds]
    for text in conditions:
        found = []
        for algorithm in ("theta", "band"):
            query = JoinQuery(*typed(kinds, text))
            batches = [
                Batch.of(
                    pa.record_batch(
                        [pa.array([1] * len(values)), column, pa.array(range(len(values)))], schema=s.schema
                    ),
                    s.time,
                )
                for s, column in zip(query.streams, columns, strict=True)
            ]
            empty = Batch(no_rows(query.streams[1].schema))
            join = plan(query, algorithm).start()
            results = step(join, [batches[0], empty]) + step(
                join, [Batch(no_rows(query.streams[0].schema)), batches[1]]
            )
            found.append(bag([(row[2], row[5]) for row in results]))
        assert found[0] == found[1], text


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.timestamp("us", "UTC"):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array([v if v is None or not pa.types.is_floating(kind) else float(v) for v in values], kind)


def typed(kinds: tuple[pa.DataType, pa.DataType], where: str) -> tuple[tuple[StreamSpec, ...], str, Any]:
    specs = tuple(
        StreamSpec(
            n, pa.schema([(f"{n}_ts", pa.int64()), (c, kind), (f"{n}_n", pa.int64())]), f"{n}_ts", (), TimeWindow(5)
        )
        for n, c, kind in zip("ab", "xy", kinds, strict=True)
    )
    return specs, "inner", parse(where, columns_of(specs))


def test_sums_beyond_all_doubles_bound_nothing() -> None:
    """Attributes of one stream that are further apart than any double: the index looks at all."""
    kinds = (pa.float64(), pa.float64())
    specs, how, _ = typed(kinds, "x = y")
    specs = (replace(specs[0], schema=specs[0].schema.append(pa.field("w", pa.float64()))), specs[1])
    query = JoinQuery(specs, how, parse("x <= y AND y < w", columns_of(specs)))
    rows = pa.record_batch([[1], [-1.7e308], [0], [1.7e308]], schema=specs[0].schema)
    others = pa.record_batch([[1], [3.0], [0]], schema=specs[1].schema)
    join = plan(query, "band").start()
    assert len(step(join, [Batch.of(r, s.time) for r, s in zip((rows, others), specs, strict=True)])) == 1


# ---------------------------------------------------------------- purging


def purging(condition: Condition, *, ordered: bool = False, how: str = "inner") -> ThetaScript:
    constraints = ((), (Ordered(),) if ordered else ())
    return ThetaScript(condition, how, (TimeWindow(100), TimeWindow(100)), (0, 0), constraints, ())


def run(script: ThetaScript, *batches: tuple[Elements, Elements], algorithm: str = "band") -> tuple[Any, list[Row]]:
    script = replace(script, batches=batches)
    join = plan(script.query(), algorithm).start()
    found = [row for n in range(len(batches)) for row in step(join, [script.batch(n, i) for i in (0, 1)])]
    return join, found


NONE = Elements()


@pytest.mark.parametrize("algorithm", ["theta", "band"])
def test_a_range_purges_what_it_leaves_no_partner(algorithm: str) -> None:
    """x < y, and no more y > 100: every a with x >= 100 goes."""
    rows = Elements(tuple(Tuple(1, (x,), x) for x in (98, 99, 100, 101)))
    closed = Elements((), (Punctuation(Range(100, None, low_closed=False), 2),))
    join, _ = run(purging(CONDITIONS[1]), (rows, NONE), (NONE, closed), algorithm=algorithm)
    assert sorted(row[1] for row in stored(join, 0)) == [98, 99]
    assert join.counters.purged == 2


@pytest.mark.parametrize("algorithm", ["theta", "band"])
@pytest.mark.parametrize("kind", [pa.decimal128(15, 2), pa.decimal128(18, 6), pa.decimal128(38, 10)], ids=str)
def test_no_decimal_is_purged_that_may_still_match(kind: pa.DataType, algorithm: str) -> None:
    """x <= y, and no more y above x: every a stays, for y = x may come; of any size, though doubles round."""
    unit = Decimal(1).scaleb(-kind.scale)
    amounts = [
        Decimal(n).scaleb(-2)
        for n in (5, 57789110737818, 123456789012345, 99999999999999, *range(10**9, 10**9 + 400, 7))
    ]
    amounts = [a for a in amounts if a.adjusted() < kind.precision - kind.scale]
    for x in amounts:
        specs, how, where = typed((kind, kind), "x <= y")
        specs = (specs[0], replace(specs[1], compared="y"))
        join = plan(JoinQuery(specs, how, where), algorithm).start()
        one, same = (pa.record_batch([[1], pa.array([x], kind), [0]], schema=s.schema) for s in specs)
        nothing = [Batch(no_rows(s.schema)) for s in specs]
        above = Punctuation(Range(x + unit, None), 1)
        closed = BatchPunctuations.of([above], pa.schema([specs[1].schema.field("y")]))
        step(join, [Batch.of(one, "a_ts"), Batch.of(same.slice(0, 0), "b_ts", punctuations=closed)])
        assert len(step(join, [nothing[0], Batch.of(same, "b_ts")])) == 1, x


def test_an_ordered_stream_purges_as_it_goes() -> None:
    """abs(x - y) <= 2, and y ascends: at y = 10 rows with x < 8 have no partner to come."""
    rows = Elements(tuple(Tuple(1, (x,), x) for x in (5, 7, 8, 20)))
    join, _ = run(purging(CONDITIONS[0], ordered=True), (rows, NONE), (NONE, Elements((Tuple(2, (10,), 1),))))
    assert sorted(row[1] for row in stored(join, 0)) == [8, 20]


def test_a_purged_row_of_a_left_join_comes_out_at_once() -> None:
    rows = Elements((Tuple(1, (5,), 0), Tuple(1, (None,), 1)))
    closed = Elements((), (Punctuation(Range(None, 7), 2),))
    join, found = run(purging(CONDITIONS[0], how="left"), (rows, NONE), (NONE, closed))
    assert bag([row[:3] for row in found]) == bag([(1, None, 1), (1, 5, 0)])
    assert not stored(join, 0)


def test_the_index_holds_what_is_stored_and_no_more() -> None:
    rows = [(Elements((Tuple(t, (t % 7,), t),)), Elements((Tuple(t, (t % 5,), t),))) for t in range(0, 200, 10)]
    script = replace(purging(CONDITIONS[0]), windows=(TimeWindow(25), TimeWindow(25)))
    join, _ = run(script, *rows)
    assert [len(index.slots) for index in join.search.indexes] <= [5, 5]
    assert [len(s) for s in join.streams] == [3, 3]


# ---------------------------------------------------------------- refusals


def test_what_is_refused() -> None:
    script = purging(CONDITIONS[0])
    with pytest.raises(
        QueryError, match=r'`how` is "right", and the join has no equality.*\nHint: exchange the streams'
    ):
        replace(script, how="right").query()
    with pytest.raises(QueryError, match=r'`how` is "full", .*\nHint: take how="left" of each'):
        replace(script, how="full").query()
    with pytest.raises(
        QueryError, match=r'^"hash" computes joins on a key, and this one has none.\nHint: use algorithm="theta"'
    ):
        plan(script.query(), "hash")
    with pytest.raises(QueryError, match=r'^"band" needs a condition that bounds a column of each stream'):
        plan(purging(CONDITIONS[-1]).query(), "band")
    counted = replace(script, windows=(RowsWindow(3), TimeWindow(1)))
    with pytest.raises(
        WindowError,
        match=r'has a window of 3 rows; sorted indexes are for windows of time.\nHint: use algorithm="theta"',
    ):
        plan(counted.query(), "band")
    with pytest.raises(WindowError, match='a join without equality counts rows if it is inner, and this one is "left"'):
        plan(replace(counted, how="left").query(), "theta")
    with pytest.raises(
        QueryError, match="stream `a` closes values of `x`, and `a` has a window of rows; a row that waits to be"
    ):
        plan(counted.query(), "theta")
    with pytest.raises(WindowError, match="counts rows per key, and the join has no key"):
        replace(script, windows=(RowsWindow(3, per_key=True), TimeWindow(1))).query()


def test_a_state_is_reopened_and_not_divided_anew() -> None:
    script = replace(purging(CONDITIONS[0]), batches=((Elements((Tuple(1, (5,), 0),)), NONE),))
    join, store = plan(script.query(), "band").start(), log.MemoryStore()
    step(join, [script.batch(0, i) for i in (0, 1)])
    header = log.commit(join, log.begin(script.query(), 0, 1, (0,)), store)
    again = reopen(header, store)
    assert [len(s) for s in again.streams] == [1, 0]
    assert again.query.is_theta
    with pytest.raises(StateMismatchError, match="of a join without equality; rows of a stream are copied"):
        redistribute([store], [log.MemoryStore(), log.MemoryStore()], [0, 1])


def test_an_index_costs_less_than_comparing_all() -> None:
    script = purging(CONDITIONS[0])
    query = script.query()
    costs = [cost_of_join(plan(query, name), assumed(query)) for name in WITHOUT_EQUALITY]
    assert [cost.work.rows_in for cost in costs] == [2000, 2000]
    assert costs[0].work.results == costs[1].work.results
    assert costs[0].work.scanned > 0 == costs[1].work.scanned
    assert make_plan(query).algorithm == "band"
    assert make_plan(purging(CONDITIONS[-1]).query()).algorithm == "theta"


def test_copies_are_counted_once() -> None:
    script = purging(CONDITIONS[0])
    join = plan(script.query(), "band").start()
    join.owns(ShardKeys(1, 2))
    assert [join.copied(i) for i in (0, 1)] == [False, True]
    join.owns(ShardKeys(0, 2))
    assert [join.copied(i) for i in (0, 1)] == [False, False]
