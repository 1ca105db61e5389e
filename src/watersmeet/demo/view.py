"""The live view: a few numbers, and the size of the state over time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from watersmeet.demo.auction_demo import WINDOW, Demo
from watersmeet.demo.batch_history import Run
from watersmeet.spark.pipelines.restart import patiently
from watersmeet.workload import SECOND

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL = 1  # seconds between two looks at the query
BARS = "▁▂▃▄▅▆▇█"
WIDTH = 60


def watch(demo: Demo, start: Callable[[], StreamingQuery], interrupted: Event, console: Console) -> Run:
    """Start the query and follow it to its end. If a busy machine makes it fail, it restarts and the run continues."""
    run = Run()
    patiently(lambda: _follow(demo, start(), run, interrupted, console), console.print, interrupted)
    return run


def _follow(demo: Demo, query: StreamingQuery, run: Run, interrupted: Event, console: Console) -> None:
    """Show the query until it has read everything, or until the end of the batch in which Ctrl-C came; then stop it."""
    with Live(frame(demo, run), console=console, refresh_per_second=8) as live:
        while not demo.finished(run):
            stopping, seen = interrupted.is_set(), len(run.batches)
            query.awaitTermination(POLL)  # raises if the query has failed
            run.update(query.recentProgress)
            if len(run.batches) > seen or stopping:
                live.update(frame(demo, run, stopping=stopping))
            if len(run.batches) > seen and stopping:
                break
        query.stop()


def frame(demo: Demo, run: Run, *, stopping: bool = False) -> RenderableType:
    """The view after the batches of `run`."""
    waiting = Spinner("dots", "first batch: Spark plans the query, kernels are compiled or loaded …")
    body = _numbers(demo, run) if run.batches else waiting
    state = Text(sparkline([batch.stored for batch in run.batches]), style="cyan")
    footer = Text("finishing this batch; Ctrl-C again ends at once" if stopping else "Ctrl-C ends early", style="dim")
    title = f"auctions ⋈ bids on item_id, windows of {WINDOW} s"
    return Panel(Group(body, Text("\ntuples in state", style="dim"), state, Text(), footer), title=title, width=78)


def _numbers(demo: Demo, run: Run) -> RenderableType:
    last, done = run.batches[-1], min(run.batches[-1].stream_time) / SECOND
    grid = Table.grid(padding=(0, 3))
    for _ in range(2):
        grid.add_column(style="dim")
        grid.add_column(justify="right", min_width=16)
    grid.add_row("rows read", f"{run.rows:,}", "tuples in state", f"[bold]{last.stored:,}[/]")
    grid.add_row("results", f"{run.results:,}", "state", as_bytes(last.state_bytes))
    grid.add_row("late rows", f"{run.late:,}", "input", f"{last.rows / last.seconds:,.0f} rows/s")
    grid.add_row("stream time", f"{done:.0f} of {demo.seconds} s", "batch", f"{last.seconds:.1f} s")
    return Group(grid, Text(), ProgressBar(total=demo.seconds, completed=done, width=WIDTH))


def sparkline(values: list[int], width: int = WIDTH) -> str:
    """The last `width` values as bars from zero to the largest.

    >>> sparkline([0, 4, 8])
    '▁▅█'
    """
    top = max(values, default=0) or 1
    return "".join(BARS[round(value / top * (len(BARS) - 1))] for value in values[-width:])


def as_bytes(count: int) -> str:
    """A number of bytes with its unit.

    >>> as_bytes(999), as_bytes(1_234_567)
    ('999 B', '1.2 MB')
    """
    if count < 1000:
        return f"{count} B"
    size = float(count)
    for unit in ("kB", "MB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} GB"
