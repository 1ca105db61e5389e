"""The parent of Spark's Python workers, with everything loaded before the first of them is forked.

Named by ``spark.python.daemon.module``. A worker of the ordinary daemon imports pandas, Arrow and Numba and loads the
kernels by itself, which takes seconds, once per worker; here each is a fork that has them. What is loaded is frozen,
too: Spark collects garbage after every task, and need not look at any of it.
"""

from __future__ import annotations

import gc
import os

import pyarrow as pa
from pyspark.daemon import manager

import watersmeet.spark.processor
from watersmeet.kernels.warm_up import SEVERAL, warm_up
from watersmeet.spark import worker_cache

if __name__ == "__main__":
    assert watersmeet.spark.processor, "imported for its side effect: loaded once, shared by all forks"
    pa.set_cpu_count(1)  # one task, one core: Spark runs as many workers as there are
    pa.set_io_thread_count(1)
    warm_up(*SEVERAL)
    gc.collect()
    gc.freeze()
    try:
        manager()
    finally:  # the executor has ended; the driver of a local master removes its own
        worker_cache.remove(worker_cache.folder(os.path.abspath(".")))
