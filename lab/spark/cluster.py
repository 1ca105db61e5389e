"""A standalone Spark cluster: a master and workers, real processes, from the installed package."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from lab.processes import environment, family, gone, kill, wait_for


@dataclass(frozen=True)
class WorkerPlace:
    """Where a worker runs: its host, and a command before its own that puts it elsewhere, as `ip netns exec`."""

    host: str
    prefix: tuple[str, ...] = ()


#: Two workers on loopback: two names of this machine, as Spark starts no speculative copy on the host of the task.
LOOPBACK = (WorkerPlace("127.0.0.1"), WorkerPlace("localhost"))


class Cluster:
    """A cluster that runs inside a `with`; the master is where the first worker is."""

    def __init__(
        self, folder: Path, places: Sequence[WorkerPlace] = LOOPBACK, *, cores: int = 2, memory: str = "1200m"
    ) -> None:
        self.folder, self.places, self.cores, self.memory = folder, places, cores, memory
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        first = self.places[0]
        try:
            self.url = self._start("master", first, "--host", first.host, "--port", "0", "--webui-port", "0")
            for n, place in enumerate(self.places):
                sizes = [
                    "--cores",
                    str(self.cores),
                    "--memory",
                    self.memory,
                    "--work-dir",
                    str(self.folder / f"work{n}"),
                ]
                self._start(f"worker{n}", place, "--host", place.host, "--webui-port", "0", *sizes, self.url)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, name: str, place: WorkerPlace, *arguments: str) -> str:
        """Start one daemon of the cluster; returns the address of the master."""
        self.folder.mkdir(parents=True, exist_ok=True)
        spec = find_spec("pyspark")
        assert spec is not None, "PySpark is installed"
        assert spec.submodule_search_locations, "it is a package"
        home = Path(spec.submodule_search_locations[0])
        kind = "master.Master" if name == "master" else "worker.Worker"
        log = self.folder / f"{name}.log"
        own = {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
        if place.prefix:
            own["SPARK_LOCAL_IP"] = place.host
        with log.open("w") as out:
            command = [*place.prefix, str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
            self.processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment(**own)))
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
