"""A query without Spark: DuckDB runs everything below and above the join, the engine joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.joins import plan as operator
from watersmeet.model.batches import Batch
from watersmeet.model.grouping import Bucket
from watersmeet.model.queries import JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, Unbounded
from watersmeet.query.lowering import LoweredQuery, Side
from watersmeet.query.predicate_parser import from_tree

Bag = Counter[tuple[Any, ...]]
#: Longer than the time between any two rows of a test: no row is late.
DELAY = 10**12
AGGREGATES = {"mean": "avg({})", "count_distinct": "count(DISTINCT {})", "collect_list": "list({})"}


def in_duckdb(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    with duckdb.connect(config={"threads": 1}) as database:
        for name, table in tables.items():
            database.register(name, table)
        return database.sql(sql).to_arrow_table()


def bag(table: pa.Table) -> Bag:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def run(plan: LoweredQuery, tables: Mapping[str, pa.Table], cuts: int) -> pa.Table:
    """What a plan makes of these tables, which come in so many batches."""
    brought = [_below(side, tables) for side in plan.sides]
    specs = tuple(_spec(plan, side, rows) for side, rows in zip(plan.sides, brought, strict=True))
    own, rest = None, None
    if plan.where is not None:
        try:
            own = from_tree(plan.where, columns_of(specs))
        except QueryError:
            assert plan.how == "inner", "only results of an inner join are filtered behind it"
            rest = plan.where
    query = JoinQuery(specs, plan.how, own, asof=plan.asof)
    results = in_duckdb(_select(plan, rest), {"results": _joined(plan, query, brought, cuts)})
    return results


def _below(side: Side, tables: Mapping[str, pa.Table]) -> pa.Table:
    columns = ", ".join(f'{_duck(e)} AS "{name}"' for name, e in side.columns)
    where = "" if side.where is None else f" WHERE {_duck(side.where)}"
    return in_duckdb(f'SELECT {columns} FROM "{side.stream}"{where}', tables)


def _spec(plan: LoweredQuery, side: Side, rows: pa.Table) -> StreamSpec:
    window = Unbounded() if side.window is None else side.window
    key = tuple(equal[side.name] for equal in plan.equal)
    return StreamSpec(side.name, rows.schema, side.time, key, window, DELAY, order_by=side.order_by)


def _joined(plan: LoweredQuery, query: JoinQuery, brought: list[pa.Table], cuts: int) -> pa.Table:
    several = len(plan.sides) > 2 or plan.every or any(isinstance(s.window, RowsWindow) for s in plan.sides)
    options = {} if plan.every is None else {"every": plan.every}
    name = "general_lazy" if several else "pwjoin"
    if query.asof is not None or query.is_theta:
        name = "theta" if query.is_theta else "asof"
    join = operator(query, name, **options).start()
    found = []
    for n in range(cuts):
        batches = []
        for spec, rows in zip(query.streams, brought, strict=True):
            start, end = (rows.num_rows * i // cuts for i in (n, n + 1))
            part = rows.slice(start, end - start).combine_chunks().to_batches()
            batch = part[0] if part else pa.RecordBatch.from_pylist([], schema=rows.schema)
            batches.append(Batch.of(batch, spec.time, ended=n == cuts - 1))
        found += list(join.step(batches))
    return pa.concat_tables([query.schema.empty_table(), *found])


def _select(plan: LoweredQuery, rest: exp.Expr | None) -> str:
    outputs = ", ".join(f'{_duck(e)} AS "{name}"' for name, e in plan.outputs)
    conditions = [_duck(c) for c in (rest, plan.after) if c is not None]
    where = f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
    if not plan.by:
        return f"SELECT {outputs} FROM results{where}"
    columns = [_bucket(b) if isinstance(b, Bucket) else f'"{b}"' for b in plan.by]
    for name, aggregate in plan.aggregates:
        of = "*" if aggregate.column is None else f'"{aggregate.column}"'
        columns.append(f'{AGGREGATES.get(aggregate.kind, aggregate.kind + "({})").format(of)} AS "{name}"')
    groups = (
        f"SELECT {', '.join(columns)} FROM results{where} GROUP BY {', '.join(map(str, range(1, len(plan.by) + 1)))}"
    )
    having = "" if plan.having is None else f" WHERE {_duck(plan.having)}"
    return f"SELECT {outputs} FROM ({groups}){having}"


def _bucket(b: Bucket) -> str:
    return f'time_bucket(to_microseconds({b.length}), "{b.column}", TIMESTAMP \'1970-01-01\') AS "{b.name}"'


def _duck(e: exp.Expr) -> str:
    return e.sql("duckdb")
