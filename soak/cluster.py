"""The soak's cluster: three executors of one core on two workers, with traps in their Python workers."""

from __future__ import annotations

import os
from pathlib import Path

from lab.processes import environment

#: Three executors of one core, on two workers; a slow task gets a speculative copy.
SETTINGS = {
    "spark.cores.max": "3",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "3",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "3s",
    "spark.deploy.maxExecutorRetries": "-1",  # executors are killed on purpose, again and again
    "spark.task.maxFailures": "8",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}


def settings(traps: Path, small_segments: int = 2) -> dict[str, str]:
    """The settings of a driver that install the soak's traps in its executors' Python workers."""
    env = environment()
    return SETTINGS | {
        "spark.executorEnv.SOAK_TRAPS": str(traps),
        "spark.executorEnv.SOAK_SMALL_SEGMENTS": str(small_segments),
        "spark.executorEnv.PYTHONPATH": env["PYTHONPATH"],
        "spark.pyspark.python": env["PYSPARK_PYTHON"],
        "spark.executorEnv.PATH": os.environ["PATH"],
    }
