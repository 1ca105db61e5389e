"""A Spark session with the settings that exact results and small checkpoints depend on."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
from collections.abc import Iterator
from threading import Thread
from typing import Any

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from watersmeet.errors import SettingError
from watersmeet.spark import source, worker_cache

log = logging.getLogger("watersmeet")

_STATE = "spark.sql.streaming.stateStore"
#: Without these a streaming join is refused: name → (value, why).
REQUIRED = {
    f"{_STATE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "the Python state operator runs on no other",
    ),
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": (
        "true",
        "a batch then writes what it changed, not the whole state",
    ),
    f"{_STATE}.checkpointFormatVersion": (
        "2",
        "a speculative task that lost could otherwise overwrite the winner's changelog",
    ),
}
#: Good for speed; a foreign session may differ.
ADVISED = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.daemon.module": "watersmeet.spark.daemon",
}
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # the workers are on this machine: nearer than through TCP
}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the settings that Watersmeet needs to a session that you build yourself."""
    for name, (value, _) in REQUIRED.items():
        builder = builder.config(name, value)
    for name, value in ADVISED.items():
        builder = builder.config(name, value)
    return builder


def session(*, master: str = "local[*]", shards: int | None = None, **spark_settings: Any) -> SparkSession:
    """A Spark session made for Watersmeet, with the format `watersmeet`, and a log line that says what was set.

    `shards` is the number of parts in which keys are divided (default: one per core of a local master); it becomes
    ``spark.sql.shuffle.partitions``. Further settings are given with underscores for dots
    (``spark_driver_memory="4g"``) or in a dictionary: ``**{"spark.driver.memory": "4g"}``.
    """
    count = shards or _cores(master)
    settings = {}
    if master.startswith("local"):
        settings = dict(LOCAL)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers find what this interpreter finds
    settings["spark.sql.shuffle.partitions"] = str(count)
    settings |= {name.replace("_", ".") if "." not in name else name: str(v) for name, v in spark_settings.items()}
    builder = configure(SparkSession.builder.master(master).appName("watersmeet"))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    source.register(spark)
    if master.startswith("local"):
        atexit.register(worker_cache.remove, worker_cache.folder(SparkFiles.getRootDirectory()))
    Thread(target=_warm_up, args=(spark, count), daemon=True).start()
    log.info("session on %s with %d shards; set: %s", master, count, ", ".join([*REQUIRED, *ADVISED, *settings]))
    return spark


def _warm_up(spark: SparkSession, workers: int) -> None:
    """Have the workers started, with kernels compiled and loaded, by the time that the first batch asks for them."""
    try:
        spark.range(0, workers, 1, workers).mapInArrow(_nothing, "id bigint").count()
    except Exception as error:  # the session was stopped meanwhile: then there is nothing to warm
        log.debug("the workers were not warmed: %s", error)


def _nothing(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def _cores(master: str) -> int:
    found = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if master == "local":
        return 1
    return int(found[1]) if found and found[1] != "*" else os.cpu_count() or 1


def check(spark: SparkSession) -> None:
    """Refuse a session that lacks a required setting, naming it."""
    for name, (value, why) in REQUIRED.items():
        have = spark.conf.get(name, None)
        if have != value:
            raise SettingError(
                f"the Spark session has `{name}` = {have}, but a streaming join needs {value}: {why}.",
                hint=f'spark.conf.set("{name}", "{value}"), or make the session with wm.session() / wm.configure().',
            )
