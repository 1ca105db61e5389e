"""Joins of several streams: bounded output, late forgetting, ties, what is refused, and DuckDB as a second oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.limits import limit_retention
from lab.joins.multiway_scripts import ALGORITHMS, inner, intervals, of, operator
from lab.joins.oracle import all_windows, bag, canonical, key_names, rows_of, step, stored
from lab.joins.scripts import NAMES, Comparison, Script, follow, scripts
from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.joins import REGISTRY, multiway, plan
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.punctuations import Punctuation, Unique, Value
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.predicate_parser import parse
from watersmeet.state import segments
from watersmeet.state.durable import log

#: Joins of two streams whose results may be texts.
TEXTUAL = ("hash", "pwjoin", "nested_loop", "general_lazy")
few = settings(max_examples=max(10, settings().max_examples // 4))
SCHEMA = [("ts", pa.int64()), ("k", pa.int64()), ("n", pa.int64())]


def spec(i: int, window: Window, **more: Any) -> StreamSpec:
    name = NAMES[i]
    schema = pa.schema([(f"{name}_{column}", kind) for column, kind in SCHEMA])
    return StreamSpec(name, schema, f"{name}_ts", (f"{name}_k",), window, **more)


def rows(s: StreamSpec, *tuples: tuple[int, int | None, int], ended: bool = False) -> Batch:
    columns = [pa.array([t[c] for t in tuples], pa.int64()) for c in range(3)]
    return Batch.of(pa.record_batch(columns, schema=s.schema), s.time, ended=ended)


# ---------------------------------------------------------------- the second oracle


@pytest.mark.parametrize("streams", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data())
def test_all_results_are_those_of_duckdb(name: str, streams: int, data: st.DataObject) -> None:
    script = data.draw(
        of(streams, kind=st.just("int64"), window=all_windows(), punctuated=False).map(without_punctuations)
    )
    join = operator(name, script.query(), every=data.draw(intervals(name))).start()
    out = [row for n in range(len(script.batches)) for row in step(join, engine(script, n))]
    out += step(join, [Batch(no_rows(s.schema), None, ended=True) for s in script.query().streams])
    assert bag(out) == bag(duckdb_join(script, join.query))
    assert [len(s) for s in join.streams] == [0] * len(join.streams)


def engine(script: Script, n: int) -> list[Batch]:
    return [script.batch(n, i) for i in range(len(script.windows))]


def without_punctuations(script: Script) -> Script:
    """The same without constraints: no punctuation, no end, and silence means nothing."""
    batches = tuple(tuple(Elements(n.tuples) for n in arrivals) for arrivals in script.batches)
    return replace(script, batches=batches, idle_after=(None,) * len(script.windows))


def duckdb_join(script: Script, query: JoinQuery) -> list[tuple[Any, ...]]:
    """A batch join in SQL over the rows that are not late, with the windows written out as predicates."""
    names = NAMES[: len(script.windows)]
    now = f"greatest({', '.join(f'{x}.{x}_ts' for x in names)})"
    where, columns = [], [f"a.{key_names('int64', 0)[0]}"]
    for i, x in enumerate(names):
        window, key = script.windows[i], key_names("int64", i)[0]
        columns += [f"{x}.{x}_ts", f"{x}.{x}_n"]
        where.append(f"{x}.{key} = a.{key_names('int64', 0)[0]}")
        if isinstance(window, TimeWindow):
            where.append(f"{x}.{x}_ts {'>=' if window.closed else '>'} {now} - {window.length}")
        if isinstance(window, RowsWindow):
            later = f"o.{x}_ts <= {now} AND (o.{x}_ts, o.{x}_n) > ({x}.{x}_ts, {x}.{x}_n)"
            same = f" AND o.{key} = {x}.{key}" if window.per_key else ""
            where.append(f"(SELECT count(*) FROM {x} o WHERE {later}{same}) < {window.rows}")
    with duckdb.connect(config={"threads": 1}) as database:
        for i, x in enumerate(names):
            database.register(x, pa.table(on_time(script, i)))
        tables = ", ".join(names)
        found = database.execute(f"SELECT {', '.join(columns)} FROM {tables} WHERE {' AND '.join(where)}").fetchall()
    return [tuple(map(canonical, row)) for row in found]


def on_time(script: Script, i: int) -> dict[str, Any]:
    watermark, kept = -(1 << 62), []
    for arrivals in script.batches:
        kept += [t for t in arrivals[i].tuples if t.ts is not None and t.ts >= watermark]
        watermark = max([watermark, *(t.ts - script.delays[i] for t in arrivals[i].tuples if t.ts is not None)])
    x, key = NAMES[i], key_names("int64", i)[0]
    columns = {f"{x}_ts": [t.ts for t in kept], key: [t.key[0] for t in kept], f"{x}_n": [t.row for t in kept]}
    return {name: pa.array(values, pa.int64()) for name, values in columns.items()}


@pytest.mark.parametrize("name", ["lazy", "general_lazy"])
@few
@given(script=of(3, window=all_windows()), every=st.sampled_from([1, 4, 10]))
def test_a_lazy_run_gives_what_an_eager_one_gives_and_later(name: str, script: Script, every: int) -> None:
    eager, lazy = plan(script.query(), "eager").start(), plan(script.query(), name, every=every).start()
    ends = [Batch(no_rows(s.schema), None, ended=True) for s in script.query().streams]
    early: list[Any] = []
    late: list[Any] = []
    for batches in [*(engine(script, n) for n in range(len(script.batches))), ends]:
        early += step(eager, batches)
        late += step(lazy, batches)
        assert not bag(late) - bag(early)
    assert bag(early) == bag(late)


# ---------------------------------------------------------------- bounded output


@pytest.mark.parametrize("name", ["general_lazy", "eager"])
def test_a_row_that_matches_very_much_comes_out_in_pieces(name: str) -> None:
    a, b, c = specs = [spec(i, TimeWindow(1000)) for i in range(3)]
    join = plan(JoinQuery(tuple(specs)), name).start()
    many = [(n, 7, n) for n in range(600)]
    assert list(join.step([rows(a), rows(b, *many), rows(c, *many)])) == []
    tables = [table.num_rows for table in join.step([rows(a, (600, 7, 0), (600, 8, 1)), rows(b), rows(c)])]
    assert sum(tables) == 360_000 == join.counters.results
    assert len(tables) > 1
    assert max(tables) <= multiway.CHUNK


@pytest.mark.parametrize("where", [None, "a_v > 'a'", "a_v = b_v"])
@pytest.mark.parametrize(("name", "streams"), [*((n, 2) for n in TEXTUAL), ("general_lazy", 3), ("eager", 3)])
def test_long_texts_come_out_in_pieces_of_bounded_size(name: str, streams: int, where: str | None) -> None:
    """Every row has a text of 1,000 letters and 20 partners in each other stream."""
    kinds = [("ts", pa.int64()), ("k", pa.int64()), ("v", pa.string())]
    specs = []
    for n in NAMES[:streams]:
        schema = pa.schema([(f"{n}_{column}", kind) for column, kind in kinds])
        specs.append(StreamSpec(n, schema, f"{n}_ts", (f"{n}_k",), TimeWindow(1000)))
    holds = None if where is None else parse(where, columns_of(tuple(specs)))
    join = plan(JoinQuery(tuple(specs), where=holds), name).start()
    many = [(n, 7, "x" * 1000) for n in range(20)]

    def batch(s: StreamSpec) -> Batch:
        columns = [pa.array(c, kind) for c, (_, kind) in zip(zip(*many, strict=True), kinds, strict=True)]
        return Batch.of(pa.record_batch(columns, schema=s.schema), s.time)

    nothing = [Batch(no_rows(s.schema), None) for s in specs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "TABLE_BYTES", 10_000)
        tables = []
        for i, one in enumerate(specs):
            tables += list(join.step([*nothing[:i], batch(one), *nothing[i + 1 :]]))
    assert sum(t.num_rows for t in tables) == 20**streams == join.counters.results
    assert max(t.nbytes for t in tables) < 20_000


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_row_has_its_share_the_newest_first(name: str) -> None:
    a, b, c = specs = [spec(i, TimeWindow(100)) for i in range(3)]
    algorithm, options = ALGORITHMS[name]
    join = plan(JoinQuery(tuple(specs)), algorithm, max_matches_per_row=3, **options).start()
    step(join, [rows(a), rows(b, (1, 7, 1), (2, 7, 2)), rows(c, (1, 7, 1), (2, 7, 2))])
    found = step(join, [rows(a, (3, 7, 0), (3, 7, 1)), rows(b), rows(c)])
    partners = {r[4::2] for r in found if r[2] == 0}
    assert len(found) == 6
    assert partners == {(2, 2), (2, 1), (1, 2)} if name != "hybrid" else (2, 2) in partners
    assert (join.counters.results, join.counters.suppressed) == (6, 2)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_only_what_fits_the_condition_counts_for_the_share(name: str) -> None:
    """Of four combinations of the new row two fit; both come out, though others are found before them."""
    a, b, c = specs = tuple(spec(i, TimeWindow(100)) for i in range(3))
    algorithm, options = ALGORITHMS[name]
    where = parse(f"{b.payload[-1]} = 1", columns_of(specs))
    join = plan(JoinQuery(specs, where=where), algorithm, max_matches_per_row=2, **options).start()
    step(join, [rows(a), rows(b, (1, 7, 1), (2, 7, 2)), rows(c, (1, 7, 1), (2, 7, 2))])
    found = step(join, [rows(a, (3, 7, 0)), rows(b), rows(c)])
    assert {r[4::2] for r in found} == {(1, 2), (1, 1)}
    assert (join.counters.results, join.counters.suppressed) == (2, 0)


@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data(), most=st.integers(1, 3), chunk=st.integers(1, 5))
def test_what_is_suppressed_is_counted(name: str, most: int, chunk: int, data: st.DataObject) -> None:
    script = data.draw(of(3))
    algorithm, options = ALGORITHMS[name]
    whole = operator(name, script.query()).start()
    bounded = plan(script.query(), algorithm, max_matches_per_row=most, **options).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiway, "CHUNK", chunk)
        for n in range(len(script.batches)):
            everything, some = step(whole, engine(script, n)), step(bounded, engine(script, n))
            assert not bag(some) - bag(everything)
            assert len(some) + bounded.counters.suppressed == len(everything)
            assert len(some) <= most * bounded.counters.rows_in


# ---------------------------------------------------------------- late forgetting


@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data(), interval=st.sampled_from([2, 7]))
def test_expiration_may_wait(name: str, interval: int, data: st.DataObject) -> None:
    """What is stored beyond what the rules keep is stale, counted, and has left its window since the last multiple."""
    script = without_punctuations(data.draw(of(3, window=all_windows(), punctuated=False)))
    algorithm, options = ALGORITHMS[name]
    join = plan(script.query(), algorithm, expiration=interval, **options).start()
    comparison = Comparison(script)
    for n in range(len(script.batches)):
        results = step(join, engine(script, n))
        outcome = comparison.rules.step(script.batches[n])
        assert bag(results) == bag([comparison.combination(c) for c in outcome.pairs])
        stale = 0
        for i, window in enumerate(script.windows):
            counted = isinstance(window, RowsWindow)
            held = bag([row[:-1] if counted else row for row in stored(join, i)])
            needed = bag([comparison.row(i, t) for t in outcome.stored[i]])
            assert held >= needed
            stale += (held - needed).total()
            if isinstance(window, TimeWindow):
                bound = join.bound(i) - join.bound(i) % interval
                assert all(row[0] + window.reach >= bound for row in held)
        assert join.counters.stale == stale


@pytest.mark.parametrize(("expiration", "looked_at"), [(None, [0, 0, 0]), (20, [1, 1, 1])])
def test_what_is_stale_costs_a_look(expiration: int | None, looked_at: list[int]) -> None:
    a, b = spec(0, TimeWindow(10)), spec(1, TimeWindow(10))
    join = plan(JoinQuery((a, b)), "eager", expiration=expiration).start()
    step(join, [rows(a, (0, 7, 0)), rows(b)])
    work = []
    for n in range(3):
        assert step(join, [rows(a), rows(b, (11 + n, 7, n))]) == []
        work.append(join.counters.probed)
    assert work == looked_at


@pytest.mark.parametrize(
    ("algorithm", "index", "looked_at"),
    [
        ("naive_multiway", "scan", [0, 0, 0, 3, 3, 9]),
        ("naive_multiway", "hash", [0, 0, 0, 3, 3, 5]),
        ("eager", "scan", [0, 0, 0, 3, 3, 5]),
        ("eager", "hash", [0, 0, 0, 1, 1, 2]),
        ("hybrid", ("b",), [0, 0, 0, 3, 3, 4]),
    ],
)
def test_the_order_of_the_loops_decides_what_is_looked_at(algorithm: str, index: Any, looked_at: list[int]) -> None:
    """The table of docs/operators/multiway_loops.md."""
    specs = [spec(i, TimeWindow(10)) for i in range(3)]
    join = plan(JoinQuery(tuple(specs)), algorithm, index=index).start()
    x, y, z = range(3)
    work, found = [], []
    for time, (i, key) in enumerate([(0, x), (0, y), (0, z), (1, x), (1, y), (2, y)], 1):
        batches = [rows(s, (time, key, 0)) if j == i else rows(s) for j, s in enumerate(specs)]
        found += step(join, batches)
        work.append(join.counters.probed)
    assert work == looked_at
    assert found == [(y, 2, 0, 5, 0, 6, 0)]


# ---------------------------------------------------------------- ties


@few
@given(data=st.data())
def test_equal_rows_may_stand_in_a_window_of_rows(data: st.DataObject) -> None:
    """Tuples with equal times and numbers, distinguished by their keys or not at all."""
    script = data.draw(scripts(kind=st.just("bool"), how=inner, streams=3, rows=4, batches=4, window=all_windows()))
    doubled = tuple(
        tuple(replace(n, tuples=tuple(replace(t, row=t.row % 2) for t in n.tuples)) for n in arrivals)
        for arrivals in script.batches
    )
    script = without_punctuations(replace(script, batches=doubled, constraints=((), (), ())))
    follow(script, plan(script.query(), "general_lazy").start())


def test_ties_are_broken_by_the_bytes_of_the_row() -> None:
    """Keys 1 and 2 at one instant: of the last one alone only the greater row is left, in whatever order they come."""
    for tuples in ([(5, 1, 0), (5, 2, 0)], [(5, 2, 0), (5, 1, 0)]):
        a, b = spec(0, RowsWindow(1)), spec(1, TimeWindow(9))
        join = plan(JoinQuery((a, b)), "general_lazy").start()
        assert step(join, [rows(a, *tuples), rows(b, (6, 1, 0), (6, 2, 0))]) == []
        assert step(join, [rows(a, (7, 9, 0)), rows(b)]) == [(2, 5, 0, 6, 0)]


def test_ties_are_broken_by_a_column_first() -> None:
    for tuples in ([(5, 1, 9), (5, 2, 3)], [(5, 2, 3), (5, 1, 9)]):
        a, b = spec(0, RowsWindow(1), order_by="a_n"), spec(1, TimeWindow(9))
        join = plan(JoinQuery((a, b)), "general_lazy").start()
        step(join, [rows(a, *tuples), rows(b, (6, 1, 0), (6, 2, 0))])
        assert step(join, [rows(a, (7, 9, 0)), rows(b)]) == [(1, 5, 9, 6, 0)]


# ---------------------------------------------------------------- a short script


def test_three_streams_and_a_dead_value() -> None:
    script = Script("int64", "inner", (TimeWindow(10),) * 3, (0, 0, 0), ((), (), ()), ())
    comparison = Comparison(script)
    join = plan(script.query(), "general_lazy").start()
    steps = [
        (Elements((Tuple(1, (7,), 0), Tuple(1, (8,), 1))), Elements((Tuple(2, (7,), 0),)), Elements()),
        # c holds no 8 and says that none will come: 8 is dead, though b has not closed it
        (Elements(), Elements((Tuple(3, (8,), 1),)), Elements(punctuations=(Punctuation(Value((8,)), 3),))),
        # a's and b's 8 go unread from now on
        (Elements((Tuple(4, (8,), 2),)), Elements((Tuple(4, (8,), 2),)), Elements((Tuple(4, (7,), 0),))),
    ]
    comparison.script = replace(script, batches=tuple(steps))
    kept, propagated = [], []
    for n in range(len(steps)):
        comparison.step(join, n)
        kept.append([[row[1] for row in stored(join, i)] for i in range(3)])
        propagated.append([row for some in join.propagated for row in rows_of(some)])
    assert kept == [[[7, 8], [7], []], [[7], [7], []], [[7], [7], [7]]]
    assert propagated == [[], [(8,)], []]
    assert (join.counters.purged, join.counters.dead) == (0, 2)


def test_eight_streams() -> None:
    """One key that all hold, one that the last does not; and the window of the first is the shortest."""
    specs = [spec(i, TimeWindow(3 if i == 0 else 10)) for i in range(8)]
    join = plan(JoinQuery(tuple(specs)), "general_lazy", order=(7, 6, 5, 4, 3, 2, 1, 0)).start()
    found = step(join, [rows(s, (0 if s is specs[0] else 3, 1, 0), (3, 2, 1)) for s in specs[:7]] + [rows(specs[7])])
    assert found == []
    assert step(join, [*(rows(s) for s in specs[:7]), rows(specs[7], (3, 1, 0), (4, 1, 1))]) == [(1, 0, 0, *[3, 0] * 7)]


def test_a_closed_key_of_which_a_tuple_waits_is_not_dead_when_it_is_merged_into_a_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """b closes its keys 1, 2, 3 by showing them, and may remember one: they become a range while they wait."""
    limit_retention(monkeypatch, 1, 1)
    a, b = spec(0, TimeWindow(9)), spec(1, TimeWindow(9), constraints=(Unique(),))
    join = plan(JoinQuery((a, b)), "general_lazy", every=10).start()
    assert step(join, [rows(a), rows(b, (1, 1, 0), (2, 2, 0), (3, 3, 0))]) == []
    assert step(join, [rows(a, (4, 2, 0)), rows(b)]) == []
    assert step(join, [rows(a, (5, 3, 0), (11, 9, 0)), rows(b, (11, 9, 0))]) == [(2, 4, 0, 2, 0), (3, 5, 0, 3, 0)]


def test_a_row_that_left_a_window_of_rows_does_not_come_back() -> None:
    """1, 2 and 3 are stored with one batch; in the next 4 and 5 push 1 and 2 out. Their segment stays, for 3."""
    a, b = spec(0, RowsWindow(3)), spec(1, TimeWindow(0))
    query = JoinQuery((a, b))
    join, store, header = plan(query, "general_lazy").start(), log.MemoryStore(), log.begin(query)
    for batch in ([(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0)], [(5, 5, 0), (6, 6, 0)]):
        step(join, [rows(a, *batch), rows(b, (batch[-1][0], 9, 0))])
        header = log.commit(join, header, store)
    assert [row[1] for row in stored(join, 0)] == [3, 4, 5]
    again = plan(query, "general_lazy").start()
    log.rebuild(again, header, store)
    assert bag(stored(again, 0)) == bag(stored(join, 0))


# ---------------------------------------------------------------- what is refused


def three(**more: Any) -> JoinQuery:
    return JoinQuery(tuple(spec(i, TimeWindow(1)) for i in range(3)), **more)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": (0, 1)}, r"`order` is \(0, 1\); it names each of the 3 streams once"),
        ({"order": (0, 1, 1)}, r"`order` is \(0, 1, 1\); it names"),
        ({"order": ((1, 2), (0, 2), (0, 2))}, r"`order` is \(\(1, 2\), .*all others"),
        ({"every": 0}, "`every` is 0 seconds; it is a duration of a microsecond or more, or None"),
        ({"expiration": -1}, "`expiration` is -1 microsecond; it is a duration of a microsecond"),
        ({"index": "tree"}, "`index` is 'tree'; a window is looked through by one of hash, scan"),
        ({"max_matches_per_row": 0}, "`max_matches_per_row` is 0; it is a whole number from 1 on"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=f"^{message}.*\nHint: "):
        plan(three(), "general_lazy", **options)


def test_an_order_set_later_is_checked_too() -> None:
    join = plan(three(), "eager").start()
    with pytest.raises(QueryError, match=r"^`order` is \(2, 1\)"):
        join.order = (2, 1)


@pytest.mark.parametrize("index", ["a", ("z",)])
def test_hybrid_is_given_streams(index: Any) -> None:
    with pytest.raises(QueryError, match=r"^`index` is .*; it names the streams to be indexed, of a, b, c\.\nHint: "):
        plan(three(), "hybrid", index=index)


def test_several_streams_are_joined_inner() -> None:
    with pytest.raises(QueryError, match=r'^`how` is "left" and there are 3 streams; .*\nHint: '):
        three(how="left")
    with pytest.raises(QueryError, match=r'^"lazy" computes inner joins of two to 8 .*; got "left" of 2.\nHint: '):
        plan(JoinQuery(tuple(spec(i, TimeWindow(1)) for i in range(2)), "left"), "lazy")


def test_nine_streams_are_too_many() -> None:
    nine = tuple(
        StreamSpec(f"s{i}", pa.schema([(f"t{i}", pa.int64()), (f"k{i}", pa.int64())]), f"t{i}", (f"k{i}",), Unbounded())
        for i in range(9)
    )
    for name in ("naive_multiway", "eager", "lazy", "general_lazy", "hybrid"):
        assert name in REGISTRY
        with pytest.raises(
            QueryError,
            match=rf'^"{name}" .* of two to 8 streams; got "inner" of 9.\nHint: join some',
        ):
            plan(JoinQuery(nine), name)


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_a_window_of_rows_holds_one_at_least(n: Any) -> None:
    with pytest.raises(WindowError, match=r"^`rows` is .*; a window of rows holds at least the newest one"):
        RowsWindow(n)


@pytest.mark.parametrize("name", ["hash", "nested_loop", "pwjoin", "windowed_hash"])
def test_joins_that_know_time_only_refuse_to_count_rows(name: str) -> None:
    query = JoinQuery((spec(0, TimeWindow(1)), spec(1, RowsWindow(3))))
    with pytest.raises(
        WindowError, match=r'^stream `b` has a window of 3 rows; .*\nHint: use algorithm="general_lazy"'
    ):
        plan(query, name, **({"buckets": 4} if name == "windowed_hash" else {}))


def test_ties_are_broken_by_a_column_that_there_is() -> None:
    with pytest.raises(ColumnError, match=r"^`order_by` of stream `a` names column `x`, which it does not have"):
        spec(0, RowsWindow(1), order_by="x")
    fields = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("l", pa.list_(pa.int64()))])
    with pytest.raises(ColumnError, match=r"^`order_by` of stream `s` is column `l` of type list"):
        StreamSpec("s", fields, "t", ("k",), RowsWindow(1), order_by="l")


def test_windows_of_rows_are_part_of_what_a_state_depends_on() -> None:
    digests = {
        JoinQuery((spec(0, window, **more), spec(1, TimeWindow(1)))).digest()
        for window in (RowsWindow(1), RowsWindow(2), RowsWindow(1, per_key=True), Unbounded())
        for more in ({}, {"order_by": "a_n"})
    }
    assert len(digests) == 8
