"""HDFS on loopback: a name node and a data node in one process, from Maven's packages."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from lab.jars import fetched, java
from lab.processes import HOST, free_port, wait_for

HADOOP = "3.5.0"
MODULES = [
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
    "org.junit.jupiter:junit-jupiter-api:5.11.4",  # the cluster is made of Hadoop's tests
    "org.slf4j:slf4j-nop:1.7.36",
]
PATIENCE = 180  # seconds in which it starts


class Hdfs:
    """A file system with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> str:
        return f"hdfs://{HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until its data node has registered."""
        jars = fetched("hdfs", MODULES)
        details = self.folder / "details.json"
        program = [java(), "-Xmx512m", "-cp", f"{jars}/*", "org.apache.hadoop.test.MiniDFSClusterManager"]
        arguments = ["-nnport", str(self.port), "-format", "-datanodes", "1", "-writeDetails", str(details)]
        addresses = ["-D", f"dfs.namenode.http-address={HOST}:0", "-D", "dfs.replication=1"]
        with (self.folder / "hdfs.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*program, *arguments, *addresses], cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )

        def written() -> bool:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"HDFS did not start:\n{(self.folder / 'hdfs.log').read_text()[-2000:]}")
            return details.exists() and bool(details.read_text()) and "namenode_port" in json.loads(details.read_text())

        wait_for("the start of HDFS", written, PATIENCE, between=0.2)

    def stop(self) -> None:
        """End it and remove its data."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
