"""Processor time of a tree of processes, over any stretch of a run."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from contextlib import suppress
from threading import Event, Thread

import psutil

#: Seconds between two looks. What a process uses after the last look at it is not seen.
INTERVAL = 0.05


class ProcessorTime:
    """Looks at all processes below this one, inside a `with`; `between` gives their core-seconds of a stretch."""

    def __init__(self) -> None:
        self.times: list[float] = []  # wall clock
        self.sums: list[float] = []  # core-seconds of all processes so far
        self._used: dict[tuple[int, float], float] = {}  # by process id and start, the dead ones included
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProcessorTime:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        for process in psutil.Process(os.getpid()).children(recursive=True):
            with suppress(psutil.Error):
                used = process.cpu_times()
                self._used[(process.pid, process.create_time())] = used.user + used.system
        self.times.append(time.time())
        self.sums.append(sum(self._used.values()))

    def at(self, moment: float) -> float:
        """Core-seconds used up to a moment of the wall clock, interpolated between two looks."""
        return interpolated(self.times, self.sums, moment)

    def between(self, begin: float, end: float) -> float:
        return self.at(end) - self.at(begin)


def interpolated(times: list[float], values: list[float], moment: float) -> float:
    """The value at a moment, on the line between its neighbours; the first or last one outside."""
    n = bisect_left(times, moment)
    if n == 0:
        return values[0]
    if n == len(times):
        return values[-1]
    part = (moment - times[n - 1]) / (times[n] - times[n - 1])
    return values[n - 1] + part * (values[n] - values[n - 1])
