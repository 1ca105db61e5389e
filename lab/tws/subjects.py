"""Every kind of operator, each with batches that contain every kind of event."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.stateful_processor import TimerValues
from pyspark.sql.streaming.tws_tester import TwsTester

from lab.joins.configurations import ANY
from lab.joins.naive_groups import feed
from lab.joins.naive_groups import query as grouped_query
from lab.joins.scripts import Script
from lab.tws.scripted_shards import RULES, blobs, rows_with_rules
from lab.tws.task import Task, header_of, packed, table_of
from watersmeet.checkpoints.evolve import evolve
from watersmeet.checkpoints.redistribute import redistribute
from watersmeet.joins import Join, Operator, plan
from watersmeet.joins.group_by.operator import GroupedJoin, GroupsOf
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.asof import AsOf
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.grouping import GroupedQuery
from watersmeet.model.punctuations import Constraint, Heartbeat, Ordered, Punctuation, Range, Unique, Value
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.predicate_parser import parse
from watersmeet.spark.planning.hot_keys import parts_of
from watersmeet.spark.punctuations import UPSTREAM_SHARD
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.group_blobs import GroupPacker, GroupProcessor
from watersmeet.spark.runtime.order_detail import order_detail_of
from watersmeet.spark.runtime.packing import PACKED, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, LATE, PUNCTUATION, RESULT
from watersmeet.state.durable.cache import Cache
from watersmeet.state.durable.log import MemoryStore
from watersmeet.state.hot_keys.phases import HotKey, Phase, Reached, Table
from watersmeet.state.keys import encode_key

IDS = shard_ids(2, 2)


@dataclass(frozen=True)
class Input:
    """Which input a subject gets: one of many, of how many batches, with how many tuples of a stream in each."""

    seed: int = 0
    batches: int = 3
    tuples: int = 4


#: Packs a batch, by its number, into blobs: in other source partitions and orders for every `Random`.
Pack = Callable[[int, Random], pa.Table]


@dataclass(frozen=True)
class Subject:
    """An operator and its input: the blobs of each batch, and how to pack it once more, as a retry may."""

    query: Any
    join: Operator
    given: tuple[pa.Table, ...]
    pack: Pack
    memory: int | None = None  # bytes of a shard's working state, beyond which rows are spilled
    splits: bool = False  # whether a table of hot keys routes the rows
    found: Mapping[int, MemoryStore] = field(default_factory=dict)  # the state that the first batch finds

    @classmethod
    def of(cls, query: Any, join: Operator, input: Input, pack: Pack) -> Subject:
        chance = Random(7)
        return cls(query, join, tuple(pack(n, chance) for n in range(input.batches)), pack)

    def bounded(self, memory: int) -> Subject:
        """The same with so little memory."""
        return replace(self, memory=memory)

    def stores(self) -> dict[int, MemoryStore]:
        """The state of each shard before the first batch."""
        return {id: self.found.get(id, MemoryStore()) for id in IDS}

    @property
    def batches_before(self) -> int:
        """Batches of the state that the first batch finds."""
        return max((header_of(store).batches for store in self.found.values()), default=0)

    @property
    def ids(self) -> tuple[int, ...]:
        return IDS

    def processor(self, *, ended: bool = False) -> ShardProcessor:
        """What runs it on a shard."""
        if isinstance(self.join, GroupsOf):
            return GroupProcessor(self.query, IDS, self.join.shards)
        about = {"memory": self.memory, "splits": self.splits}
        return ShardProcessor(self.query, IDS, ended=ended, join=self.join, **about)


def arrivals(streams: int, input: Input, *, punctuated: bool = True) -> tuple[tuple[Elements, ...], ...]:
    """Tuples and punctuations of a few keys: with matches, purges, violations, late tuples and expiry.

    Inputs of odd seeds close single keys only, so that no range covers them.
    """
    chance, number, out = Random(5 + input.seed), 0, []
    ranges = [] if input.seed % 2 else [Range(0, 1), Range(3, None)]
    for n in range(input.batches):
        batch = []
        for _ in range(streams):
            tuples = []
            for _ in range(input.tuples):
                at = max(0, 4 * n + chance.randint(-5, 3))
                tuples.append(Tuple(at, (chance.choice([0, 1, 2, 3, None]),), number))
                number += 1
            punctuations: list[Punctuation] = []
            if punctuated and chance.random() < 0.7:
                pattern = chance.choice([Value((chance.randrange(4),)), *ranges])
                punctuations.append(Punctuation(pattern, 4 * n))
            if chance.random() < 0.2:
                punctuations.append(Punctuation(Heartbeat(4 * n), 4 * n))
            batch.append(Elements(tuple(tuples), tuple(punctuations)))
        out.append(tuple(batch))
    return tuple(out)


def shuffled(elements: Elements, chance: Random) -> Elements:
    """The same tuples in another order."""
    return replace(elements, tuples=tuple(chance.sample(elements.tuples, len(elements.tuples))))


def scripted(
    input: Input,
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
    streams = len(windows)
    batches = arrivals(streams, input, punctuated=algorithm != "wo_join")
    script = Script("int64", how, windows, delays[:streams], (constraints,) * streams, batches, asof=asof)
    query = script.query()
    about = {"idle_after": idle_after, "idle_clock": idle_clock, "late_share": late_share}
    specs = [replace(s, **about) for s in query.streams]
    query = replace(query, streams=tuple(specs))
    join = plan(query, algorithm, **options)
    measured = bool(order_detail_of(join)) or late_share is not None  # then the order in source partitions counts

    def pack(n: int, chance: Random) -> pa.Table:
        sent: list[pa.RecordBatch] = []
        chance = Random(n) if measured else chance
        for i, one in enumerate(script.batches[n]):
            one = one if measured else shuffled(one, chance)
            sent += blobs(query.streams[i], i, IDS, one, chance, order_detail_of(join))
        return pa.Table.from_batches(sent, PACKED)

    return Subject.of(query, join, input, pack)


def grouped_rows(q: GroupedQuery, input: Input, n: int, chance: Random) -> pa.Table:
    """Blobs of the streams of a grouped join."""
    sent: list[pa.RecordBatch] = []
    for i, batch in enumerate(feed(input.seed + input.batches).batches(input.seed + n)):
        order = chance.sample(range(batch.rows.num_rows), batch.rows.num_rows)
        sent += Packer(q.streams[i], i, IDS)(iter([batch.rows.take(pa.array(order))]))
    return pa.Table.from_batches(sent, PACKED)


def groups(input: Input) -> Subject:
    q = grouped_query(("k",), (TimeWindow(6), TimeWindow(3)), "left", "update", ["n", "sum_i", "last_s"])
    join = GroupedJoin(Join(q.join, PWJoin()), q)
    return Subject.of(q, join, input, lambda n, chance: grouped_rows(q, input, n, chance))


def groups_behind_a_join(input: Input) -> Subject:
    """The second of two operators: it is given what all shards of a join send it."""
    q = grouped_query(("i",), (TimeWindow(6), TimeWindow(3)), "left", "update", ["n", "sum_i", "last_s"])
    first = ShardProcessor(q.join, IDS, ended=False, join=Join(q.join, PWJoin()))
    tester = TwsTester(first)
    upstream: list[list[pa.RecordBatch]] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_cache, "application_cache", lambda: Cache(Path(folder), 1 << 30))
        for n in range(input.batches):
            whole, out = grouped_rows(q, input, n, Random(n)).to_pandas(), []
            for shard in IDS:
                tester.handle.setGroupingKey(shard)
                frames = iter([whole[whole["shard"] == shard]])
                for frame in first.handleInputRows((shard,), frames, TimerValues(-1, -1)):
                    out += table_of(frame, first.output_rows).to_batches()
            upstream.append(out)

    def pack(n: int, chance: Random) -> pa.Table:
        sent: list[pa.RecordBatch] = []
        for rows in chance.sample(upstream[n], len(upstream[n])):
            sent += GroupPacker(q, IDS)(iter([rows.take(pa.array(chance.sample(range(len(rows)), len(rows))))]))
        return pa.Table.from_batches(sent, PACKED)

    return Subject.of(q, GroupsOf(q, len(IDS)), input, pack)


def second_of_a_tree(input: Input) -> Subject:
    """The second operator of a tree: the first stream is the output of two shards, with their punctuations."""
    batches = tuple((one, replace(two, punctuations=())) for one, two in arrivals(2, input))
    query = Script("int64", "inner", (TimeWindow(6), TimeWindow(4)), (0, 2), ((), ()), batches).query()
    query = replace(query, streams=(replace(query.streams[0], upstream_shards=len(IDS)), query.streams[1]))

    def pack(n: int, chance: Random) -> pa.Table:
        upstream, other = batches[n]
        beats = tuple(Punctuation(Heartbeat(4 * n), 4 * n) for _ in IDS)
        ranges = tuple(p for p in upstream.punctuations if not isinstance(p.pattern, Heartbeat))
        rows = rows_with_rules(query.streams[0], Elements(upstream.tuples, (*ranges, *beats)))
        tuples, ends = len(upstream.tuples), rows.num_rows
        shards = [0] * (ends - len(IDS)) + list(range(len(IDS)))  # every shard sends its watermark
        kinds = [RESULT] * (tuples - 1) + [LATE] + [PUNCTUATION] * (ends - tuples)
        rows = rows.append_column(UPSTREAM_SHARD, pa.array(shards, pa.int32()))
        rows = rows.append_column(KIND, pa.array(kinds, pa.int8()))
        rows = rows.append_column(DETAIL, pa.array([f'{{"row": {n}}}'] * ends))
        rows = rows.take(pa.array(chance.sample(range(ends), ends)))
        sent = [*Packer(query.streams[0], 0, IDS, RULES, passes=True)(iter([rows]))]
        sent += blobs(query.streams[1], 1, IDS, shuffled(other, chance), chance)
        return pa.Table.from_batches(sent, PACKED)

    return Subject.of(query, Join(query, PWJoin()), input, pack)


def split_key(input: Input) -> Subject:
    """Key 0 has a part in every shard: tuples of the first stream are spread over them, those of the second copied."""
    batches = arrivals(2, input, punctuated=False)
    query = Script("int64", "left", TWO, (2, 2), ((), ()), batches).query()
    part = pa.field("part", pa.int32())
    specs = tuple(replace(s, schema=s.schema.append(part), key=(*s.key, "part")) for s in query.streams)
    query, parts = replace(query, streams=specs), parts_of(pa.array([0]), len(IDS))

    def pack(n: int, chance: Random) -> pa.Table:
        sent: list[pa.RecordBatch] = []
        for i, (spec, elements) in enumerate(zip(specs, batches[n], strict=True)):
            rows = []
            for t in shuffled(elements, chance).tuples:
                mine = [0] if t.key != (0,) else parts if i else [parts[t.ts % len(parts)]]
                rows += [(t.ts, *t.key, t.row, part) for part in mine]
            columns = [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), spec.schema, strict=True)]
            sent += Packer(spec, i, IDS)(iter([pa.record_batch(columns, schema=spec.schema)]))
        return pa.Table.from_batches(sent, PACKED)

    return Subject.of(query, Join(query, PWJoin()), input, pack)


def hot_key(input: Input) -> Subject:
    """Key 0 is split and merged again while the query runs, and then split by the other stream."""
    script = hot_script(input)
    query, batches, tables = script.query(), script.batches, tables_of_key_0(script, input.seed % 2)

    def pack(n: int, chance: Random) -> pa.Table:
        rows = []
        for spec, elements in zip(query.streams, batches[n], strict=True):
            given = rows_with_rules(spec, replace(shuffled(elements, chance), punctuations=()))
            rows.append(given.select(spec.schema.names))
        return packed(query, IDS, rows, chance, tables[n])

    return replace(Subject.of(query, Join(query, PWJoin()), input, pack), splits=True)


def hot_script(input: Input) -> Script:
    batches = arrivals(2, input, punctuated=False)
    return Script("int64", "inner", (TimeWindow(2), TimeWindow(1)), (1, 1), ((), ()), batches)


def tables_of_key_0(script: Script, spread: int) -> list[Table]:
    """The table of each batch, first with this stream spread: every phase is as short as it may be."""
    query = script.query()
    word = int(encode_key([pa.array([0])], (False,)).words[0])
    watermarks, hot, tables = [BEFORE_ALL] * len(query.streams), None, list[Table]()
    for batch in script.batches:
        reached = Reached.of(query, watermarks)
        if hot is None:
            hot, spread = reached.begin("0", spread), 1 - spread
        else:
            hot = next_entry(hot, reached)
        tables.append({} if hot is None else {word: hot})
        for i, (spec, elements) in enumerate(zip(query.streams, batch, strict=True)):
            watermarks[i] = max([watermarks[i], *(t.ts - spec.delay for t in elements.tuples)])
    return tables


def next_entry(hot: HotKey, reached: Reached) -> HotKey | None:
    """The entry of the next phase if it may follow, else the same."""
    after = {Phase.COPYING: Phase.SPREAD, Phase.SPREAD: Phase.COOLING, Phase.COOLING: Phase.EXPIRING}
    following = reached.following(hot)
    return following.get(after.get(hot.phase), hot)


def carried_over(
    of: Callable[[Input], Subject], into: Callable[[Input], Subject], input: Input, shards: int
) -> Subject:
    """A subject that continues another's state of a few batches, divided among so many shards, then among ours."""
    longer = replace(input, batches=BEFORE + input.batches)
    old, new = of(longer), into(longer)
    stores = {id: MemoryStore() for id in IDS}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_cache, "application_cache", lambda: Cache(Path(folder), 1 << 30))
        for n in range(BEFORE):
            for id in IDS:
                task = Task(old.query, IDS, id, stores[id], ended=False, processor=old.processor())
                for _ in task.run(old.given[n], Random(n)):
                    pass
                stores[id] = task.store()
    others, found = [MemoryStore() for _ in range(shards)], [MemoryStore() for _ in IDS]
    redistribute(list(stores.values()), others, shard_ids(shards, shards))
    evolve(others, found, IDS, new.join)

    def pack(n: int, chance: Random) -> pa.Table:
        return new.pack(BEFORE + n, chance)

    made = Subject.of(new.query, new.join, input, pack)
    return replace(made, memory=new.memory, found=dict(zip(IDS, found, strict=True)))


