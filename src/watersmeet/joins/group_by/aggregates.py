"""Aggregates in two stages: a row is lifted to a *partial* group, and partial groups of one kind are merged.

Partials are Arrow tables: `until` (the last instant of the bucket that ends the group), the group columns g0, g1, …,
and the columns that each aggregate needs. Merging is the only grouped operation: of rows of a batch, and of a batch
with the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.errors import ColumnError, WatersmeetError
from watersmeet.model.batches import AFTER_ALL
from watersmeet.model.grouping import Aggregate, GroupedQuery
from watersmeet.state import arrow_groups as grouped
from watersmeet.state.keys import encode

#: The end of a group without a bucket.
NEVER = AFTER_ALL
BYTES = pa.large_binary()


class Fold:
    """Lifts, merges and reads out the groups of one query."""

    def __init__(self, query: GroupedQuery) -> None:
        self.query = query
        self.results = query.join.schema
        self.by = [f"g{i}" for i in range(len(query.group_by.by))]
        self.aggregates = query.group_by.aggregates
        self.bucket = query.final_bucket()
        # a result of an as-of join has the time of its first tuple
        streams = query.streams if query.pairs and query.asof is None else query.streams[:1]
        # a time that is a key is called in the results as in the first stream
        keys = [dict(zip(s.key, streams[0].key, strict=True)) for s in streams]
        self.times = [key.get(s.time, s.time) for s, key in zip(streams, keys, strict=True)]
        self.comparable = [f.name for f in self.results if _comparable(f.type)]
        kinds = {a.kind for _, a in self.aggregates}
        self.ends = [end for end in ("first", "last") if end in kinds]
        self.ordered = bool(self.ends) or "collect_list" in kinds
        self.schema = self.lift(self.results.empty_table()).schema

    # ------------------------------------------------------------ lifting

    def partials(self, results: pa.Table) -> pa.Table:
        """The groups of some results."""
        return self.merge(self.lift(results))

    def lift(self, results: pa.Table) -> pa.Table:
        """Every result as a group of its own."""
        n = results.num_rows
        columns = [grouped.whole(results.column(c)) for c in self.results.names]
        rows = dict(zip(self.results.names, columns, strict=True))
        out: dict[str, pa.Array] = {"until": pa.repeat(pa.scalar(NEVER, pa.int64()), n)}
        for position, (name, by) in enumerate(zip(self.by, self.query.group_by.by, strict=True)):
            if isinstance(by, str):
                out[name] = _canonical(rows[by])
            else:
                start = _floor(rows[by.column], by.length)
                out[name] = start.cast(rows[by.column].type)
                if self.bucket is not None and self.bucket[0] == position:
                    out["until"] = pc.fill_null(pc.add(start, by.length - 1), NEVER)
        at, row = self._order(rows) if self.ordered else (None, None)
        for end in self.ends:
            out |= {f"{end}.at": at, f"{end}.row": row}
        for k, (_, aggregate) in enumerate(self.aggregates):
            out |= self._lifted(f"a{k}", aggregate, rows, n, at, row)
        return pa.table(out)

    def _lifted(
        self, name: str, aggregate: Aggregate, rows: dict[str, pa.Array], n: int, at: Any, row: Any
    ) -> dict[str, pa.Array]:
        if aggregate.column is None:
            return {f"{name}.n": pa.repeat(pa.scalar(1, pa.int64()), n)}
        values = rows[aggregate.column]
        counted = {f"{name}.n": values.is_valid().cast(pa.int64())}
        match aggregate.kind:
            case "count":
                return counted
            case "sum":
                return {f"{name}.sum": values.cast(_wide(values.type))}
            case "mean":
                return {f"{name}.sum": values.cast(_wide(values.type))} | counted
            case "collect_list":
                some = values.is_valid()
                entries = pa.StructArray.from_arrays([at, row, values], ["at", "row", "value"])
                return {f"{name}.list": grouped.lists_of(entries.filter(some), some)}
            case "count_distinct":
                some = values.is_valid()
                return {f"{name}.set": grouped.lists_of(row_bytes([values]).filter(some), some)}
            case _:
                return {f"{name}.{aggregate.kind}": values}

    def _order(self, rows: dict[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
        """The order of results: event time, then bytes."""
        times = [rows[t].cast(pa.int64()) for t in self.times]
        at = pc.max_element_wise(*times, skip_nulls=True) if len(times) > 1 else times[0]
        return at, row_bytes([rows[c] for c in self.comparable])

    # ------------------------------------------------------------ merging

    def merge(self, table: pa.Table) -> pa.Table:
        """One row for each group."""
        groups = grouped.Groups.of([grouped.whole(table.column(c)) for c in self.by])
        if groups.count == table.num_rows:
            return table
        columns = {c: grouped.whole(table.column(c)) for c in table.column_names}
        out = {c: columns[c].take(groups.representatives) for c in ("until", *self.by)}
        for end in self.ends:
            at = groups.extreme([columns[f"{end}.at"], columns[f"{end}.row"]], last=end == "last")
            same = [c for c in columns if c.startswith(f"{end}.") or c.endswith(f".{end}")]
            out |= {c: columns[c].take(at) for c in same}
        for name, column in columns.items():
            match name.rpartition(".")[2]:
                case "n" | "sum":
                    out[name] = groups.sum(column)
                case "min" | "max" as kind:
                    out[name] = groups.least(column) if kind == "min" else groups.greatest(column)
                case "list":
                    out[name] = groups.concatenate(column)
                case "set":
                    out[name] = groups.unite(column)
        return pa.table([out[c] for c in table.column_names], schema=self.schema)

    # ------------------------------------------------------------ reading out

    def read(self, table: pa.Table) -> pa.Table:
        """Groups as rows of the query's schema."""
        schema = self.query.schema
        columns = [grouped.whole(table.column(c)) for c in self.by]
        for k, (name, aggregate) in enumerate(self.aggregates):
            columns.append(self._read(f"a{k}", name, aggregate, table, schema.field(name).type))
        return pa.table(columns, schema=schema)

    def _read(self, name: str, called: str, aggregate: Aggregate, table: pa.Table, kind: pa.DataType) -> pa.Array:
        def part(what: str) -> pa.Array:
            return grouped.whole(table.column(f"{name}.{what}"))

        match aggregate.kind:
            case "count":
                return part("n")
            case "sum":
                try:
                    return part("sum").cast(kind)
                except pa.ArrowInvalid as error:
                    raise WatersmeetError(
                        f"`{called}`, the sum of `{aggregate.column}`, is too large for {kind} in a group.",
                        hint=f"cast `{aggregate.column}` to a decimal or a double before the join.",
                    ) from error
            case "mean":
                if pt.is_decimal(kind):
                    return _decimal_mean(part("sum"), part("n"), kind)
                return pc.divide(part("sum").cast(pa.float64()), part("n").cast(pa.float64()))
            case "collect_list":
                return grouped.sorted_values(part("list"), kind)
            case "count_distinct":
                return pc.list_value_length(part("set")).cast(pa.int64())
            case _:
                return part(aggregate.kind)


