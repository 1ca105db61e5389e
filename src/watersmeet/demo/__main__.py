"""`python -m watersmeet.demo`: auctions joined with their bids, live, then checked against a batch join."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Annotated

from watersmeet.errors import MissingExtraError

try:
    import typer
    from rich.console import Console

    from watersmeet.demo import run_report, view
except ImportError as error:
    raise MissingExtraError(f"the demo needs {error.name}.", hint='pip install "watersmeet[demo]"') from error

import watersmeet as wm
from watersmeet.demo.auction_demo import Demo
from watersmeet.monitoring import Monitor

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    seconds: Annotated[int, typer.Option(min=1, help="Stream time to join, in seconds.")] = 60,
    rate: Annotated[int, typer.Option(min=100, help="Auctions and bids per second, together.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another day in the house.")] = 7,
    out: Annotated[Path, typer.Option(help="Folder for the picture of the state.")] = Path("demo-output"),
    ui: Annotated[bool, typer.Option("--ui", help="Serve the live page too; its events are kept in OUT.")] = False,
) -> None:
    """Join a stream of auctions with the stream of their bids and watch the size of the join's state."""
    console = Console(highlight=False)
    demo = Demo(seconds=seconds, rate=rate, seed=seed)
    interrupted = threading.Event()
    with tempfile.TemporaryDirectory(prefix="watersmeet-demo-", ignore_cleanup_errors=True) as folder:
        with console.status("starting Spark …"), _quiet(Path(folder, "spark.log")):
            spark = wm.session(master="local[2]")
        _on_ctrl_c(interrupted)
        try:
            joined = demo.joined(spark)
            with _page(joined, out, console) if ui else nullcontext() as page:
                run = view.watch(demo, lambda: demo.start(joined, Path(folder)), interrupted, console)
                run_report.show(console, demo, run, demo.results(spark, Path(folder)), out)
                stopped = interrupted.is_set()
                if page is not None and not stopped:
                    console.print(f"\nThe live page stays until Ctrl-C: {page.url}")
                    interrupted.wait()
        finally:
            spark.stop()
    if stopped:
        raise typer.Exit(130)


def _page(joined: wm.Joined, out: Path, console: Console) -> Monitor:
    """The live page, and the events of this run alone."""
    out.mkdir(parents=True, exist_ok=True)
    events = out / "events.jsonl"
    events.unlink(missing_ok=True)
    monitor = wm.monitor(joined, events=events, ui=True)
    console.print(f"Live page: {monitor.url}")
    return monitor


def _on_ctrl_c(interrupted: threading.Event) -> None:
    """The first Ctrl-C sets `interrupted` and lets the batch finish (Spark would cancel it); the second ends."""

    def on_first(number: int, stack: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, on_first)


@contextmanager
def _quiet(log: Path) -> Iterator[None]:
    """Send the standard error of processes started inside to a file: Spark's log lines would break the live view."""
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
