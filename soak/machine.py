"""The place where trials run: a driver, alone or on a cluster, and its working states."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import psutil

from lab.spark.cluster import Cluster
from soak import cluster, traps
from soak.driver_process import Driver

LOCAL = "local[2,4]"  # a failed task is tried up to four times, as on a cluster


class Machine:
    """Drivers inside a `with`. Their working states have a folder of their own, in memory if possible."""

    def __init__(self, folder: Path, *, clustered: bool = False) -> None:
        self.folder = folder
        memory = Path("/dev/shm")
        self.cache = Path(tempfile.mkdtemp(prefix="soak-", dir=memory if os.access(memory, os.W_OK) else None))
        self.cluster = Cluster(folder / "cluster") if clustered else None

    def __enter__(self) -> Machine:
        if self.cluster is not None:
            self.cluster.__enter__()
        self.launch().expect("ready")
        return self

    def launch(self) -> Driver:
        """Start a new driver after the last one has ended."""
        self.driver = self._new_driver(self.folder)
        return self.driver

    def second(self) -> Driver:
        """One more driver, beside the one that runs."""
        return self._new_driver(self.folder / "second")

    def _new_driver(self, folder: Path) -> Driver:
        settings, master = {"spark.local.dir": str(self.folder / "spark")}, LOCAL
        if self.cluster is not None:
            master = self.cluster.url
            settings |= cluster.settings(self.folder / "traps") | {f"spark.executorEnv.{traps.CACHE}": str(self.cache)}
        return Driver(folder, master, settings, **{traps.CACHE: str(self.cache)})

    def executors(self) -> list[psutil.Process]:
        assert self.cluster is not None, "only a cluster has executors of its own"
        return self.cluster.executors()

    def __exit__(self, *exc: object) -> None:
        self.driver.close()
        if self.cluster is not None:
            self.cluster.__exit__()
        shutil.rmtree(self.cache, ignore_errors=True)
        shutil.rmtree(self.folder / "spark", ignore_errors=True)
