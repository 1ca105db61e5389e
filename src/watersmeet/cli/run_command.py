"""`watersmeet run`: check a pipeline, or run it and print a line for each batch."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from watersmeet.cli import spark_log
from watersmeet.cli.failures import Exit
from watersmeet.cli.progress_lines import Running, Tally
from watersmeet.pipelines import secrets
from watersmeet.pipelines.loader import read
from watersmeet.pipelines.pipeline import Pipeline

POLL = 1  # seconds between two polls of the query


def check(file: Path) -> Exit:
    """Print that a pipeline is valid; raises an error if it is not."""
    pipeline = read(file)
    streams = ", ".join(source.name for source in pipeline.sources)
    sinks = ", ".join(f"{sink.name} ({sink.format})" for sink in pipeline.sinks)
    Console(highlight=False, soft_wrap=True).print(f"{file} is valid: {streams} → {sinks}")
    return Exit.DONE


@dataclass(frozen=True)
class Monitoring:
    """Monitoring of a run: the live page, an event file, the port or address for Prometheus."""

    ui: bool = False
    events: Path | None = None
    prometheus: str | None = None

    def follow(self, joined: Any, console: Console) -> AbstractContextManager[Any]:
        """Monitor the query that will be started, and print the addresses."""
        if not self.ui and self.events is None and self.prometheus is None:
            return nullcontext()
        import watersmeet as wm

        if self.events is not None:
            self.events.parent.mkdir(parents=True, exist_ok=True)
        monitor = wm.monitor(joined, events=self.events, ui=self.ui, prometheus=self.prometheus)
        for what, url in (("live page", monitor.url), ("metrics", monitor.metrics_url)):
            if url is not None:
                console.print(f"{what}: {url}", markup=False)
        return monitor


def run(file: Path, *, once: bool, monitoring: Monitoring, master: str | None) -> Exit:
    """Run a pipeline until it fails or is interrupted, or, with `once`, has processed the available data."""
    pipeline = read(file)
    hide_secrets()
    console = Console(highlight=False, soft_wrap=True)
    from watersmeet.spark.pipelines import assembly, packages

    for kind in assembly.connectors(pipeline):
        console.print(f"{kind}: {packages.described(kind)}", markup=False)
    with spark_log.aside() as log:
        with console.status("starting Spark …"), spark_log.redirected(log):
            spark = assembly.session(pipeline, master)
        try:
            assembled = assembly.assemble(pipeline, spark)
            console.print(f"{pipeline.name} runs; checkpoint {secrets.hide(pipeline.checkpoint)}. Ctrl-C ends it.")
            with _interruptible() as interrupted, monitoring.follow(assembled.joined, console):
                tally = _patiently(
                    lambda: assembly.start(pipeline, assembled, once=once), pipeline, interrupted, console
                )
        finally:
            spark.stop()
    tally.sum_up(console)
    return Exit.INTERRUPTED if interrupted.is_set() else Exit.DONE


def _patiently(
    start: Callable[[], Running], pipeline: Pipeline, interrupted: threading.Event, console: Console
) -> Tally:
    """Start the query and follow it; restart it if Spark gave up on a Python process. The totals continue."""
    from watersmeet.spark.pipelines.restart import patiently

    tally = Tally([source.name for source in pipeline.sources])
    patiently(lambda: follow(start(), interrupted, console, tally), console.print, interrupted)
    return tally


def hide_secrets() -> None:
    """From now on no log record shows a value from the environment."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(secrets.Hiding())


def follow(query: Running, interrupted: threading.Event, console: Console, tally: Tally) -> None:
    """Print each batch until the query ends, or until it is idle after an interruption; then stop it."""
    try:
        while not query.awaitTermination(POLL):
            tally.update(query.recentProgress, console)
            if interrupted.is_set() and not query.status["isTriggerActive"]:
                break
    finally:
        query.stop()
        tally.update(query.recentProgress, console)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) sets the event, so that the current batch can end; the second one interrupts."""
    interrupted = threading.Event()

    def interrupt(number: int, stack: FrameType | None) -> None:
        interrupted.set()
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
