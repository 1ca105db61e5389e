"""`wm.sql` over several streams, windows of rows and streams without a common key: DuckDB's batch gives the same."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from watersmeet.query.duckdb_query import batch_sql
from watersmeet.query.parser import read

pytestmark = pytest.mark.spark

START = datetime(2026, 5, 1)
QUERIES = {
    "three streams": "SELECT * FROM s1 [RANGE 20 SECONDS] A, s2 [RANGE 1 MINUTE] B, s3 [RANGE 30 SECONDS] C "
    "WHERE A.epoch = B.epoch AND B.epoch = C.epoch AND A.val < B.val AND C.val > 3",
    "rows": "SELECT A.n AS a, B.n AS b FROM s1 [ROWS 5] A, s2 [PARTITION BY epoch ROWS 2] B "
    "WHERE A.epoch = B.epoch AND A.val > 5",
    "no common key": "SELECT A.n AS a, B.n AS b, C.n AS c "
    "FROM s1 [RANGE 20 SECONDS] A, s2 [RANGE 20 SECONDS] B, s3 [RANGE 20 SECONDS] C "
    "WHERE A.epoch = B.epoch AND B.n = C.n",
    "groups": "SELECT A.epoch, BUCKET(A.at, '20 seconds') AS t, count(*) AS n, sum(C.val) AS v "
    "FROM s1 [RANGE 20 SECONDS] A, s2 [RANGE 20 SECONDS] B, s3 [RANGE 20 SECONDS] C "
    "WHERE A.epoch = B.epoch AND B.epoch = C.epoch GROUP BY A.epoch, BUCKET(A.at, '20 seconds')",
}


def sensors(spark: SparkSession) -> dict[str, DataFrame]:
    out = {}
    for i in (1, 2, 3):
        rows = [((n * i) % 7, START + timedelta(seconds=3 * n + i), float(n), n) for n in range(40)]
        out[f"s{i}"] = spark.createDataFrame(rows, "epoch long, at timestamp_ntz, val double, n long")
    return out


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_the_batch_says_the_same(spark: SparkSession, query: str) -> None:
    frames = sensors(spark)
    parsed = read(query, {name: df.columns for name, df in frames.items()})
    times, ties = ({one.name: column for one in parsed.inputs} for column in ("at", "n"))
    with duckdb.connect(config={"threads": 1}) as database:
        for name, df in frames.items():
            database.register(name, df.toArrow())
        want = Counter(database.execute(batch_sql(parsed, times, ties)).fetchall())
    assert want
    streams = {one.stream: wm.stream(frames[one.stream], time="at", order_by="n") for one in parsed.inputs}
    found = wm.sql(query, **streams).df.toArrow().to_pylist()
    assert Counter(tuple(row.values()) for row in found) == want
