"""Every kind of operator, each with a few batches that contain every kind of event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues
from pyspark.sql.streaming.tws_tester import TwsTester

from lab.joins.configurations import ANY
from lab.joins.naive_groups import feed
from lab.joins.naive_groups import query as grouped_query
from lab.joins.scripts import Script
from lab.tws.scripted_shards import RULES, blobs, rows_with_rules
from watersmeet.joins import Join, Operator, plan
from watersmeet.joins.group_by.operator import GroupedJoin, GroupsOf
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.rules import Elements
from watersmeet.model.asof import AsOf
from watersmeet.model.punctuations import Constraint, Heartbeat, Ordered, Punctuation, Range, Unique, Value
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.predicate_parser import parse
from watersmeet.spark.planning.hot_keys import parts_of
from watersmeet.spark.punctuations import UPSTREAM_SHARD
from watersmeet.spark.runtime.group_blobs import GroupPacker, GroupProcessor
from watersmeet.spark.runtime.order_detail import order_detail_of
from watersmeet.spark.runtime.packing import PACKED, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, LATE, PUNCTUATION, RESULT

IDS = shard_ids(2, 2)
BATCHES = 3


@dataclass(frozen=True)
class Subject:
    """An operator and its input: the blobs of each batch."""

    query: Any
    join: Operator
    given: tuple[pa.Table, ...]

    def processor(self) -> ShardProcessor:
        """What runs it on a shard."""
        if isinstance(self.join, GroupsOf):
            return GroupProcessor(self.query, IDS, self.join.shards)
        return ShardProcessor(self.query, IDS, ended=False, join=self.join)


def arrivals(streams: int, *, punctuated: bool = True) -> tuple[tuple[Elements, ...], ...]:
    """Tuples and punctuations of a few keys: with matches, purges, violations, late tuples and expiry."""
    chance, number, out = Random(5), 0, []
    for n in range(BATCHES):
        batch = []
        for _ in range(streams):
            tuples = []
            for _ in range(4):
                at = max(0, 4 * n + chance.randint(-5, 3))
                tuples.append(Tuple(at, (chance.choice([0, 1, 2, 3, None]),), number))
                number += 1
            punctuations: list[Punctuation] = []
            if punctuated and chance.random() < 0.7:
                pattern = chance.choice([Value((chance.randrange(4),)), Range(0, 1), Range(3, None)])
                punctuations.append(Punctuation(pattern, 4 * n))
            if chance.random() < 0.2:
                punctuations.append(Punctuation(Heartbeat(4 * n), 4 * n))
            batch.append(Elements(tuple(tuples), tuple(punctuations)))
        out.append(tuple(batch))
    return tuple(out)


def scripted(
    algorithm: str,
    how: str,
    windows: tuple[Window, ...],
    constraints: tuple[Constraint, ...] = (),
    idle_after: int | None = None,
    idle_clock: int | None = None,
    late_share: float | None = None,
    delays: tuple[int, ...] = (2, 2, 2),
    asof: AsOf | None = None,
    **options: Any,
) -> Subject:
    streams, chance = len(windows), Random(7)
    batches = arrivals(streams, punctuated=algorithm != "wo_join")
    script = Script("int64", how, windows, delays[:streams], (constraints,) * streams, batches, asof=asof)
    query = script.query()
    about = {"idle_after": idle_after, "idle_clock": idle_clock, "late_share": late_share}
    specs = [replace(s, **about) for s in query.streams]
    query = replace(query, streams=tuple(specs))
    join = plan(query, algorithm, **options)
    given = []
    for batch in script.batches:
        sent = []
        for i, one in enumerate(batch):
            sent += blobs(query.streams[i], i, IDS, one, chance, order_detail_of(join))
        given.append(pa.Table.from_batches(sent, PACKED))
    return Subject(query, join, tuple(given))


def groups() -> Subject:
    q = grouped_query(("k",), (TimeWindow(6), TimeWindow(3)), "left", "update", ["n", "sum_i", "last_s"])
    streams, given = feed(BATCHES), []
    for n in range(BATCHES):
        both = enumerate(zip(q.streams, streams.batches(n), strict=True))
        packed = [Packer(spec, i, IDS)(iter([b.rows])) for i, (spec, b) in both]
        given.append(pa.Table.from_batches([blob for some in packed for blob in some], PACKED))
    return Subject(q, GroupedJoin(Join(q.join, PWJoin()), q), tuple(given))


def groups_behind_a_join() -> Subject:
    """The second of two operators: it is given what all shards of a join send it."""
    q = grouped_query(("i",), (TimeWindow(6), TimeWindow(3)), "left", "update", ["n", "sum_i", "last_s"])
    streams, given = feed(BATCHES), []
    first = ShardProcessor(q.join, IDS, ended=False, join=Join(q.join, PWJoin()))
    tester = TwsTester(first)
    for n in range(BATCHES):
        both = enumerate(zip(q.streams, streams.batches(n), strict=True))
        packed = [blob for i, (spec, b) in both for blob in Packer(spec, i, IDS)(iter([b.rows]))]
        whole, sent = pa.Table.from_batches(packed, PACKED).to_pandas(), []
        for shard in IDS:
            tester.handle.setGroupingKey(shard)
            frames = iter([whole[whole["shard"] == shard]])
            for frame in first.handleInputRows((shard,), frames, TimerValues(-1, -1)):
                rows = pa.Table.from_pandas(frame, preserve_index=False).to_batches()
                sent += list(GroupPacker(q, IDS)(iter(rows)))
        given.append(pa.Table.from_batches(sent, PACKED))
    return Subject(q, GroupsOf(q, len(IDS)), tuple(given))


def second_of_a_tree() -> Subject:
    """The second operator of a tree: the first stream is the output of two shards, with their punctuations."""
    batches = tuple((one, replace(two, punctuations=())) for one, two in arrivals(2))
    query = Script("int64", "inner", (TimeWindow(6), TimeWindow(4)), (0, 2), ((), ()), batches).query()
    query = replace(query, streams=(replace(query.streams[0], upstream_shards=len(IDS)), query.streams[1]))
    join, chance, given = Join(query, PWJoin()), Random(7), []
    for n, (upstream, other) in enumerate(batches):
        beats = tuple(Punctuation(Heartbeat(4 * n), 4 * n) for _ in IDS)
        ranges = tuple(p for p in upstream.punctuations if not isinstance(p.pattern, Heartbeat))
        rows = rows_with_rules(query.streams[0], Elements(upstream.tuples, (*ranges, *beats)))
        tuples, ends = len(upstream.tuples), rows.num_rows
        shards = [0] * (ends - len(IDS)) + list(range(len(IDS)))  # every shard sends its watermark
        kinds = [RESULT] * (tuples - 1) + [LATE] + [PUNCTUATION] * (ends - tuples)
        rows = rows.append_column(UPSTREAM_SHARD, pa.array(shards, pa.int32()))
        rows = rows.append_column(KIND, pa.array(kinds, pa.int8()))
        rows = rows.append_column(DETAIL, pa.array([f'{{"row": {n}}}'] * ends))
        sent = [*Packer(query.streams[0], 0, IDS, RULES, passes=True)(iter([rows]))]
        sent += blobs(query.streams[1], 1, IDS, other, chance)
        given.append(pa.Table.from_batches(sent, PACKED))
    return Subject(query, join, tuple(given))


def split_key() -> Subject:
    """Key 0 has a part in every shard: tuples of the first stream are spread over them, those of the second copied."""
    batches = arrivals(2, punctuated=False)
    query = Script("int64", "left", TWO, (2, 2), ((), ()), batches).query()
    part = pa.field("part", pa.int32())
    specs = tuple(replace(s, schema=s.schema.append(part), key=(*s.key, "part")) for s in query.streams)
    query, parts, given = replace(query, streams=specs), parts_of(pa.array([0]), len(IDS)), []
    for batch in batches:
        sent: list[pa.RecordBatch] = []
        for i, (spec, elements) in enumerate(zip(specs, batch, strict=True)):
            rows = []
            for t in elements.tuples:
                mine = [0] if t.key != (0,) else parts if i else [parts[t.ts % len(parts)]]
                rows += [(t.ts, *t.key, t.row, part) for part in mine]
            columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), spec.schema, strict=True)]
            sent += Packer(spec, i, IDS)(iter([pa.record_batch(columns, schema=spec.schema)]))
        given.append(pa.Table.from_batches(sent, PACKED))
    return Subject(query, Join(query, PWJoin()), tuple(given))


def without_equality(algorithm: str, how: str, constraints: tuple[Constraint, ...] = ()) -> Subject:
    """Tuples of the first stream are divided by their rows, those of the second copied to every shard."""
    specs = []
    for name, compared, window in zip("ab", "xy", TWO, strict=True):
        schema = pa.schema([(f"{name}_ts", pa.int64()), (compared, pa.int64()), (f"{name}_n", pa.int64())])
        spec = StreamSpec(name, schema, f"{name}_ts", (), window, 2, constraints, compared=compared)
        specs.append(spec)
    query = JoinQuery(tuple(specs), how, parse("abs(x - y) <= 1", columns_of(specs)))
    chance, given = Random(7), []
    for batch in arrivals(2):
        sent: list[pa.RecordBatch] = []
        for i, elements in enumerate(batch):
            closing = tuple(p for p in elements.punctuations if not isinstance(p.pattern, Value))
            sent += blobs(specs[i], i, IDS, replace(elements, punctuations=closing), chance, copied=i == 1)
        given.append(pa.Table.from_batches(sent, PACKED))
    return Subject(query, plan(query, algorithm), tuple(given))


TWO, THREE = (TimeWindow(6), TimeWindow(4)), (TimeWindow(6), TimeWindow(4), TimeWindow(5))
MIXED = (RowsWindow(2, per_key=True), TimeWindow(5), Unbounded())
SUBJECTS: dict[str, Callable[[], Subject]] = {
    "hash": lambda: scripted("hash", "inner", TWO),
    "hash, buckets": lambda: scripted("hash", "inner", TWO, buckets=2, invalidation="probe_insert"),
    "nested_loop": lambda: scripted("nested_loop", "inner", TWO),
    "pwjoin, left": lambda: scripted("pwjoin", "left", TWO),
    "pwjoin, left, clock": lambda: scripted("pwjoin", "left", TWO, idle_clock=1000),
    "pwjoin, right": lambda: scripted("pwjoin", "right", TWO),
    "pwjoin, full": lambda: scripted("pwjoin", "full", TWO),
    "pwjoin, semi": lambda: scripted("pwjoin", "semi", TWO),
    "pwjoin, anti, unique": lambda: scripted("pwjoin", "anti", TWO, (Unique(),)),
    "pjoin, ordered": lambda: scripted("pjoin", "inner", (Unbounded(), Unbounded()), (Ordered(1),)),
    "theta, semi": lambda: without_equality("theta", "semi"),
    "band, left, ordered": lambda: without_equality("band", "left", (Ordered(1),)),
    "three streams": lambda: scripted("general_lazy", "inner", THREE),
    "three streams, put off": lambda: scripted("general_lazy", "inner", THREE, every=5),
    "three streams, counted": lambda: scripted("general_lazy", "inner", MIXED),
    "two streams, counted as wholes": lambda: scripted(
        "general_lazy", "inner", (RowsWindow(2), TimeWindow(9)), delays=(1, 8)
    ),
    "three streams, eager": lambda: scripted("eager", "inner", THREE),
    "three streams, naive": lambda: scripted("naive_multiway", "inner", THREE),
    "three streams, lazy": lambda: scripted("lazy", "inner", THREE, every=5),
    "three streams, hybrid": lambda: scripted("hybrid", "inner", THREE, index=("a", "c")),
    "window-oblivious": lambda: scripted("wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(ANY, ANY)),
    "window-oblivious, held back": lambda: scripted(
        "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="msf"
    ),
    "window-oblivious, on disk": lambda: scripted(
        "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="hybrid"
    ),
    "window-oblivious, by equation 8": lambda: scripted("wo_join", "inner", (Unbounded(), Unbounded()), buffer="eq8"),
    "window-oblivious, idle": lambda: scripted(
        "wo_join", "inner", (Unbounded(), Unbounded()), idle_after=2, scrambling=(3, 3)
    ),
    "as-of, backward": lambda: scripted("asof", "left", (Unbounded(), Unbounded()), asof=AsOf()),
    "as-of, nearest": lambda: scripted(
        "asof", "inner", (Unbounded(), Unbounded()), asof=AsOf("nearest", 4, allow_exact=False)
    ),
    "hash, measured delay": lambda: scripted("hash", "inner", TWO, late_share=0.1),
    "second of a tree": second_of_a_tree,
    "split key": split_key,
    "groups": groups,
    "groups behind a join": groups_behind_a_join,
}


@cache
def subject(name: str) -> Subject:
    return SUBJECTS[name]()
