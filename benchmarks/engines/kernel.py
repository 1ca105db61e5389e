"""Watersmeet's window join without Spark: one shard, one core, batches in memory, nothing made durable."""

import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet
from benchmarks import data
from benchmarks.engines.answer import DELAY_MS, WINDOW_MS, Answer, Task, Watch
from watersmeet.joins import plan
from watersmeet.kernels.warm_up import warm_up
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow


def main() -> None:
    task = Task.read()
    warm_up()
    streams = [_batches(task, name) for name in "ab"]
    specs = tuple(
        StreamSpec(name, batches[0].schema, f"{name}_ts", ("k",), TimeWindow(WINDOW_MS * 1000), DELAY_MS * 1000)
        for name, batches in zip("ab", streams, strict=True)
    )
    _results(specs, [stream[:1] for stream in streams])  # loads the kernels
    watch = Watch()
    results = _results(specs, streams)
    seconds = watch.seconds
    rows = sum(batch.num_rows for stream in streams for batch in stream)
    Answer(rows, seconds, results, watersmeet.__version__).send()


def _results(specs: tuple[StreamSpec, ...], streams: list[list[pa.RecordBatch]]) -> int:
    join, results = plan(JoinQuery(specs), "hash").start(), 0
    for batches in zip(*streams, strict=True):
        step = [Batch.of(rows, spec.time) for rows, spec in zip(batches, specs, strict=True)]
        results += sum(table.num_rows for table in join.step(step))
    return results


def _batches(task: Task, stream: str) -> list[pa.RecordBatch]:
    files = sorted((task.files / stream).glob("*.parquet"))
    groups = [files[i : i + data.FILES_PER_BATCH] for i in range(0, len(files), data.FILES_PER_BATCH)]
    tables = [pa.concat_tables(map(pq.read_table, group)).combine_chunks() for group in groups]
    return [table.to_batches()[0] for table in tables]


if __name__ == "__main__":
    main()
