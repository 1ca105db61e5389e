"""No column of a user is taken for one of ours, whatever it is called."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import watersmeet
from lab.joins.oracle import rows_of
from lab.tws.task import Task, table_of
from watersmeet.checkpoints.redistribute import redistribute
from watersmeet.joins import Join
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.grouping import Aggregate, GroupBy, GroupedQuery
from watersmeet.model.punctuations import Clustered, Ordered
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import TimeWindow
from watersmeet.query.predicate_parser import parse
from watersmeet.spark.planning.columns import RESERVED
from watersmeet.spark.punctuations import flag, part
from watersmeet.spark.runtime.packing import PACKED, PackedRule, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.row_kinds import RESULT
from watersmeet.state.durable.log import MemoryStore

pytestmark = pytest.mark.tws

#: Calls that name columns.
_CALLS = ("field", "schema", "column", "record_batch", "table", "set_column", "append_column", "alias", "sort_by")
_ROOMS = ("joins", "model", "spark", "state")


def internal_names() -> list[str]:
    """Names that the code gives to columns: texts in calls that make or read them, and constants."""
    names: set[str] = set()
    for room in _ROOMS:
        for path in (Path(watersmeet.__file__).parent / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr
                if called in _CALLS or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
                    names |= {
                        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
                    }
    return sorted(n for n in names if re.fullmatch(r"\w[\w ]*", n) and not n.startswith(RESERVED.strip()))


NAMES = internal_names()
RULES = (PackedRule(0, "value"), PackedRule(1, "list"), PackedRule(2, "range", needs=(True, True)))
IDS = {n: shard_ids(n, n) for n in (1, 2)}


def test_the_names_are_found() -> None:
    some = {"time", "upstream_shard", "low", "high", "closed at", "effective", "until", "blob", "shard", "segment"}
    assert some <= set(NAMES)


def blobs(query: JoinQuery, ids: tuple[int, ...], a: list[Any], b: list[Any], found: list[Any]) -> pa.Table:
    """Rows of both streams, and of the second its punctuations: (time, value, list, range)."""
    first, second = query.streams
    rows = pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(zip(*a, strict=True), first.schema, strict=True)], schema=first.schema
    )
    columns = [
        pa.array([*c, *([None] * len(found))], f.type) for c, f in zip(zip(*b, strict=True), second.schema, strict=True)
    ]
    columns[1] = pa.array([*(r[1] for r in b), *(p[0] for p in found)], pa.int64())
    kinds = [pa.int64(), pa.list_(pa.int64())]
    none = [None] * len(b)
    given: dict[str, pa.Array] = {
        flag(n): pa.array([*([False] * len(b)), *(p[n + 1] is not None for p in found)]) for n in range(3)
    }
    given |= {part(n, 0): pa.array([*none, *(p[n + 1] for p in found)], kinds[n]) for n in range(2)}
    given |= {part(2, e): pa.array([*none, *(p[3] and p[3][e] for p in found)], pa.int64()) for e in (0, 1)}
    marked = pa.record_batch([*columns, *given.values()], names=[*second.schema.names, *given])
    sent = [*Packer(first, 0, ids)(iter([rows])), *Packer(second, 1, ids, RULES)(iter([marked]))]
    return pa.Table.from_batches(sent, PACKED)


def outcome(key: str, time: str, payload: str, grouped: bool = False) -> Any:
    """Everything that a join of two streams says in two batches, the second on another number of shards: without names.

    Keys of the first stream ascend and come together; the second closes values, lists and ranges, one of which has no
    end. Rows come late, and against these punctuations.
    """
    a_columns = pa.schema([(key, pa.int64()), (time, pa.int64()), (payload, pa.int64())])
    b_columns = pa.schema([(key, pa.int64()), ("user b at", pa.int64()), ("user b n", pa.int64())])
    window = TimeWindow(100)
    specs = (
        StreamSpec("a", a_columns, time, (key,), window, 0, (Clustered(), Ordered())),
        StreamSpec("b", b_columns, "user b at", (key,), window, 1),
    )
    where = parse(f"`{payload}` <> `user b n`", columns_of(specs))
    query = JoinQuery(specs, "left", where)
    if grouped:
        by = GroupBy((key, payload), ((f"{time}", Aggregate("count")),), "update")
        query = GroupedQuery(specs, "left", where, group_by=by)
    join = GroupedJoin(Join(query.join, PWJoin()), query) if isinstance(query, GroupedQuery) else Join(query, PWJoin())
    batches = (
        (
            [(1, 1, 0), (2, 2, 0), (5, 3, 0)],
            [(1, 1, 7), (5, 2, 0)],
            [(2, 2, None, None), (2, None, [8], None), (2, None, None, (None, 4))],
        ),
        ([(5, 4, 1), (2, 5, 0), (6, 6, 0)], [(5, 6, 1), (2, 6, 0), (6, 0, 9)], [(6, None, None, (3, 4))]),
        ([(9, 300, 0)], [(9, 300, 0), (3, 300, 0)], [(300, 9, None, None)]),
    )
    stores = {id: MemoryStore() for id in IDS[1]}
    out: list[Any] = []
    for n, batch in enumerate(batches):
        ids = IDS[2] if n == 2 and not grouped else IDS[1]
        if len(ids) != len(stores):
            new = [MemoryStore() for _ in ids]
            redistribute(list(stores.values()), new, ids)
            stores = dict(zip(ids, new, strict=True))
        sent, received = blobs(query, ids, *batch), []
        for shard in ids:
            task = Task(query, ids, shard, stores[shard], ended=False, join=join)
            for frame in task.run(sent, Random(0)):
                received += _without_names(table_of(frame, task.processor.output_rows))
            stores[shard] = task.store()
        out.append(sorted(received, key=repr))
    return out


def _without_names(table: pa.Table) -> list[Any]:
    (kind,) = set(table.column(0).to_pylist())
    if kind == RESULT:
        return rows_of(table.select(list(range(2, table.num_columns))))
    details = [json.loads(text) for text in table.column(1).to_pylist()]
    return [(kind, n["stream"], _values(n["row"])) for n in details if "row" in n] + [
        (kind, n["rows_in"], n["late"], n["violations"], n["stored"]) for n in details if "row" not in n
    ]


def _values(row: Any) -> Any:
    return list(map(_values, row.values())) if isinstance(row, dict) else row


@cache
def plain(grouped: bool) -> Any:
    return outcome("user k", "user at", "user n", grouped)


def test_rows_of_every_kind_come_out() -> None:
    kinds = {row[0] for batch in plain(False) for row in batch if len(row) == 3}
    assert {1, 2, 3} <= kinds, "late rows, violations, punctuations"


@pytest.mark.parametrize("n", range(len(NAMES)), ids=NAMES.__getitem__)
def test_columns_may_be_called_as_ours(n: int) -> None:
    """Each name is in turn that of the key, of the time and of another column."""
    key, time, payload = (NAMES[(n + i) % len(NAMES)] for i in range(3))
    grouped = bool(n % 2)
    assert outcome(key, time, payload, grouped) == plain(grouped)
