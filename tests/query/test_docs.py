"""The queries of docs/cql.md: the engine's answer is that of the batch, and there is one."""

from __future__ import annotations

import random
import re
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from lab.query.duckdb_engine import bag, in_duckdb, run
from lab.query.query_mistakes import MESSAGES
from watersmeet.query.duckdb_query import batch_sql
from watersmeet.query.lowering import DeclaredStream, lower
from watersmeet.query.parser import read

PAGE = (Path(__file__).parents[2] / "docs" / "cql.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
START = datetime(2026, 5, 1)


def _tables() -> dict[str, pa.Table]:
    dice = random.Random(7)
    at = [START + timedelta(seconds=3 * n) for n in range(40)]
    auction = [{"item_id": n, "opened_at": t, "seller": "xyz"[n % 3], "reserve": n % 7} for n, t in enumerate(at)]
    bid = [
        {"item_id": dice.randrange(40), "bid_at": t, "price": dice.randrange(9), "bidder": dice.choice("pqr")}
        for t in at * 3
    ]
    out = {"auction": pa.Table.from_pylist(auction), "bid": pa.Table.from_pylist(bid)}
    for n in range(1, 5):
        rows = [{"epoch": e, "val": dice.random(), "heard_at": t} for e, t in enumerate(at) if dice.random() > 0.1]
        out[f"sensor{n}"] = pa.Table.from_pylist(rows)
    return out


TABLES = _tables()
TIMES = {"auction": "opened_at", "bid": "bid_at"}


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: " ".join(q.split())[:40])
def test_queries_of_the_page(query: str) -> None:
    parsed = read(query, {name: table.schema.names for name, table in TABLES.items()})
    times = {i.name: TIMES.get(i.stream, "heard_at") for i in parsed.inputs}
    want = bag(in_duckdb(batch_sql(parsed, times), TABLES))
    assert want
    plan = lower(query, parsed, {name: DeclaredStream(time) for name, time in times.items()})
    assert bag(run(plan, TABLES, 3)) == want


def test_the_mistake_of_the_page_is_reported_as_such() -> None:
    found = re.findall(r"```\n(QueryError.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1
    assert found[0] in MESSAGES.read_text()