def row_bytes(columns: Sequence[pa.Array]) -> pa.Array:
    """Bytes of rows, equal iff the rows are; of several columns, or of one."""
    keys = encode(columns if len(columns) > 1 else [columns[0], columns[0]])
    return pa.Array.from_buffers(BYTES, len(keys), [None, pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)])


def _canonical(column: pa.Array) -> pa.Array:
    """Equal floats look equal: one NaN, one zero."""
    if not pt.is_floating(column.type):
        return column
    positive = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(positive), pa.scalar(float("nan"), column.type), positive)


def _floor(times: pa.Array, length: int) -> pa.Array:
    whole = times.cast(pa.int64())
    micros = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)
    return pa.array(micros - micros % length, mask=~np.asarray(whole.is_valid()))


def _wide(kind: pa.DataType) -> pa.DataType:
    """A type in which sums of values of this one are exact, or as exact as floats are."""
    if pt.is_decimal(kind):
        return pa.decimal128(38, kind.scale)
    return pa.decimal128(38, 0) if pt.is_integer(kind) else pa.float64()


def _decimal_mean(sums: pa.Array, counts: pa.Array, kind: pa.DataType) -> pa.Array:
    unit = Decimal(1).scaleb(-kind.scale)
    with localcontext(prec=76):
        means = [
            None if s is None else (s / n).quantize(unit, ROUND_HALF_UP)
            for s, n in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
        ]
    return pa.array(means, kind)


def _comparable(kind: pa.DataType) -> bool:
    try:
        encode([pa.nulls(0, kind)])
    except ColumnError:
        return False
    return True
