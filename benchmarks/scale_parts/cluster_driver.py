"""A driver on a cluster that takes as many batches as its input says, and the process that holds it.

    python -m benchmarks.scale_parts.cluster_driver MASTER HOST CONTENDER SHARDS FOLDER [--quick] [--set name=value]

reads numbers of batches, one a line, hands out as many, and prints their measurements as JSON, one line for each.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import functions as sf

from benchmarks import cases, contenders, data
from benchmarks.cases import SCALE, Case
from benchmarks.contenders import CONTENDERS, watersmeet_join
from lab.processes import environment, family, gone, kill
from watersmeet.spark.session import FILE_MANAGER, LOCAL_FILE_MANAGER

CASE = "cluster"
#: Executors of one core, which find what this interpreter finds. The checkpoint is on a disk that both workers have.
SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "1g",
    "spark.driver.memory": "1g",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.log.level": "ERROR",
    FILE_MANAGER: LOCAL_FILE_MANAGER,
}


def shape(quick: bool) -> Case:
    return SCALE[CASE].quick() if quick else SCALE[CASE]


class ClusterDriver:
    """The driver's process, inside a `with`. `prefix` is put before its command, as `ip netns exec`."""

    def __init__(
        self,
        master: str,
        contender: str,
        shards: int,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
        quick: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        data.make(shape(quick))
        self.log = data.scratch("logs") / f"scale-cluster-{contender}-{shards}.log"
        program = [sys.executable, "-m", "benchmarks.scale_parts.cluster_driver", master, host, contender]
        program += [str(shards), str(folder), *(["--quick"] if quick else [])]
        program += [f"--set={name}={value}" for name, value in (settings or {}).items()]
        self.command, self.environment = [*prefix, *program], environment(SPARK_LOCAL_IP=host)

    def __enter__(self) -> "ClusterDriver":
        with self.log.open("w") as errors:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self.environment,
                text=True,
            )
        return self

    def batches(self, count: int) -> list[dict[str, Any]]:
        """Hand out so many batches; returns their measurements."""
        assert self.process.stdin is not None, "it is a pipe"
        assert self.process.stdout is not None, "it is a pipe"
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("["):
                return list(json.loads(line))
        raise RuntimeError(f"the driver ended (reason in {self.log.name})")

    def __exit__(self, *exc: object) -> None:
        below = family(self.process.pid)
        kill(*below)
        self.process.communicate()
        gone(below[1:])


def serve(
    master: str, host: str, contender: str, shards: int, folder: Path, quick: bool, extra: dict[str, str]
) -> None:
    """Run the query over the batches that are handed out, until the input ends."""
    own = environment()
    settings = SETTINGS | {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        "spark.sql.shuffle.partitions": str(shards),
        "spark.executorEnv.PYTHONPATH": own["PYTHONPATH"],
        "spark.executorEnv.PATH": os.environ["PATH"],
        "spark.pyspark.python": sys.executable,
        "spark.master": master,
    }
    spark = CONTENDERS[contender].start_session(settings | extra)
    case = shape(quick)
    streams = []
    for name in case.streams:
        (folder / "in" / name).mkdir(parents=True)
        source = spark.readStream.schema(data.schema(case, name)).option("maxFilesPerTrigger", data.FILES_PER_BATCH)
        streams.append(source.parquet(str(folder / "in" / name)))
    join = watersmeet_join if contender == cases.WATERSMEET else contenders.native_join
    counted = join(*streams).observe("bench", sf.count(sf.lit(1)).alias("results"))
    query = counted.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    files, number, seen = data.make(case), 0, -1
    for line in sys.stdin:
        for _ in range(int(line)):
            hand_out(files, folder / "in", case, number)
            number += 1
        query.processAllAvailable()
        fresh = [p for p in (json.loads(p.json) for p in query.recentProgress) if p["batchId"] > seen]
        seen = max((p["batchId"] for p in fresh), default=seen)
        print(json.dumps([contenders.batch(p, "") for p in fresh if p["numInputRows"]]), flush=True)


def hand_out(files: Path, to: Path, case: Case, number: int) -> None:
    for stream in case.streams:
        for part in range(data.FILES_PER_BATCH):
            name = f"{number:04d}-{part}.parquet"
            os.link(files / stream / name, to / stream / name)  # its time decides the order


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_parts.cluster_driver")
    parser.add_argument("master")
    parser.add_argument("host")
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("shards", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    extra = dict(setting.split("=", 1) for setting in options.set)
    serve(options.master, options.host, options.contender, options.shards, options.folder, options.quick, extra)


if __name__ == "__main__":
    main()
