"""One NEXMark query by one contender, over the same files, its results compared with DuckDB's row by row.

    python -m benchmarks.nexmark_run q4 watersmeet [--quick]

runs it in this process and prints its measurements as JSON on the last line. The files are two of bids, one of auctions
and one of people per micro-batch. The last batch closes the auctions that still run, and then each stream has a row far
in the future, so that no contender holds results back.
"""

import argparse
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks import cases, contenders, data
from benchmarks.nexmark_queries import QUERIES, Query, Streams
from watersmeet.workload import ORIGIN, SECOND, STREAMS, Nexmark

CONTENDERS = (cases.WATERSMEET, cases.NATIVE_MEMORY, cases.NATIVE_ROCKSDB)
FILES = {"persons": 1, "auctions": 1, "bids": 2}
LAST = {  # rows of the far future, which match nothing
    "persons": {"person_id": -1},
    "auctions": {"auction_id": -2, "seller": -3, "category": 0},
    "bids": {"auction_id": -4, "closed": False},
}
TIMES = {"persons": "registered_at", "auctions": "opened_at", "bids": "bid_at"}
SCHEMAS = {
    "persons": "person_id BIGINT, name STRING, city STRING, state STRING, registered_at TIMESTAMP",
    "auctions": "auction_id BIGINT, item_name STRING, initial_bid BIGINT, reserve BIGINT, opened_at TIMESTAMP, "
    "expires_at TIMESTAMP, seller BIGINT, category BIGINT",
    "bids": "auction_id BIGINT, bidder BIGINT, price BIGINT, bid_at TIMESTAMP, closed BOOLEAN",
}


@dataclass(frozen=True)
class Size:
    """The size of a run: `small` batches of a thousand events for the JVM (see `cases.warm_up`), and `warm_up` ones for
    the state, which are not measured; then `steady` ones, and their event time."""

    rate: int
    in_flight: int
    warm_up: int
    steady: int
    seconds: int = 5
    small: int = 60

    @property
    def market(self) -> Nexmark:
        return Nexmark(rate=self.rate, seed=1, in_flight=self.in_flight)

    @property
    def cuts(self) -> list[int]:
        """The event times at which batches begin and, the last one, end."""
        small, large = 1_000 * SECOND // self.rate, self.seconds * SECOND
        large_ones = range(self.warm_up + self.steady + 1)
        return [*(n * small for n in range(self.small)), *(self.small * small + n * large for n in large_ones)]

    @property
    def end(self) -> int:
        return self.cuts[-1]

    @property
    def longest_seconds(self) -> int:
        return ceil(self.market.longest / SECOND)

    @property
    def phases(self) -> list[str]:
        return ["warm-up"] * (self.small + self.warm_up) + ["steady"] * self.steady + ["end"]


FULL = Size(rate=40_000, in_flight=12_000, warm_up=4, steady=8)  # 200 k events a batch; auctions last 5 s on average
QUICK = Size(rate=1_000, in_flight=300, warm_up=1, steady=3, small=0)


def make(size: Size) -> Path:
    """The folder with the streams' files, generated unless it exists."""
    folder = data.scratch("data") / f"nexmark-{hashlib.sha256(repr(size).encode()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    options = {"rate": str(size.rate), "seed": "1", "in_flight": str(size.in_flight)}
    for name, parts in FILES.items():
        (unfinished / name).mkdir(parents=True)
        stream = STREAMS[f"nexmark_{name}"](options)
        for number, (begin, end) in enumerate(pairwise(size.cuts)):
            table = stream.table(begin, end)
            for part in range(parts):
                data.write_file(table.take(np.arange(part, table.num_rows, parts)), unfinished / name, number, part)
        last = _last(name, stream.table(size.end, size.end + size.market.longest), size)
        data.write_file(last, unfinished / name, len(size.cuts) - 1, 0)
    unfinished.rename(folder)
    return folder


