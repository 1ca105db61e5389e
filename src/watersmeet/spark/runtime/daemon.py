"""The parent of Spark's Python workers, with everything loaded before the first of them is forked.

Set by ``spark.python.daemon.module``. A worker of the ordinary daemon imports pandas, Arrow and Numba and loads the
kernels by itself, which takes seconds, once per worker; here each is a fork that has them. What is loaded is frozen,
too: Spark collects garbage after every task, and need not look at any of it. Nor does anything look for garbage while
it is loaded: that would take a quarter of the time, to find next to none.

A task that needs no more rows (a limit, `isEmpty`, a query that is stopped) closes its socket while the worker still
writes. The ordinary daemon prints a traceback for each; here such a worker ends without one.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable

if __name__ == "__main__":
    gc.disable()  # before the imports below

import pyarrow as pa
import pyspark.daemon
import pyspark.worker

import watersmeet.spark.runtime.processor
from watersmeet.kernels.warm_up import warm_up
from watersmeet.spark.runtime import worker_cache

GONE = (BrokenPipeError, ConnectionResetError)
Worker = Callable[[socket.socket, bool], int]


def quiet(worker: Worker) -> Worker:
    """The worker, which ends with a code and no traceback when Spark has closed its socket."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        sys.unraisablehook = _unraisable  # the socket's file is flushed once more when it is collected
        try:
            return worker(sock, authenticated)
        except GONE:
            return 1

    return run


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    if not isinstance(unraisable.exc_value, GONE):
        sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    loaded = pyspark.worker, watersmeet.spark.runtime.processor
    assert all(loaded), "imported for their side effect: loaded once, shared by all forks"
    pa.set_cpu_count(1)  # one task, one core: Spark runs as many workers as there are
    pa.set_io_thread_count(1)
    warm_up(multiway_joins=True, sorted_indexes=True)
    gc.freeze()
    gc.enable()
    setattr(pyspark.daemon, "worker", quiet(pyspark.daemon.worker))  # noqa: B010  # mypy takes a function for fixed
    try:
        pyspark.daemon.manager()
    finally:  # the executor has ended; the driver of a local master removes its own
        worker_cache.remove(worker_cache.folder(os.path.abspath(".")))
