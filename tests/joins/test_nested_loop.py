"""The nested-loop join by the numbers of its docstring. The rest is in the contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lab.joins.oracle import Scenario, Side, step, stored
from watersmeet.errors import QueryError
from watersmeet.joins import Join
from watersmeet.joins.baselines.nested_loop import NestedLoopJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import TimeWindow


def tuples(*times: int, key: int = 0) -> tuple[Tuple, ...]:
    return tuple(Tuple(ts, (key,), n) for n, ts in enumerate(times))


def scenario(a: Side, b: Side) -> Scenario:
    return Scenario("int64", pa.int64(), (a, b))


def test_eviction_by_the_numbers_of_the_docstring() -> None:
    given = scenario(
        Side(TimeWindow(10), 0, (tuples(22, 23, 24, 25), ())), Side(TimeWindow(0), 2, ((), tuples(36, key=1)))
    )
    join = NestedLoopJoin().start(given.query())
    assert step(join, given.batches(0)) == []
    assert [row[0] for row in stored(join, 0)] == [22, 23, 24, 25]
    assert step(join, given.batches(1)) == []
    assert join.watermarks == [25, 34]
    assert [row[0] for row in stored(join, 0)] == [24, 25]
    assert [row[0] for row in stored(join, 1)] == [36]
    assert (join.counters.inserted, join.counters.expired, join.counters.stored) == (1, 2, 3)


def test_the_worked_times_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators" / "nested_loop.md").read_text()
    lines = page.partition("| time | arrives |")[2].splitlines()[2:]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[: lines.index("")]]
    arrivals = [(int(time), *arrives.split(", ")) for time, arrives, *_ in table]
    sides = [
        tuple((Tuple(time, (key,), n),) if side == name else () for n, (time, side, key) in enumerate(arrivals))
        for name in "ab"
    ]
    given = Scenario("string", pa.int64(), (Side(TimeWindow(10), 0, sides[0]), Side(TimeWindow(5), 0, sides[1])))
    join = NestedLoopJoin().start(given.query())
    for n, (_, _, compared, result, dropped, *held) in enumerate(table):
        results = step(join, given.batches(n))
        assert join.counters.probed == len(compared.split(", ")) * bool(compared)
        assert ", ".join(f"(a {row[1]}, b {row[3]})" for row in results) == result
        assert join.counters.expired == len(dropped.split(", ")) * bool(dropped)
        assert [", ".join(str(row[0]) for row in stored(join, i)) for i in (0, 1)] == held


def test_the_window_is_scanned_whatever_the_key() -> None:
    given = scenario(
        Side(TimeWindow(10), 0, (tuples(22, 23, 24, 25), ())), Side(TimeWindow(0), 0, ((), tuples(34, key=1)))
    )
    join = NestedLoopJoin().start(given.query())
    step(join, given.batches(0))
    assert join.counters.probed == 0
    step(join, given.batches(1))
    assert (join.counters.probed, join.counters.results) == (2, 0)


def test_a_watermark_of_the_other_stream_empties_the_buffer() -> None:
    """A shard whose batch is empty, and one that knows of a later time than its own rows have."""
    given = scenario(Side(TimeWindow(10), 0, (tuples(20, 30),)), Side(TimeWindow(10), 0, (tuples(20),)))
    join = NestedLoopJoin().start(given.query())
    a, b = given.batches(0)
    assert len(step(join, [a, replace(b, seen=35)])) == 2
    assert [row[0] for row in stored(join, 0)] == [30]
    nothing = [Batch(batch.rows.slice(0, 0), seen) for batch, seen in ((a, 31), (b, 41))]
    assert step(join, nothing) == []
    assert [len(stream) for stream in join.streams] == [0, 0]


def test_other_joins_are_refused() -> None:
    one = scenario(Side(TimeWindow(1), 0, ()), Side(TimeWindow(1), 0, ())).query()
    with pytest.raises(
        QueryError, match=r'^"nested_loop" computes inner joins of two streams; got "left" of 2\.\nHint: .*pwjoin'
    ):
        Join(JoinQuery(one.streams, "left"), NestedLoopJoin())
