"""Pathway's interval join, both streams read from CSV as they come, with its persistence every five seconds.

Streams have no end, so the run ends with the last expected result. Nothing is evicted: a cutoff would go by the
newest rows, and it reads one stream far ahead of the other, in few large steps.
"""

import os
from importlib.metadata import version
from typing import Any

import pathway as pw

from benchmarks.engines.answer import WINDOW_MS, Answer, Task, Watch, bytes_in


class Row(pw.Schema):
    k: int
    ms: int
    v: float


def main() -> None:
    task = Task.read()
    lines = sum(file.read_bytes().count(b"\n") - 1 for n in "ab" for file in (task.texts / "headed" / n).iterdir())
    watch = Watch()
    a, b = (pw.io.csv.read(str(task.texts / "headed" / name), schema=Row, mode="streaming", name=name) for name in "ab")
    pairs = pw.temporal.interval_join(a, b, a.ms, b.ms, pw.temporal.interval(-WINDOW_MS, WINDOW_MS), a.k == b.k)
    count = pairs.select(a_v=a.v, b_v=b.v).reduce(
        results=pw.reducers.count(), left=pw.reducers.sum(pw.this.a_v), right=pw.reducers.sum(pw.this.b_v)
    )

    def changed(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if is_addition and row["results"] >= task.expected:
            answer = Answer(lines, watch.seconds, row["results"], version("pathway"), bytes_in(task.state))
            answer.send()
            os._exit(0)

    pw.io.subscribe(count, on_change=changed)
    backend = pw.persistence.Backend.filesystem(str(task.state))
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=5_000),
    )


if __name__ == "__main__":
    main()
