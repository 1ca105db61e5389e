"""Polars, as a batch, with its streaming engine: joins on the key, then filters by time."""

import polars as pl

from benchmarks.engines.answer import WINDOW_MS, Answer, Task, Watch


def main() -> None:
    task = Task.read()
    watch = Watch()
    a, b = (pl.scan_parquet(f"{task.files}/{name}/*.parquet") for name in "ab")
    near = (pl.col("a_ts") - pl.col("b_ts")).abs() <= pl.duration(milliseconds=WINDOW_MS)
    joined = a.join(b, on="k").filter(near)
    found = joined.select(pl.len(), pl.col("a_v").sum(), pl.col("b_v").sum()).collect(engine="streaming")
    seconds = watch.seconds
    rows = sum(stream.select(pl.len()).collect().item() for stream in (a, b))
    Answer(rows, seconds, found["len"][0], pl.__version__).send()


if __name__ == "__main__":
    main()
