"""Scripts run over shards: the blobs of source partitions, and the output of the shards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa

from lab.joins.oracle import KEYS, Row, key_types, rows_of
from lab.joins.scripts import Script
from lab.tws.task import Task, table_of
from watersmeet.joins import Join
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import End, Heartbeat, Range, Value, ValueList
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.spark.punctuations import flag, part
from watersmeet.spark.runtime.order_detail import OrderDetail
from watersmeet.spark.runtime.packing import PACKED, Blob, PackedRule, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.row_kinds import RESULT, STATS
from watersmeet.state.durable.log import MemoryStore

#: Every kind of punctuation in a DataFrame; ranges once for each way to close their ends.
RULES = (
    PackedRule(0, "value"),
    PackedRule(1, "list"),
    *(PackedRule(2 + n, "range", bool(n & 1), bool(n & 2)) for n in range(4)),
    PackedRule(6, "heartbeat"),
    PackedRule(7, "end"),
)


def rows_with_rules(spec: StreamSpec, elements: Elements) -> pa.RecordBatch:
    """Tuples and punctuations as rows of one DataFrame, in any order."""
    kinds = [spec.schema.field(k).type for k in spec.punctuated]
    rows: list[dict[str, Any]] = []
    for t in elements.tuples:
        rows.append(dict(zip(spec.schema.names, (t.ts, *t.key, t.row), strict=True)))
    for p in elements.punctuations:
        row: dict[str, Any] = {spec.time: p.time}
        match p.pattern:
            case Value(key):
                row |= {flag(0): True} | {part(0, n): v for n, v in enumerate(key)}
            case ValueList(keys) if len(kinds) == 1:
                row |= {flag(1): True, part(1, 0): [key[0] for key in keys]}
            case ValueList(keys):
                rows += [row | {flag(0): True} | {part(0, n): v for n, v in enumerate(key)} for key in keys]
                continue
            case Range(low, high, low_closed, high_closed):
                number = 2 + low_closed + 2 * high_closed
                row |= {flag(number): True, part(number, 0): low, part(number, 1): high}
            case Heartbeat(until):
                row |= {flag(6): True, part(6, 0): until}
            case End():
                row |= {flag(7): True}
            case _:
                continue
        rows.append(row)
    parts = {part(0, n): kind for n, kind in enumerate(kinds)} | {part(1, 0): pa.list_(kinds[0])}
    parts |= {part(number, n): kinds[0] for number in range(2, 6) for n in (0, 1)} | {part(6, 0): pa.int64()}
    columns = {f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in spec.schema}
    columns |= {flag(n): pa.array([row.get(flag(n), False) for row in rows], pa.bool_()) for n in range(8)}
    columns |= {name: pa.array([row.get(name) for row in rows], kind) for name, kind in parts.items()}
    return pa.record_batch(columns)


def blobs(
    spec: StreamSpec,
    i: int,
    ids: tuple[int, ...],
    elements: Elements,
    chance: Random,
    order_detail: OrderDetail = OrderDetail.NOTHING,
    *,
    copied: bool = False,
) -> list[pa.RecordBatch]:
    """What a few source partitions send."""
    rows = rows_with_rules(spec, elements)
    partitions = chance.randint(1, 3)
    homes = [chance.randrange(partitions) for _ in range(rows.num_rows)]
    out: list[pa.RecordBatch] = []
    for partition in range(partitions):
        mine = rows.take(pa.array([n for n, home in enumerate(homes) if home == partition], pa.int64()))
        about = {"order_detail": order_detail, "partition": 10 * i + partition, "copied": copied}
        packer = Packer(spec, i, ids, RULES, **about)
        out += packer(iter([mine]))
    return out


class Shards:
    """A join, by default PWJoin, on several shards, and its output of the last batch."""

    def __init__(
        self,
        script: Script,
        shards: int,
        on_violation: str = "drop",
        join: Callable[[JoinQuery], Join[Any]] = lambda query: Join(query, PWJoin()),
    ) -> None:
        self.script, self.query, self.ids = script, script.query(), shard_ids(shards, shards)
        self.join = join(self.query)
        self.on_violation = on_violation
        self.stores = {id: MemoryStore() for id in self.ids}
        self.results: list[Row] = []
        self.details: dict[int, list[dict[str, Any]]] = {}

    def step(self, elements: tuple[Elements, ...], chance: Random) -> None:
        sent = [b for i, n in enumerate(elements) for b in blobs(self.query.streams[i], i, self.ids, n, chance)]
        table = pa.Table.from_batches(sent, PACKED)
        order = list(range(table.num_rows))
        chance.shuffle(order)
        self.results, self.details = [], {}
        for shard in self.ids:
            options: dict[str, Any] = {"join": self.join, "on_violation": self.on_violation}
            task = Task(self.query, self.ids, shard, self.stores[shard], ended=False, **options)
            for frame in task.run(table.take(pa.array(order, pa.int64())), chance):
                self._read(table_of(frame, task.processor.output_rows))
            self.stores[shard] = task.store()

    def _read(self, table: pa.Table) -> None:
        (kind,) = set(table.column(0).to_pylist())
        if kind == RESULT:
            self.results += rows_of(table.select(self.query.schema.names))
        else:
            self.details.setdefault(kind, []).extend(json.loads(detail) for detail in table.column(1).to_pylist())

    def unjoined(self, kind: int) -> Counter[tuple[str, int]]:
        """Stream and number of the late or violating rows."""
        return Counter((d["stream"], d["row"][f"{d['stream']}_n"]) for d in self.details.get(kind, []))

    def stored(self) -> int:
        return sum(d["stored"] for d in self.details[STATS])


flat = sorted(kind for kind in KEYS if not any(pa.types.is_nested(t) for t in key_types(kind)))


class OutputPunctuations:
    """Output punctuations of all shards: a shard's punctuation of a key counts if the key belongs to the shard."""

    def __init__(self, script: Script, ids: tuple[int, ...]) -> None:
        self.script, self.ids = script, ids
        self.keys: list[tuple[int, Any]] = []
        self.ranges: list[tuple[int, dict[str, Any]]] = []

    def add(self, details: list[dict[str, Any]]) -> None:
        for detail in details:
            assert detail["stream"] is None
            if "key" in detail["row"]:
                self.keys.append((detail["shard"], detail["row"]["key"][0]))
            elif "range" in detail["row"]:
                self.ranges.append((detail["shard"], detail["row"]["range"]))

    def finished(self, key: tuple[Any, ...]) -> bool:
        home = self.ids.index(*homes(self.script.spec(0), self.ids, key))
        value = key[0]
        assert not any(shard != home and value == closed for shard, closed in self.keys), "a key of another shard"
        if (home, value) in self.keys:
            return True
        return any(
            shard == home
            and ("low" not in r or r["low"] <= value)
            and ("high" not in r or value <= r["high"])
            and ("below" not in r or value < r["below"])
            for shard, r in self.ranges
        )


def homes(spec: StreamSpec, ids: tuple[int, ...], key: tuple[Any, ...]) -> list[int]:
    """Shards that get a row with this key."""
    sent = pa.Table.from_batches(Packer(spec, 0, ids)(iter([rows_with_rules(spec, Elements((Tuple(0, key, 0),)))])))
    return [row["shard"] for row in sent.to_pylist() if row["rows"] and row["kind"] == Blob.ROWS]
