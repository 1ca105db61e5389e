"""DuckDB, as a batch: reads the Parquet files, joins, adds up the payloads so that it has to carry them."""

import duckdb

from benchmarks.engines.answer import WINDOW_MS, Answer, Task, Watch


def main() -> None:
    task = Task.read()
    with duckdb.connect() as database:
        database.execute("SET threads = 2")
        watch = Watch()
        found = database.execute(
            f"SELECT count(*), sum(a_v), sum(b_v) FROM read_parquet('{task.files}/a/*.parquet') a "
            f"JOIN read_parquet('{task.files}/b/*.parquet') b ON a.k = b.k "
            f"AND b_ts BETWEEN a_ts - INTERVAL {WINDOW_MS} MILLISECONDS AND a_ts + INTERVAL {WINDOW_MS} MILLISECONDS"
        ).fetchone()
        seconds = watch.seconds
        rows = database.execute(f"SELECT count(*) FROM read_parquet('{task.files}/[ab]/*.parquet')").fetchone()
    assert found is not None, "a count has one row"
    assert rows is not None, "a count has one row"
    Answer(rows[0], seconds, found[0], duckdb.__version__).send()


if __name__ == "__main__":
    main()
