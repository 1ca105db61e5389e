"""`python -m watersmeet.demo`: auctions joined with their bids, live, then checked against a batch join."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from watersmeet.errors import MissingExtraError

try:
    import typer
    from rich.console import Console
    from rich.live import Live

    from watersmeet.demo import report, view
except ImportError as error:
    raise MissingExtraError(f"the demo needs {error.name}.", hint='pip install "watersmeet[demo]"') from error

import watersmeet as wm
from watersmeet.demo.house import Demo
from watersmeet.demo.measuring import Run

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
POLL = 0.2  # seconds between two looks at the query


@app.command()
def main(
    seconds: Annotated[int, typer.Option(min=1, help="Stream time to join, in seconds.")] = 60,
    rate: Annotated[int, typer.Option(min=100, help="Auctions and bids per second, together.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another day in the house.")] = 7,
    out: Annotated[Path, typer.Option(help="Folder for the picture of the state.")] = Path("demo-output"),
) -> None:
    """Join a stream of auctions with the stream of their bids and watch what the join has to remember."""
    console = Console()
    demo = Demo(seconds=seconds, rate=rate, seed=seed)
    interrupted = threading.Event()
    with tempfile.TemporaryDirectory(prefix="watersmeet-demo-", ignore_cleanup_errors=True) as folder:
        with console.status("starting Spark …"), _quiet(Path(folder, "spark.log")):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            spark = wm.session(master="local[2]")
        # Spark's own handler would cancel the jobs of the batch under way; ours lets that batch finish.
        signal.signal(signal.SIGINT, lambda *_: interrupted.set())
        try:
            run = _watch(demo, demo.start(spark, Path(folder)), interrupted, console)
            if run.batches:
                report.show(console, demo, run, demo.results(spark, Path(folder)), out)
            else:
                console.print("Ended before the first batch was through: there is nothing to show.")
        finally:
            spark.stop()
    if interrupted.is_set():
        raise typer.Exit(130)


def _watch(demo: Demo, query: StreamingQuery, interrupted: threading.Event, console: Console) -> Run:
    """Follow the query until it has read everything, or until the batch after Ctrl-C, and stop it."""
    run = Run()
    with Live(view.frame(demo, run), console=console, refresh_per_second=8) as live:
        while not demo.finished(run):
            if error := query.exception():
                raise error
            seen = len(run.batches)
            run.update(query.recentProgress)
            live.update(view.frame(demo, run, stopping=interrupted.is_set()))
            if interrupted.wait(0 if interrupted.is_set() else POLL) and len(run.batches) > seen:
                break
        query.stop()
    return run


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """What is started in here writes its standard error to a file: Spark's log lines would tear the live view."""
    kept = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    app()
