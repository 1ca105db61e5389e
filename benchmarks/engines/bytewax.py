"""Bytewax, which has no join by intervals: one made by hand from its stateful operator, with recovery every 5 s.

Each key remembers its rows of both streams for the window and the delay. A key that does not come again is not
evicted: the operator's timers follow wall-clock time, not event time. No watermark is shared between
sources either, so one source reads all files of a batch in turn: with several, one may run ahead and results are lost.
"""

from collections.abc import Iterable
from datetime import timedelta
from importlib.metadata import version
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax._bytewax import cluster_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir

from benchmarks.engines.answer import DELAY_MS, WINDOW_MS, Answer, Task, Watch, bytes_in

WORKERS = 2
PIECE = 1_000  # rows that a source hands over at a time
Row = tuple[int, int, float]  # stream, milliseconds, payload


class Files(StatefulSourcePartition[tuple[str, Row], tuple[int, int]]):
    """The files of one batch after the other, their rows in turn; the state is the batch and the piece to come."""

    def __init__(self, batches: list[list[Path]], resume: tuple[int, int] | None) -> None:
        self.batches, (self.at, self.given) = batches, resume or (0, 0)
        self.pieces = self._read(batches[self.at])[self.given :]

    def next_batch(self) -> list[tuple[str, Row]]:
        if not self.pieces:
            if self.at + 1 == len(self.batches):
                raise StopIteration
            self.at, self.given = self.at + 1, 0
            self.pieces = self._read(self.batches[self.at])
        self.given += 1
        COUNTS["rows"] += len(self.pieces[0])
        return self.pieces.pop(0)

    def snapshot(self) -> tuple[int, int]:
        return self.at, self.given

    def _read(self, files: list[Path]) -> list[list[tuple[str, Row]]]:
        columns = []
        for file in files:
            stream, table = int(file.parent.name == "b"), pq.read_table(file)
            ms = table.column(1).cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
            keys, values = table.column(0).to_pylist(), table.column(2).to_pylist()
            columns.append([(str(k), (stream, t, v)) for k, t, v in zip(keys, ms, values, strict=True)])
        both = [row for row in chain.from_iterable(zip_longest(*columns)) if row is not None]
        return [both[i : i + PIECE] for i in range(0, len(both), PIECE)]


class Source(FixedPartitionedSource[tuple[str, Row], tuple[int, int]]):
    """One partition: all files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: tuple[int, int] | None) -> Files:
        streams = [sorted((self.folder / name).glob(f"*-{part}.parquet")) for name in "ab" for part in range(2)]
        return Files([list(batch) for batch in zip(*streams, strict=True)], resume_state)


class Join(StatefulBatchLogic[Row, tuple[float, float], Any]):
    """The rows of one key."""

    def __init__(self, state: Any) -> None:
        self.rows: tuple[list[tuple[int, float]], list[tuple[int, float]]] = state or ([], [])

    def on_batch(self, values: list[Row]) -> tuple[Iterable[tuple[float, float]], bool]:
        out = []
        for stream, time, payload in values:
            for other, held in self.rows[1 - stream]:
                if -WINDOW_MS <= time - other <= WINDOW_MS:
                    out.append((payload, held) if stream == 0 else (held, payload))
            self.rows[stream].append((time, payload))
        oldest = max(time for _, time, _ in values) - WINDOW_MS - DELAY_MS
        for rows in self.rows:
            if rows and rows[0][0] < oldest:
                rows[:] = [row for row in rows if row[0] >= oldest]
        return out, StatefulBatchLogic.RETAIN

    def snapshot(self) -> Any:
        return (list(self.rows[0]), list(self.rows[1]))


COUNTS = {"rows": 0, "results": 0}


class Counting(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        COUNTS["results"] += len(items)


class Sink(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counting:
        return Counting()


def main() -> None:
    task = Task.read()
    flow = Dataflow("window_join")
    rows = op.input("files", flow, Source(task.files))
    op.output("count", op.stateful_batch("join", rows, Join), Sink())
    init_db_dir(task.state, WORKERS)
    recovery = RecoveryConfig(str(task.state), timedelta(0))
    watch = Watch()
    cluster_main(
        flow, [], 0, epoch_interval=timedelta(seconds=5), recovery_config=recovery, worker_count_per_proc=WORKERS
    )
    Answer(COUNTS["rows"], watch.seconds, COUNTS["results"], version("bytewax"), bytes_in(task.state)).send()


if __name__ == "__main__":
    main()
