"""A Spark session with the settings that exact results and small checkpoints depend on."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from threading import Thread
from typing import Any

from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DayTimeIntervalType,
    NullType,
    NumericType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

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
#: Spark measures an Arrow batch after every row that it puts in, which takes as long as putting it in, unless there is
#: no limit. Rows of fixed width need none; with others `limit_batches` goes back to Spark's own.
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LIMIT, LIMIT = str((1 << 31) - 1), str(64 << 20)
FIXED_WIDTH = (
    NumericType,
    BooleanType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    YearMonthIntervalType,
    NullType,
)
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",  # the workers are on this machine: nearer than through TCP
}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the settings that Watersmeet needs to a session that you build yourself."""
    for name, (value, _) in REQUIRED.items():
        builder = builder.config(name, value)
    for name, value in (ADVISED | {BATCH_BYTES: NO_LIMIT}).items():
        builder = builder.config(name, value)
    return builder


def session(
    *, master: str = "local[*]", remote: str | None = None, shards: int | None = None, **spark_settings: Any
) -> SparkSession:
    """A Spark session made for Watersmeet, with the format `watersmeet`, and a log line that says what was set.

    `shards` is the number of parts in which keys are divided (default: one per core of a local master); it becomes
    ``spark.sql.shuffle.partitions``. Further settings are given with underscores for dots
    (``spark_driver_memory="4g"``) or in a dictionary: ``**{"spark.driver.memory": "4g"}``.

    `remote` asks for Spark Connect in place of a `master`: the address of a server (``"sc://host"``), of which only
    the settings of the session are changed, or ``"local[2]"``, which starts one on this machine.
    """
    place = master if remote is None else remote
    local = place.startswith("local")
    settings: dict[str, Any] = {}
    if local:
        settings = dict(LOCAL)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers find what this interpreter finds
    count = shards or (_cores(place) if local or remote is None else None)
    if count is not None:
        settings["spark.sql.shuffle.partitions"] = str(count)
    settings |= {name.replace("_", ".") if "." not in name else name: str(v) for name, v in spark_settings.items()}
    builder = SparkSession.builder
    builder = builder.master(master).appName("watersmeet") if remote is None else builder.remote(remote)
    known = {name: value for name, (value, _) in REQUIRED.items()} | ADVISED
    if remote is None and SparkSession.getActiveSession() is None:  # one that there is may have set a limit by now
        known[BATCH_BYTES] = NO_LIMIT
    known |= settings
    for name, value in known.items():
        if local or remote is None or name.startswith("spark.sql."):  # what a server is started with is its own affair
            builder = builder.config(name, value)
    with warnings.catch_warnings():
        if local and remote is not None:  # the server was started with them, and is told once more
            warnings.filterwarnings("ignore", "Failed to set ", UserWarning)
        spark = builder.getOrCreate()
    source.register(spark)
    if local:
        atexit.register(worker_cache.remove, worker_cache.folder(SparkFiles.getRootDirectory()))
    Thread(target=_warm_up, args=(spark, count or 1), daemon=True).start()
    log.info("session on %s with %s shards; set: %s", place, count or "the server's", ", ".join(known))
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


def limit_batches(df: DataFrame) -> None:
    """Have Spark measure Arrow batches from now on if rows of `df` may be of any length: a few may be many bytes.

    The session stays so: its other queries may start at any time.
    """
    fixed = all(isinstance(f.dataType, FIXED_WIDTH) for f in df.schema)
    if not fixed and df.sparkSession.conf.get(BATCH_BYTES, None) == NO_LIMIT:
        df.sparkSession.conf.set(BATCH_BYTES, LIMIT)


def check(spark: SparkSession) -> None:
    """Refuse a session that lacks a required setting, naming it."""
    for name, (value, why) in REQUIRED.items():
        have = spark.conf.get(name, None)
        if have != value:
            raise SettingError(
                f"the Spark session has `{name}` = {have}, but a streaming join needs {value}: {why}.",
                hint=f'spark.conf.set("{name}", "{value}"), or make the session with wm.session() / wm.configure().',
            )
