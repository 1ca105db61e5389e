"""A standalone Spark cluster on loopback: a master and two workers, real processes, from the installed package."""

from __future__ import annotations

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import psutil

from lab.processes import environment, family, gone, kill, wait_for

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
CORES, MEMORY = 2, "1200m"
#: Hosts of the two workers: two names of this machine, as Spark starts no speculative copy on the host of the task.
HOSTS = ("127.0.0.1", "localhost")


class Cluster:
    """A cluster that runs inside a `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        try:
            self.url = self._start("master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            for n, host in enumerate(HOSTS):
                sizes = ["--cores", str(CORES), "--memory", MEMORY, "--work-dir", str(self.folder / f"work{n}")]
                self._start(f"worker{n}", "--host", host, "--webui-port", "0", *sizes, self.url)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name: str, *arguments: str) -> str:
        """Start one daemon of the cluster; returns the address of the master."""
        self.folder.mkdir(parents=True, exist_ok=True)
        spec = find_spec("pyspark")
        assert spec is not None, "PySpark is installed"
        assert spec.submodule_search_locations, "it is a package"
        home = Path(spec.submodule_search_locations[0])
        kind = "master.Master" if name == "master" else "worker.Worker"
        log = self.folder / f"{name}.log"
        env = environment(SPARK_HOME=str(home), SPARK_DAEMON_MEMORY="256m", SPARK_NO_DAEMONIZE="1")
        with log.open("w") as out:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
            self.processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=env))
        ready = (
            r"Starting Spark master at (spark://\S+)"
            if name == "master"
            else r"Successfully registered with master (\S+)"
        )

        def look() -> str | None:
            found = re.search(ready, log.read_text())
            return found[1] if found else None

        return wait_for(f"{name} of the cluster", look, 180)

    def executors(self) -> list[psutil.Process]:
        """The executors of whatever runs on the cluster."""
        below = [p for worker in self.processes[1:] for p in family(worker.pid)]
        return [p for p in below if p.name() == "java" and "CoarseGrainedExecutorBackend" in " ".join(_command(p))]

    def __exit__(self, *exc: object) -> None:
        everyone = [p for process in self.processes for p in family(process.pid)]
        kill(*everyone)
        for process in self.processes:
            process.wait()
        gone([p for p in everyone if p.pid not in {q.pid for q in self.processes}])


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


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
