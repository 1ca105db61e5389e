"""Random streams that are joined without equality, and joins run over them, compared with the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lab.joins.oracle import Row, bag, rows_of, step, stored
from lab.joins.scripts import engine_batch
from watersmeet.joins import plan
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements, Outcome, Rules
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import Constraint, Heartbeat, Ordered, Punctuation, Range
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import TimeWindow, Unbounded, Window
from watersmeet.query.predicate_parser import parse
from watersmeet.state.shards import ShardKeys

#: All values of a compared column, and more: streams have those from -5 to 12.
VALUES = range(-40, 41)
#: Names of the streams, and of their compared columns.
NAMES, COMPARED = "ab", "xy"


def further(i: int, t: Tuple) -> int | None:
    """The second number of a row: of stream a the end of an interval that begins at its x."""
    value = t.key[0]
    return None if value is None else value + t.row % (5, 3)[i]


@dataclass(frozen=True)
class Condition:
    """A predicate in SQL and in Python, over x, u and a_n of a, and y, v and b_n of b.

    `partners[i]` tells of the numbers of a row of stream i (x and u, or y and v) and of a value of the other's compared
    column whether they may match; None: any may, and NULL otherwise matches nothing. `own[i]` is the part about the
    number of a row of stream i alone.
    """

    sql: str
    holds: Callable[..., bool]
    partners: tuple[Callable[..., bool] | None, Callable[..., bool] | None] = (None, None)
    own: tuple[Callable[[int], bool] | None, Callable[[int], bool] | None] = (None, None)

    def true_of(self, a: Tuple, b: Tuple) -> bool:
        x, u, y, v = a.key[0], further(0, a), b.key[0], further(1, b)
        numbers = {"x": x, "u": u, "y": y, "v": v}
        if any(numbers[n] is None for n in numbers if n in self.sql.replace("AND", "").replace("abs", "")):
            return False
        return self.holds(x, u, a.row, y, v, b.row)

    def partners_of(self, i: int, j: int, t: Tuple) -> list[int] | None:
        may, own = self.partners[i], self.own[i]
        if own is not None and not own(t.row):
            return []
        if may is None:
            return None
        if t.key[0] is None:
            return []
        return [value for value in VALUES if may(t.key[0], further(i, t), value)]


CONDITIONS = [
    Condition(
        "abs(x - y) <= 2",
        lambda x, u, m, y, v, n: abs(x - y) <= 2,
        (lambda x, u, y: abs(x - y) <= 2, lambda y, v, x: abs(x - y) <= 2),
    ),
    Condition("x < y", lambda x, u, m, y, v, n: x < y, (lambda x, u, y: x < y, lambda y, v, x: x < y)),
    Condition(
        "x - y BETWEEN -3 AND 1",
        lambda x, u, m, y, v, n: -3 <= x - y <= 1,
        (lambda x, u, y: -3 <= x - y <= 1, lambda y, v, x: -3 <= x - y <= 1),
    ),
    Condition(
        "x <= y AND y < u",
        lambda x, u, m, y, v, n: x <= y < u,
        (lambda x, u, y: x <= y < u, lambda y, v, x: x <= y),
    ),
    Condition(
        "y >= x AND abs(x - v) <= 3 AND a_n <> b_n",
        lambda x, u, m, y, v, n: y >= x and abs(x - v) <= 3 and m != n,
        (lambda x, u, y: y >= x, lambda y, v, x: y >= x and abs(x - v) <= 3),
    ),
    Condition(
        "2 * x <= y + 1 AND y <= 10 - x",
        lambda x, u, m, y, v, n: 2 * x <= y + 1 and y <= 10 - x,
        (lambda x, u, y: 2 * x <= y + 1 and y <= 10 - x, lambda y, v, x: 2 * x <= y + 1 and y <= 10 - x),
    ),
    Condition("x = y", lambda x, u, m, y, v, n: x == y, (lambda x, u, y: x == y, lambda y, v, x: x == y)),
    Condition(
        "x - y > 0.5 AND a_n + b_n > 3",
        lambda x, u, m, y, v, n: x - y > 0.5 and m + n > 3,
        (lambda x, u, y: x - y > 0.5, lambda y, v, x: x - y > 0.5),
    ),
    Condition(
        "abs(x - y) <= 2 AND a_n <> 5 AND b_n % 3 > 0",
        lambda x, u, m, y, v, n: abs(x - y) <= 2 and m != 5 and n % 3 > 0,
        (lambda x, u, y: abs(x - y) <= 2, lambda y, v, x: abs(x - y) <= 2),
        (lambda m: m != 5, lambda n: n % 3 > 0),
    ),
    Condition("a_n % 2 = b_n % 2", lambda x, u, m, y, v, n: m % 2 == n % 2),
    Condition("x <> y AND a_n <> 5", lambda x, u, m, y, v, n: x != y and m != 5, own=(lambda m: m != 5, None)),
]
#: Those that a sorted index can answer.
INDEXABLE = CONDITIONS[:-2]


@dataclass(frozen=True)
class ThetaScript:
    """Tuples and punctuations of two streams, batch by batch; the key of a tuple is its compared number."""

    condition: Condition
    how: str
    windows: tuple[Window, ...]
    delays: tuple[int, ...]
    constraints: tuple[tuple[Constraint, ...], ...]
    batches: tuple[tuple[Elements, ...], ...]
    idle_clock: tuple[int | None, ...] = (None, None)
    clocks: tuple[int, ...] = ()  # timestamps of the batches, where a stream follows the clock

    def query(self) -> JoinQuery:
        specs = tuple(map(self.spec, (0, 1)))
        return JoinQuery(specs, self.how, parse(self.condition.sql, columns_of(specs)))

    def spec(self, i: int) -> StreamSpec:
        name, compared = NAMES[i], COMPARED[i]
        fields = [(f"{name}_ts", pa.int64()), (compared, pa.int64()), (f"{name}_n", pa.int64()), ("uv"[i], pa.int64())]
        spec = StreamSpec(name, pa.schema(fields), f"{name}_ts", (), self.windows[i], self.delays[i])
        return replace(spec, compared=compared, constraints=self.constraints[i], idle_clock=self.idle_clock[i])

    def batch(self, n: int, i: int) -> Batch:
        """The arrivals of stream i in batch n, as input of the engine."""
        spec, elements = self.spec(i), self.batches[n][i]
        keyed = replace(spec, key=(COMPARED[i],), schema=pa.schema(list(spec.schema)[:3]), compared=None)
        batch = engine_batch(keyed, elements)
        columns = [*batch.rows.columns, pa.array([further(i, t) for t in elements.tuples], pa.int64())]
        return replace(batch, rows=pa.record_batch(columns, schema=spec.schema), clock=self.clock(n))

    def clock(self, n: int) -> int | None:
        return self.clocks[n] if self.clocks else None


@st.composite
def theta_scripts(
    draw: Any,
    conditions: Sequence[Condition] = tuple(CONDITIONS),
    how: st.SearchStrategy[str] | None = None,
    *,
    batches: int = 5,
    rows: int = 5,
    punctuated: bool = True,
    clocked: bool = False,
) -> ThetaScript:
    """Any script, late tuples, violations and NULLs included."""
    windows = st.one_of(st.integers(0, 12).map(TimeWindow), st.just(TimeWindow(7, closed=False)), st.just(Unbounded()))
    numbers = st.one_of(*[st.integers(-5, 12)] * 9, st.none())
    times = st.one_of(*[st.integers(0, 9)] * 8, st.none())
    stride = draw(st.sampled_from([0, 2, 6]))
    count = iter(range(1 << 30))
    made = []
    for n in range(draw(st.integers(1, batches))):
        both = []
        for _ in range(2):
            drawn = draw(st.lists(st.tuples(times, numbers), max_size=rows))
            tuples = tuple(Tuple(None if t is None else n * stride + t, (k,), next(count)) for t, k in drawn)
            declared = draw(st.lists(_punctuations(n * stride), max_size=2)) if punctuated else []
            ended = draw(st.integers(0, 40)) == 40
            both.append(Elements(tuples, tuple(declared), ended))
        made.append(tuple(both))
    known: list[tuple[Constraint, ...]] = [(), (), (Ordered(),), (Ordered(2),)] if punctuated else [()]
    script = ThetaScript(
        draw(st.sampled_from(list(conditions))),
        draw(how if how is not None else st.sampled_from(["inner", "left", "semi", "anti"])),
        tuple(draw(windows) for _ in range(2)),
        tuple(draw(st.sampled_from([0, 0, 3, 8])) for _ in range(2)),
        tuple(draw(st.sampled_from(known)) for _ in range(2)),
        tuple(made),
    )
    if clocked:
        behind = tuple(draw(st.sampled_from([None, 1, 4, 12])) for _ in range(2))
        clocks = accumulate([draw(st.sampled_from([0, 1, 3, 9])) for _ in made])
        script = replace(script, idle_clock=behind, clocks=tuple(clocks))
    return script


def _punctuations(base: int) -> st.SearchStrategy[Punctuation]:
    ends = st.one_of(st.none(), st.integers(-6, 14))
    ranges = st.builds(Range, ends, ends, st.booleans(), st.booleans())
    patterns = st.one_of(ranges, ranges, ranges, st.just(Heartbeat(base + 4)))
    return st.builds(Punctuation, patterns, st.integers(base, base + 9))


# ---------------------------------------------------------------- comparing


class ThetaComparison:
    """A join, in one shard or several, and the rules over the same input, compared after every step."""

    def __init__(self, script: ThetaScript) -> None:
        self.script = script
        self.query = script.query()
        self.rules = Rules(self.query, 0, script.condition.true_of, partners=script.condition.partners_of)
        self.rules.ends_close = False

    def step(self, shards: Sequence[RunningJoin[Any]], n: int) -> Outcome:
        """Run batch n in all shards, and compare."""
        outcome, results = self.rules.step(self.script.batches[n], self.script.clock(n)), []
        for join, batches in zip(shards, self._divided(n, len(shards)), strict=True):
            results += step(join, batches)
        wanted = [(*self.row(0, a), *self.row(1, b)) for a, b in outcome.pairs]
        padding = (None,) * 4 if self.query.pairs else ()
        wanted += [(*self.row(0, t), *padding) for t in outcome.alone[0]]
        assert bag(results) == bag(wanted)
        for i in (0, 1):
            assert bag([r for j in shards for r in rows_of(j.late[i])]) == bag(self.rows(i, outcome.late[i]))
            assert bag([r for j in shards for r in rows_of(j.violations[i])]) == bag(
                self.rows(i, outcome.violations[i])
            )
        self.check_state(shards, outcome)
        self._counters(shards, n, len(results))
        return outcome

    def check_state(self, shards: Sequence[RunningJoin[Any]], outcome: Outcome) -> None:
        """Stream a is divided among the shards, b is in each; the watermarks are those of the rules."""
        for join in shards:
            assert join.watermarks == [s.watermark for s in self.rules.streams]
            assert bag(stored(join, 1)) == bag(self.rows(1, outcome.stored[1]))
        assert bag([r for join in shards for r in stored(join, 0)]) == bag(self.rows(0, outcome.stored[0]))

    def _counters(self, shards: Sequence[RunningJoin[Any]], n: int, results: int) -> None:
        elements, outcome = self.script.batches[n], self.rules
        totals = {name: sum(getattr(j.counters, name) for j in shards) for name in ("rows_in", "late", "violations")}
        assert totals["rows_in"] == sum(len(e.tuples) for e in elements)
        assert totals["late"] == sum(rows.num_rows for j in shards for rows in j.late)
        assert totals["violations"] == sum(rows.num_rows for j in shards for rows in j.violations)
        assert sum(j.counters.results for j in shards) == results
        assert sum(j.counters.stored for j in shards) == sum(len(outcome.stored(i)) for i in (0, 1))

    def _divided(self, n: int, shards: int) -> Iterator[list[Batch]]:
        """The batches of each shard: rows of a by their number, all rows of b."""
        a, b = (self.script.batch(n, i) for i in (0, 1))
        numbers = np.asarray(a.rows.column("a_n"))
        for shard in range(shards):
            yield [replace(a, rows=a.rows.filter(pa.array(numbers % shards == shard))), b]

    def row(self, i: int, t: Tuple) -> Row:
        return (t.ts, t.key[0], t.row, further(i, t))

    def rows(self, i: int, tuples: Sequence[Tuple]) -> list[Row]:
        return [self.row(i, t) for t in tuples]


def started(script: ThetaScript, algorithm: str, shard: int = 0, shards: int = 1) -> RunningJoin[Any]:
    """The running join of one shard."""
    join = plan(script.query(), algorithm).start()
    join.owns(ShardKeys(shard, shards))
    return join