def without_equality(input: Input, algorithm: str, how: str, constraints: tuple[Constraint, ...] = ()) -> Subject:
    """Tuples of the first stream are divided by their rows, those of the second copied to every shard."""
    specs = []
    for name, compared, window in zip("ab", "xy", TWO, strict=True):
        schema = pa.schema([(f"{name}_ts", pa.int64()), (compared, pa.int64()), (f"{name}_n", pa.int64())])
        spec = StreamSpec(name, schema, f"{name}_ts", (), window, 2, constraints, compared=compared)
        specs.append(spec)
    query = JoinQuery(tuple(specs), how, parse("abs(x - y) <= 1", columns_of(specs)))
    batches = arrivals(2, input)

    def pack(n: int, chance: Random) -> pa.Table:
        sent: list[pa.RecordBatch] = []
        for i, elements in enumerate(batches[n]):
            elsewhere = tuple(p for p in elements.punctuations if not isinstance(p.pattern, Value))
            sending = replace(shuffled(elements, chance), punctuations=elsewhere)
            sent += blobs(specs[i], i, IDS, sending, chance, copied=i == 1)
        return pa.Table.from_batches(sent, PACKED)

    return Subject.of(query, plan(query, algorithm), input, pack)


#: Batches of a state that is carried over.
BEFORE = 3
TWO, THREE = (TimeWindow(6), TimeWindow(4)), (TimeWindow(6), TimeWindow(4), TimeWindow(5))
#: Memory in which lists and a few segments of rows have room, and in which no rows have any.
ROOM_FOR_A_FEW, NO_ROOM = 11_800, 1
MIXED = (RowsWindow(2, per_key=True), TimeWindow(5), Unbounded())
SUBJECTS: dict[str, Callable[[Input], Subject]] = {
    "hash": lambda input: scripted(input, "hash", "inner", TWO),
    "hash, buckets": lambda input: scripted(input, "hash", "inner", TWO, buckets=2, invalidation="probe_insert"),
    "nested_loop": lambda input: scripted(input, "nested_loop", "inner", TWO),
    "pwjoin, left": lambda input: scripted(input, "pwjoin", "left", TWO),
    "pwjoin, left, clock": lambda input: scripted(input, "pwjoin", "left", TWO, idle_clock=1000),
    "pwjoin, right": lambda input: scripted(input, "pwjoin", "right", TWO),
    "pwjoin, full": lambda input: scripted(input, "pwjoin", "full", TWO),
    "pwjoin, semi": lambda input: scripted(input, "pwjoin", "semi", TWO),
    "pwjoin, anti, unique": lambda input: scripted(input, "pwjoin", "anti", TWO, (Unique(),)),
    "pjoin, ordered": lambda input: scripted(input, "pjoin", "inner", (Unbounded(), Unbounded()), (Ordered(1),)),
    "theta, semi": lambda input: without_equality(input, "theta", "semi"),
    "band, left, ordered": lambda input: without_equality(input, "band", "left", (Ordered(1),)),
    "three streams": lambda input: scripted(input, "general_lazy", "inner", THREE),
    "three streams, put off": lambda input: scripted(input, "general_lazy", "inner", THREE, every=5),
    "three streams, counted": lambda input: scripted(input, "general_lazy", "inner", MIXED),
    "two streams, counted as wholes": lambda input: scripted(
        input, "general_lazy", "inner", (RowsWindow(2), TimeWindow(9)), delays=(1, 8)
    ),
    "three streams, eager": lambda input: scripted(input, "eager", "inner", THREE),
    "three streams, naive": lambda input: scripted(input, "naive_multiway", "inner", THREE),
    "three streams, lazy": lambda input: scripted(input, "lazy", "inner", THREE, every=5),
    "three streams, hybrid": lambda input: scripted(input, "hybrid", "inner", THREE, index=("a", "c")),
    "window-oblivious": lambda input: scripted(
        input, "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(ANY, ANY)
    ),
    "window-oblivious, held back": lambda input: scripted(
        input, "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="msf"
    ),
    "window-oblivious, on disk": lambda input: scripted(
        input, "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="hybrid"
    ),
    "window-oblivious, dbf": lambda input: scripted(
        input, "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="dbf"
    ),
    "window-oblivious, auto": lambda input: scripted(
        input, "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="auto", memory=1_000
    ),
    "window-oblivious, by equation 8": lambda input: scripted(
        input, "wo_join", "inner", (Unbounded(), Unbounded()), buffer="eq8"
    ),
    "window-oblivious, idle": lambda input: scripted(
        input, "wo_join", "inner", (Unbounded(), Unbounded()), idle_after=2, scrambling=(3, 3)
    ),
    "as-of, backward": lambda input: scripted(input, "asof", "left", (Unbounded(), Unbounded()), asof=AsOf()),
    "as-of, nearest": lambda input: scripted(
        input, "asof", "inner", (Unbounded(), Unbounded()), asof=AsOf("nearest", 4, allow_exact=False)
    ),
    "hash, measured delay": lambda input: scripted(input, "hash", "inner", TWO, late_share=0.1),
    "second of a tree": second_of_a_tree,
    "split key": split_key,
    "hot key": hot_key,
    "pwjoin, full, rescaled": lambda input: carried_over(SUBJECTS["pwjoin, full"], SUBJECTS["pwjoin, full"], input, 3),
    "pwjoin, left, evolved": lambda input: carried_over(
        SUBJECTS["pwjoin, left"],
        lambda longer: scripted(longer, "pwjoin", "left", (TimeWindow(9), TimeWindow(2))).bounded(NO_ROOM),
        input,
        1,
    ),
    "three streams, rescaled": lambda input: carried_over(
        SUBJECTS["three streams"], SUBJECTS["three streams"], input, 3
    ),
    "groups, rescaled": lambda input: carried_over(groups, groups, input, 3),
    "groups": groups,
    "groups behind a join": groups_behind_a_join,
    "hash, spilled": lambda input: scripted(input, "hash", "inner", TWO).bounded(ROOM_FOR_A_FEW),
    "pwjoin, full, spilled": lambda input: scripted(input, "pwjoin", "full", TWO).bounded(NO_ROOM),
    "three streams, counted, spilled": lambda input: scripted(input, "general_lazy", "inner", MIXED).bounded(NO_ROOM),
    "groups, spilled": lambda input: groups(input).bounded(NO_ROOM),
}


@cache
def subject(name: str, input: Input = Input()) -> Subject:  # noqa: B008  # it is frozen
    return SUBJECTS[name](input)
