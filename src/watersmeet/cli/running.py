"""`watersmeet run`: check a pipeline, or run it and tell each batch in a line."""

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
from watersmeet.cli.telling import Running, Tally
from watersmeet.pipelines import secrets
from watersmeet.pipelines.pipeline import Pipeline
from watersmeet.pipelines.reader import read

POLL = 1  # seconds between two looks at the query
ATTEMPTS = 8


def check(file: Path) -> Exit:
    """Say that a pipeline is right; what is wrong with it is an error."""
    pipeline = read(file)
    streams = ", ".join(source.name for source in pipeline.sources)
    sinks = ", ".join(f"{sink.name} ({sink.format})" for sink in pipeline.sinks)
    Console(highlight=False, soft_wrap=True).print(f"{file} is right: {streams} → {sinks}")
    return Exit.DONE


@dataclass(frozen=True)
class Watched:
    """Who looks on: the live page, a file of events, Prometheus at a port."""

    ui: bool = False
    events: Path | None = None
    prometheus: int | None = None

    def follow(self, asked: Any, console: Console) -> AbstractContextManager[Any]:
        """Follow what will be started, and say where it is shown."""
        if not self.ui and self.events is None and self.prometheus is None:
            return nullcontext()
        import watersmeet as wm

        if self.events is not None:
            self.events.parent.mkdir(parents=True, exist_ok=True)
        monitor = wm.monitor(asked, events=self.events, ui=self.ui, prometheus=self.prometheus)
        for what, url in (("live page", monitor.url), ("metrics", monitor.metrics_url)):
            if url is not None:
                console.print(f"{what}: {url}", markup=False)
        return monitor


def run(file: Path, *, once: bool, watched: Watched, master: str | None) -> Exit:
    """Run a pipeline until it has worked off what is there (`once`), fails or is interrupted."""
    pipeline = read(file)
    hide_secrets()
    console = Console(highlight=False, soft_wrap=True)
    from watersmeet.spark.pipelines import assembly

    with spark_log.aside() as log:
        with console.status("starting Spark …"), spark_log.redirected(log):
            spark = assembly.session(pipeline, master)
        try:
            asked = assembly.joined(pipeline, spark)
            console.print(f"{pipeline.name} runs; checkpoint {secrets.hide(pipeline.checkpoint)}. Ctrl-C ends it.")
            with _interruptible() as interrupted, watched.follow(asked, console):
                tally = _patiently(lambda: assembly.start(pipeline, asked, once=once), pipeline, interrupted, console)
        finally:
            spark.stop()
    tally.sum_up(console)
    return Exit.INTERRUPTED if interrupted.is_set() else Exit.DONE


def _patiently(
    start: Callable[[], Running], pipeline: Pipeline, interrupted: threading.Event, console: Console
) -> Tally:
    """Start the query and follow it; start it again if Spark gave up on its Python worker, for which it waits 10 s."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return follow(start(), interrupted, console, pipeline)
        except Exception as error:
            if "failed to connect back" not in str(error) or not left or interrupted.is_set():
                raise
            console.print("the machine is busy: Spark's Python worker did not answer in time; once more")
    raise AssertionError("the last attempt returns or raises")


def hide_secrets() -> None:
    """From now on no log record shows a value from the environment."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(secrets.Hiding())


def follow(query: Running, interrupted: threading.Event, console: Console, pipeline: Pipeline) -> Tally:
    """Tell each batch, until the query ends, or until it rests after an interruption; stop it."""
    tally = Tally([source.name for source in pipeline.sources])
    try:
        while not query.awaitTermination(POLL):
            tally.update(query.recentProgress, console)
            if interrupted.is_set() and not query.status["isTriggerActive"]:
                break
    finally:
        query.stop()
    tally.update(query.recentProgress, console)
    return tally


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) is noted, and the batch at hand ends first; the second one ends at once."""
    interrupted = threading.Event()

    def note(number: int, stack: FrameType | None) -> None:
        interrupted.set()
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