def _last(name: str, after: pa.Table, size: Size) -> pa.Table:
    """The last rows of a stream: outstanding punctuations of the bids, then the row of the far future."""
    far = {TIMES[name]: pa.scalar(ORIGIN + size.end + 86_400 * SECOND).cast(pa.timestamp("us", "UTC"))}
    row = pa.Table.from_pylist([LAST[name] | {n: v.as_py() for n, v in far.items()}], schema=after.schema)
    if name != "bids":
        return row
    opened = size.market.auctions(0, size.end)["auction_id"].max()
    return pa.concat_tables([after.filter(pc.and_(after["closed"], pc.less_equal(after["auction_id"], opened))), row])


def run(query: Query, contender: str, size: Size) -> dict[str, Any]:
    """One contender in a session of its own."""
    scratch = Path(tempfile.mkdtemp(prefix=query.name, dir=data.scratch("checkpoints")))
    spark = contenders.CONTENDERS[contender].start_session({})
    try:
        return {"contender": contender} | work(spark, query, contender == cases.WATERSMEET, size, scratch)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def work(spark: SparkSession, query: Query, ours: bool, size: Size, scratch: Path) -> dict[str, Any]:
    """Process all files, read the times from Spark's progress, and compare the results."""
    files = make(size)
    streams = {name: _read(spark, files, name) for name in FILES}
    results = (query.ours if ours else query.native)(Streams(**streams, longest=f"{size.longest_seconds} seconds"))
    counted = results.observe("bench", sf.count(sf.lit(1)).alias("results"))
    written = counted.writeStream.format("parquet").option("checkpointLocation", str(scratch / "checkpoint"))
    running = written.start(str(scratch / "results"))
    running.processAllAvailable()
    progress = [json.loads(p.json) for p in running.recentProgress]
    running.stop()
    fed = [p for p in progress if any(s["startOffset"] != s["endOffset"] for s in p["sources"])]
    batches = [contenders.batch(p, phase) for p, phase in zip(fed, size.phases, strict=True)]
    for number, batch in enumerate(batches):  # Spark does not count what a filter lets it skip
        batch["rows"] = sum(
            pq.read_metadata(file).num_rows for name in query.inputs for file in (files / name).glob(f"{number:04d}-*")
        )
    missing, unexpected, rows = compare(query, files, scratch / "results")
    return {
        "query": query.name,
        "results": rows,
        "missing": missing,
        "unexpected": unexpected,
        "late": sum(b["watersmeet"].get("late", 0) + b["watersmeet"].get("violations", 0) for b in batches),
        "batches": batches,
    }


def _read(spark: SparkSession, files: Path, name: str) -> DataFrame:
    source = spark.readStream.schema(SCHEMAS[name]).option("maxFilesPerTrigger", FILES[name])
    return source.parquet(str(files / name))


def compare(query: Query, files: Path, results: Path) -> tuple[int, int, int]:
    """The numbers of rows that only DuckDB has, that only the contender has, and of all the contender's; as bags."""
    with duckdb.connect() as database:
        for name in FILES:
            real = "auction_id" if name != "persons" else "person_id"
            database.execute(f"CREATE VIEW {name} AS FROM read_parquet('{files}/{name}/*.parquet') WHERE {real} >= 0")
        database.execute(f"CREATE TABLE expected AS {query.batch}")
        database.execute(f"CREATE TABLE found AS FROM read_parquet('{results}/*.parquet')")
        columns = ", ".join(name for name, *_ in database.execute("DESCRIBE expected").fetchall())

        def count(what: str) -> int:
            row = database.execute(f"SELECT count(*) FROM ({what})").fetchone()
            return int(row[0]) if row else 0

        expected, found = (f"SELECT {columns} FROM {table}" for table in ("expected", "found"))
        return count(f"{expected} EXCEPT ALL {found}"), count(f"{found} EXCEPT ALL {expected}"), count(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nexmark_run")
    parser.add_argument("query", choices=QUERIES)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    print(json.dumps(run(QUERIES[options.query], options.contender, QUICK if options.quick else FULL)))


if __name__ == "__main__":
    main()
