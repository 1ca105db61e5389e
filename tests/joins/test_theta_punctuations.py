"""Punctuations on compared columns of several streams without equality, beside the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.oracle import Row, bag, rows_of, step, stored
from lab.joins.scripts import engine_batch
from watersmeet.errors import QueryError
from watersmeet.joins import plan
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements, Outcome, Rules
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import Constraint, Ordered, Punctuation, Range
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.predicate_parser import parse
from watersmeet.state.durable import log
from watersmeet.state.shards import ShardKeys

NAMES, COMPARED = "abcd", "xyzw"
#: All values of a compared column, and more: streams have those from -2 to 7, and close ranges from -6 to 14.
VALUES = range(-18, 25)


@dataclass(frozen=True)
class Condition:
    """A predicate in SQL and in Python: the bounds between streams, the rest, and what is about one stream alone."""

    sql: str
    bounds: Callable[..., bool]
    rest: Callable[..., bool] = lambda *values: True
    own: Callable[[int, int | None], bool] = lambda stream, value: True

    @property
    def streams(self) -> int:
        return self.bounds.__code__.co_argcount

    def true_of(self, *combination: Tuple) -> bool:
        values = [t.key[0] for t in combination]
        if None in values or not all(self.own(i, value) for i, value in enumerate(values)):
            return False
        return bool(self.bounds(*values)) and self.rest(*values)

    def partners_of(self, i: int, j: int, t: Tuple) -> Sequence[int] | None:
        """Values of stream j for which some values of the remaining streams make the bounds true; None: any."""
        if not self.own(i, t.key[0]):
            return []
        found = np.flatnonzero(_pairs(self, i, j)[VALUES.index(t.key[0] or 0)])
        if len(found) == len(VALUES):
            return None
        return [] if t.key[0] is None else [VALUES[n] for n in found]


@cache
def _pairs(condition: Condition, i: int, j: int) -> Any:
    """Which values of streams i and j may be in one result."""
    true = np.broadcast_to(
        condition.bounds(*np.meshgrid(*[VALUES] * condition.streams, indexing="ij", sparse=True)),
        (len(VALUES),) * condition.streams,
    )
    pairs = true.any(axis=tuple(k for k in range(condition.streams) if k not in (i, j)))
    return pairs if i < j else pairs.T


CONDITIONS = [
    Condition("abs(x - y) <= 2 AND y < z", lambda x, y, z: (abs(x - y) <= 2) & (y < z)),
    Condition("x < y AND y < z", lambda x, y, z: (x < y) & (y < z)),
    Condition(
        "x < y AND z - x BETWEEN 0 AND 3 AND y <> z",
        lambda x, y, z: (x < y) & (z >= x) & (z <= x + 3),
        lambda x, y, z: y != z,
    ),
    Condition(
        "x <= y AND y <= z AND z <= x + 4 AND x + y + z > 5",
        lambda x, y, z: (x <= y) & (y <= z) & (z <= x + 4),
        lambda x, y, z: x + y + z > 5,
    ),
    Condition("x + y = 5 AND y = z", lambda x, y, z: (x + y == 5) & (y == z)),
    Condition(
        "abs(x - y) <= 1 AND z > 3", lambda x, y, z: abs(x - y) <= 1, own=lambda i, value: i != 2 or (value or 0) > 3
    ),
    Condition("x < y AND y <= z AND abs(z - w) <= 1", lambda x, y, z, w: (x < y) & (y <= z) & (abs(z - w) <= 1)),
]


def query(
    where: str,
    windows: Sequence[Window],
    delays: Sequence[int],
    punctuated: Sequence[bool],
    constraints: Sequence[tuple[Constraint, ...]],
) -> JoinQuery:
    specs = []
    for i, (n, c, window) in enumerate(zip(NAMES, COMPARED, windows, strict=False)):
        schema = pa.schema([(f"{n}_ts", pa.int64()), (c, pa.int64()), (f"{n}_n", pa.int64())])
        spec = StreamSpec(n, schema, f"{n}_ts", (), window, delays[i])
        specs.append(replace(spec, compared=c, constraints=constraints[i]) if punctuated[i] else spec)
    return JoinQuery(tuple(specs), "inner", parse(where, columns_of(specs)))


def batch(spec: StreamSpec, elements: Elements) -> Batch:
    return engine_batch(replace(spec, key=(spec.schema.names[1],), compared=None), elements)


def row(t: Tuple) -> Row:
    return (t.ts, t.key[0], t.row)


def started(made: JoinQuery, shard: int, shards: int) -> Any:
    join = plan(made, "theta").start()
    join.owns(ShardKeys(shard, shards))
    return join


@given(st.data(), st.integers(1, 4))
def test_every_batch_is_what_the_rules_make_of_it(data: st.DataObject, shards: int) -> None:
    condition = data.draw(st.sampled_from(CONDITIONS))
    n = condition.streams
    windows = st.sampled_from([TimeWindow(3), *[TimeWindow(40)] * 2, Unbounded()])
    known: list[tuple[Constraint, ...]] = [(), (Ordered(),), (Ordered(2),)]
    punctuated = data.draw(st.lists(st.sampled_from([*[True] * 7, False]), min_size=n, max_size=n).filter(any))
    made = query(
        condition.sql,
        [data.draw(windows) for _ in range(n)],
        [data.draw(st.sampled_from([0, 0, 3])) for _ in range(n)],
        punctuated,
        [data.draw(st.sampled_from(known)) for _ in range(n)],
    )
    joins = [started(made, shard, shards) for shard in range(shards)]
    stores, headers = [log.MemoryStore() for _ in joins], [log.begin(made) for _ in joins]
    rules = Rules(made, 0, condition.true_of, partners=condition.partners_of)
    rules.ends_close = False
    numbers = count()
    drawn = st.lists(st.tuples(st.integers(0, 6), st.one_of(*[st.integers(-2, 7)] * 9, st.none())), max_size=4)
    ends = st.one_of(st.none(), st.integers(-6, 14))
    some = st.integers(-1, 8)
    ranges = st.one_of(
        st.builds(Range, ends, ends, st.booleans(), st.booleans()),
        some.map(lambda low: Range(low, None)),
        some.map(lambda high: Range(None, high)),
    )
    for b in range(data.draw(st.integers(2, 5))):
        each = []
        for i in range(n):
            tuples = tuple(Tuple(3 * b + t, (k,), next(numbers)) for t, k in data.draw(drawn))
            punctuations = st.builds(Punctuation, ranges, st.integers(3 * b - 3, 3 * b + 6))
            declared = tuple(data.draw(st.lists(punctuations, max_size=3))) if punctuated[i] else ()
            each.append(Elements(tuples, declared, ended=data.draw(st.integers(0, 20)) == 20))
        outcome = rules.step(each)
        batches = [batch(spec, e) for spec, e in zip(made.streams, each, strict=True)]
        of = np.asarray(batches[0].rows.column(2)) % shards
        found = []
        for shard, join in enumerate(joins):
            mine = replace(batches[0], rows=batches[0].rows.filter(pa.array(of == shard)))
            found += step(join, [mine, *batches[1:]])
        assert bag(found) == bag([tuple(v for t in c for v in row(t)) for c in outcome.pairs])
        check(joins, outcome, each)
        headers = [log.commit(*parts) for parts in zip(joins, headers, stores, strict=True)]
        if data.draw(st.booleans(), label="restart"):
            joins = [started(made, shard, shards) for shard in range(shards)]
            for parts in zip(joins, headers, stores, strict=True):
                log.rebuild(*parts)
            check_state(joins, outcome)


def check(joins: Sequence[Any], outcome: Outcome, each: Sequence[Elements]) -> None:
    """The state is that of the rules; late rows, violations and counters count every row once."""
    check_state(joins, outcome)
    for i in range(len(each)):
        for rows, wanted in (("late", outcome.late[i]), ("violations", outcome.violations[i])):
            assert bag([r for j in joins for r in rows_of(getattr(j, rows)[i])]) == bag(list(map(row, wanted)))
    assert sum(j.counters.rows_in for j in joins) == sum(len(e.tuples) for e in each)
    assert sum(j.counters.violations for j in joins) == sum(map(len, outcome.violations))
    assert sum(j.counters.stored for j in joins) == sum(map(len, outcome.stored))


def check_state(joins: Sequence[Any], outcome: Outcome) -> None:
    """Stream a is divided among the shards, all others are in each."""
    for i, wanted in enumerate(outcome.stored):
        held = [bag(stored(join, i)) for join in joins]
        rows = bag(list(map(row, wanted)))
        assert sum(held, bag([])) == rows if i == 0 else all(h == rows for h in held)


# ---------------------------------------------------------------- purging

NONE = Elements()


def ran(made: JoinQuery, *batches: Sequence[Elements]) -> Any:
    join = plan(made, "theta").start()
    for each in batches:
        step(join, [batch(spec, e) for spec, e in zip(made.streams, each, strict=True)])
    return join


def held(join: Any, i: int) -> list[Any]:
    return sorted(r[1] for r in stored(join, i))


def rows(*values: int) -> Elements:
    return Elements(tuple(Tuple(1, (v,), v) for v in values))


def above(value: int) -> Elements:
    return Elements((), (Punctuation(Range(value, None, low_closed=False), 2),))


def chain(where: str = "x < y AND y < z", punctuated: Sequence[bool] = (True,) * 3) -> JoinQuery:
    return query(where, [TimeWindow(100)] * 3, [0] * 3, punctuated, [()] * 3)


def test_a_tuple_goes_when_every_other_stream_has_closed_what_it_may_match() -> None:
    """x < y < z: b closes y > 100, but a c to come may still match a stored b; when c closes z > 100, it goes."""
    first = (rows(98, 99, 100, 101), rows(99, 100, 200), NONE)
    join = ran(chain(), first, (NONE, above(100), NONE))
    assert (held(join, 0), join.counters.purged) == ([98, 99, 100, 101], 0)
    join = ran(chain(), first, (NONE, above(100), NONE), (NONE, NONE, above(100)))
    assert held(join, 0) == [98, 99]  # with y = 100 yet to come
    assert held(join, 1) == [99, 100, 200]  # stream a has closed nothing
    assert join.counters.purged == 2


@pytest.mark.parametrize("end_first", [True, False])
def test_a_stream_that_has_ended_has_closed_all(end_first: bool) -> None:
    """x + 2 <= z: of whole numbers the chain leaves 99 none."""
    later = [(NONE, Elements(ended=True), NONE), (NONE, NONE, above(100))]
    join = ran(chain(), (rows(98, 99, 100), rows(99), NONE), *(later if end_first else later[::-1]))
    assert held(join, 0) == [98]


def test_purged_rows_do_not_come_back_with_a_restart() -> None:
    made, store = chain(), log.MemoryStore()
    join, header = plan(made, "theta").start(), log.begin(made)
    for each in ((rows(98, 99, 100, 101), rows(50), NONE), (NONE, above(100), NONE), (NONE, NONE, above(100))):
        step(join, [batch(spec, e) for spec, e in zip(made.streams, each, strict=True)])
        header = log.commit(join, header, store)
    again = plan(made, "theta").start()
    log.rebuild(again, header, store)
    assert held(again, 0) == held(join, 0) == [98, 99]
    step(again, [batch(spec, e) for spec, e in zip(made.streams, (rows(100), NONE, NONE), strict=True)])
    assert held(again, 0) == [98, 99], "what is closed is known"


def test_a_stream_that_nothing_ties_keeps_all() -> None:
    where = "x < y AND z % 2 = 1"
    join = ran(chain(where), (rows(100), NONE, NONE), (NONE, above(100), Elements((), above(-1000).punctuations)))
    assert held(join, 0) == [100]


def test_a_tuple_that_matches_nothing_is_not_stored() -> None:
    join = ran(chain(), (Elements((Tuple(1, (None,), 0),)), NONE, NONE))
    assert (held(join, 0), join.counters.dead) == ([], 1)


def test_windows_of_rows_are_refused() -> None:
    made = query(
        "x < y AND y < z", [RowsWindow(3), TimeWindow(1), TimeWindow(1)], [0] * 3, (False, True, True), [()] * 3
    )
    with pytest.raises(
        QueryError, match=r"stream `b` closes values of `y`, and `a` has a window of rows; a row that waits"
    ):
        plan(made, "theta")
