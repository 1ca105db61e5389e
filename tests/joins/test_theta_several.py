"""Joins of several streams without equality, and windows of rows, beside the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import Row, bag, step, stored
from watersmeet.joins import plan
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements, Rules
from watersmeet.joins.theta_levels import Levels
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.predicate_parser import parse
from watersmeet.state.durable import log
from watersmeet.state.shards import ShardKeys

few = settings(max_examples=max(10, settings().max_examples // 2))
NAMES, COMPARED = "abcd", "xyzw"
#: Predicates in SQL and in Python.
CONDITIONS: dict[str, Callable[..., bool]] = {
    "abs(x - y) <= 2": lambda x, y: abs(x - y) <= 2,
    "x < y": lambda x, y: x < y,
    "abs(x - y) <= 2 AND y < z": lambda x, y, z: abs(x - y) <= 2 and y < z,
    "x < y AND z - x BETWEEN 0 AND 3 AND y <> z": lambda x, y, z: x < y and 0 <= z - x <= 3 and y != z,
    "x + y = z": lambda x, y, z: x + y == z,
    "y <> 0 AND x / y < 2 AND y <= z": lambda x, y, z: y != 0 and x / y < 2 and y <= z,
    "z <> 0 AND x < w AND w / z > 1 AND y = w": lambda x, y, z, w: z != 0 and x < w and w / z > 1 and y == w,
}
#: Of the predicates that have them, the conditions on one stream: its number, and what its value must not be.
OWN = {"y <> 0 AND x / y < 2 AND y <= z": (1, (0, None)), "z <> 0 AND x < w AND w / z > 1 AND y = w": (2, (0, None))}


def query(where: str, windows: tuple[Window, ...], delays: tuple[int, ...]) -> JoinQuery:
    specs = tuple(
        StreamSpec(
            n,
            pa.schema([(f"{n}_ts", pa.int64()), (c, pa.int64()), (f"{n}_n", pa.int64())]),
            f"{n}_ts",
            (),
            window,
            delay,
            order_by=f"{n}_n",
        )
        for n, c, window, delay in zip(NAMES, COMPARED, windows, delays, strict=False)
    )
    return JoinQuery(specs, "inner", parse(where, columns_of(specs)))


def batch(spec: StreamSpec, elements: Elements) -> Batch:
    columns = [[t.ts for t in elements.tuples], [t.key[0] for t in elements.tuples], [t.row for t in elements.tuples]]
    rows = pa.record_batch([pa.array(c, pa.int64()) for c in columns], schema=spec.schema)
    return Batch.of(rows, spec.time, ended=elements.ended)


def row(t: Tuple) -> Row:
    return (t.ts, t.key[0], t.row)


@few
@given(st.data())
def test_every_batch_is_what_the_rules_make_of_it(data: st.DataObject) -> None:
    where = data.draw(st.sampled_from(sorted(CONDITIONS)))
    holds, n = CONDITIONS[where], CONDITIONS[where].__code__.co_argcount
    kinds = st.one_of(st.integers(0, 10).map(TimeWindow), st.integers(1, 4).map(RowsWindow), st.just(Unbounded()))
    windows = tuple(data.draw(kinds) for _ in range(n))
    counted = any(isinstance(w, RowsWindow) for w in windows)
    if n == 2 and not counted:
        windows, counted = (RowsWindow(3), windows[1]), True
    made = query(where, windows, tuple(data.draw(st.sampled_from([0, 3])) for _ in range(n)))
    shards = 1 if counted else data.draw(st.integers(1, 3))
    joins: list[Any] = [plan(made, "theta").start() for _ in range(shards)]
    for shard, join in enumerate(joins):
        join.owns(ShardKeys(shard, shards))
    stream, failing = (None, ()) if counted else OWN.get(where, (None, ()))  # where rows are counted all are stored
    rules = Rules(
        made,
        0,
        lambda *c: None not in [t.key[0] for t in c] and holds(*(t.key[0] for t in c)),
        partners=lambda i, j, t: [] if i == stream and t.key[0] in failing else None,
    )
    rules.ends_close = False
    numbers, store, header = count(), log.MemoryStore(), log.begin(made)
    drawn = st.lists(st.tuples(st.integers(0, 6), st.one_of(*[st.integers(-2, 7)] * 9, st.none())), max_size=4)
    for b in range(data.draw(st.integers(1, 4))):
        each = [Elements(tuple(Tuple(3 * b + t, (k,), next(numbers)) for t, k in data.draw(drawn))) for _ in range(n)]
        outcome = rules.step(each)
        batches = [batch(spec, e) for spec, e in zip(made.streams, each, strict=True)]
        of = np.asarray(batches[0].rows.column(2)) % shards
        found = []
        for shard, join in enumerate(joins):
            mine = replace(batches[0], rows=batches[0].rows.filter(pa.array(of == shard)))
            found += step(join, [mine, *batches[1:]])
        assert bag(found) == bag([tuple(v for t in c for v in row(t)) for c in outcome.pairs])
        check(rules, joins, each)
        if shards == 1:
            header = log.commit(joins[0], header, store)
            if data.draw(st.booleans(), label="restart"):
                joins = [plan(made, "theta").start()]
                log.rebuild(joins[0], header, store)


def check(rules: Rules, joins: list[RunningMultiway], each: list[Elements]) -> None:
    """Stream a is divided among the shards, all others are in each; every row counts once."""
    for i in range(len(each)):
        wanted = bag([row(t) for t in rules.stored(i)])
        held = [bag([r[:3] for r in stored(join, i)]) for join in joins]  # without positions of counted rows
        assert sum(held, bag([])) == wanted if i == 0 else all(h == wanted for h in held)
    assert sum(j.counters.rows_in for j in joins) == sum(len(e.tuples) for e in each)
    assert sum(j.counters.late for j in joins) == sum(rows.num_rows for j in joins for rows in j.late)
    pending = sum(len(rules.pending(i)) for i in range(len(each))) if joins[0].defers else 0
    assert sum(j.counters.stored for j in joins) == sum(len(rules.stored(i)) for i in range(len(each))) + pending


def test_streams_that_conditions_tie_come_next() -> None:
    windows = (TimeWindow(5),) * 4
    levels = Levels(query("x < y AND z = w AND abs(y - z) <= 1", windows, (0,) * 4))
    assert levels.orders == ((0, 1, 2, 3), (1, 2, 3, 0), (2, 1, 3, 0), (3, 2, 1, 0))


def test_conditions_prune_before_the_next_stream() -> None:
    """Of 20 x 20 pairs 20 are near; only these meet the 20 rows of c."""
    made = query("abs(x - y) < 1 AND y <= z", (TimeWindow(5),) * 3, (0,) * 3)
    join = plan(made, "theta").start()
    rows = [Elements(tuple(Tuple(1, (k,), k) for k in range(20))) for _ in range(3)]
    none = Elements()
    for given_rows in ([none, rows[1], none], [none, none, rows[2]], [rows[0], none, none]):
        found = step(join, [batch(spec, e) for spec, e in zip(made.streams, given_rows, strict=True)])
    assert len(found) == 210
    assert join.counters.probed == 20 * 20 + 20 * 20
