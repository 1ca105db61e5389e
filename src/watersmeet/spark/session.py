"""A Spark session with the settings that exact results and small checkpoints depend on."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from pyspark import SparkContext, SparkFiles
from pyspark.logger import PySparkLogger
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
from watersmeet.spark import workload_source as source
from watersmeet.spark.checkpoints.file_system import reached
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.placement import even_tasks
from watersmeet.spark.runtime.spark_versions import CHECKPOINT_PACKAGE, STATE_SERVERS, require_state_operator

log = logging.getLogger("watersmeet")

_STATE = "spark.sql.streaming.stateStore"
#: Without these a streaming join is refused: name → (value, why).
PROVIDER = f"{_STATE}.providerClass"
REQUIRED = {
    PROVIDER: (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "the Python state operator runs on RocksDB alone (a vendor's own RocksDB provider is accepted as well)",
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
#: Spark's default provider, which can do neither.
DEFAULT_PROVIDER = "HDFSBackedStateStoreProvider"
#: Whether batches without rows run for the clock.
EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
#: Good for speed; a foreign session may differ.
ADVISED = {
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.python.daemon.module": "watersmeet.spark.runtime.daemon",
}
#: Python workers have one parent if their environments are equal. Spark sets this variable for functions on rows, but
#: not for the state operator (4.3), which would load a parent of its own within the first batch. It shortens tracebacks
#: even where `spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled` is false.
ONE_PARENT = {"spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1"}
#: Arrow batches are bounded by their number of rows: with a bound in bytes Spark measures a batch after every row that
#: it puts in, which takes as long as putting it in. Where rows are of any length `limit_batches` goes down to so few
#: rows that their texts stay below Arrow's 2 GiB.
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MANY_ROWS, FEW_ROWS, NO_LIMIT = "100000", "1000", str((1 << 31) - 1)
LIMITS = {BATCH_ROWS: MANY_ROWS, BATCH_BYTES: NO_LIMIT}
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
#: Spark's default starts shell processes for every file that it writes to a local disk. This one renames without them.
#: On a local disk both look for the file first and then rename, so a second driver is refused alike; elsewhere the
#: default may be stricter (`default_file_manager`).
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILE_MANAGER = f"{CHECKPOINT_PACKAGE}.FileSystemBasedCheckpointFileManager"
#: Arrow's Java library otherwise checks the bounds and the validity of each value that Spark reads from it or puts into
#: it, which Spark has done before. It looks at these properties of the JVM when its classes are loaded.
UNCHECKED_ARROW = {"arrow.enable_unsafe_memory_access": "true", "arrow.enable_null_check_for_get": "false"}
#: The tasks of a batch; Spark keeps those of a checkpoint.
PARTITIONS = "spark.sql.shuffle.partitions"
#: The shards of a join that names none, where they are more than the tasks; otherwise each task has one.
SHARDS = "spark.watersmeet.shards"
#: Loggers of PySpark that print an error as a page of JSON before it is raised.
DUPLICATE_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",  # the workers are on this machine: faster than TCP
    FILE_MANAGER: LOCAL_FILE_MANAGER,
}


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the settings that Watersmeet needs to a session that you build yourself."""
    for name, (value, _) in REQUIRED.items():
        builder = builder.config(name, value)
    for name, value in (ADVISED | ONE_PARENT | LIMITS).items():
        builder = builder.config(name, value)
    return builder


def session(
    *,
    master: str = "local[*]",
    remote: str | None = None,
    shards: int | None = None,
    tasks: int | None = None,
    **spark_settings: Any,
) -> SparkSession:
    """A Spark session made for Watersmeet, with the format `watersmeet`, and a log line with the settings.

    `shards` is the number of parts in which keys are divided (default: one per core of a local master), and `tasks`,
    which divides it, that of the tasks which they share: by default as few as keep the cores of a local master busy,
    elsewhere one for each shard. It becomes ``spark.sql.shuffle.partitions``. Further settings are given with
    underscores for dots (``spark_driver_memory="4g"``) or in a dictionary: ``**{"spark.driver.memory": "4g"}``.

    `remote` is for Spark Connect, in place of a `master`: the address of a server (``"sc://host"``), of which only
    the settings of the session are changed, or ``"local[2]"``, which starts one on this machine.
    """
    place = master if remote is None else remote
    local = place.startswith("local")
    settings: dict[str, Any] = {}
    if local:
        settings = dict(LOCAL)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers find what this interpreter finds
    count = shards or (_cores(place) if local or remote is None else None)
    if tasks is None and count is not None:
        tasks = even_tasks(count, _cores(place)) if local else count
    elif tasks is not None:
        check_tasks(tasks, count)
    if tasks is not None:
        settings[PARTITIONS] = str(tasks)
    if tasks != count:
        settings[SHARDS] = str(count)
    settings |= {name.replace("_", ".") if "." not in name else name: str(v) for name, v in spark_settings.items()}
    builder = SparkSession.builder
    builder = builder.master(master).appName("watersmeet") if remote is None else builder.remote(remote)
    known = {name: value for name, (value, _) in REQUIRED.items()} | ADVISED | ONE_PARENT
    if remote is None and SparkSession.getActiveSession() is None:  # an existing session may have others by now
        known |= LIMITS
    known |= settings
    for name, value in known.items():
        if local or remote is None or name.startswith("spark.sql."):  # other settings are fixed when a server starts
            builder = builder.config(name, value)
    with warnings.catch_warnings():
        if local and remote is not None:  # the server was started with these settings: setting them again warns
            warnings.filterwarnings("ignore", "Failed to set ", UserWarning)
        spark = builder.getOrCreate()
    if SHARDS not in settings:
        spark.conf.unset(SHARDS)  # of a session that there was
    _hush(driver=local or remote is None)
    if local and SparkContext._jvm is not None:  # tasks run in the driver's JVM
        for name, value in UNCHECKED_ARROW.items():
            SparkContext._jvm.java.lang.System.setProperty(name, value)
        Thread(target=_load_state_store, daemon=True).start()
    Thread(target=_warm_up, args=(spark, tasks or 1), daemon=True).start()
    if remote is not None or not _finds_formats(spark):
        source.register(spark)
    if local:
        atexit.register(worker_cache.remove, worker_cache.folder(SparkFiles.getRootDirectory()))
    divided = "the server's" if count is None else count
    log.info("session on %s with %s shards in %s tasks; set: %s", place, divided, tasks or "as many", ", ".join(known))
    return spark


def _hush(*, driver: bool) -> None:
    """Silence loggers that warn in healthy runs, or repeat an error that is raised as well."""
    for name in DUPLICATE_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    if driver and SparkContext._jvm is not None:
        log4j = SparkContext._jvm.org.apache.logging.log4j
        for name in STATE_SERVERS:  # they warn in healthy runs: a shard reads its state before it has one
            log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)


def _finds_formats(spark: SparkSession) -> bool:
    """Whether Spark finds `pyspark_watersmeet` when the format is first used; registering it is then a waste of time.

    For either Spark starts a Python process on the driver, which takes most of a second. It is of the Python that the
    JVM's environment names, and lacks files that came with the program.
    """
    if SparkContext._jvm is None:
        return False
    environment = SparkContext._jvm.java.lang.System.getenv
    python = environment("PYSPARK_DRIVER_PYTHON") or environment("PYSPARK_PYTHON")
    return python == sys.executable and not spark.conf.get("spark.submit.pyFiles", "")


def _warm_up(spark: SparkSession, workers: int) -> None:
    """Start the workers, with kernels compiled and loaded, before the first batch needs them.

    Functions go by value: by name, each worker would import this module, of which a query needs nothing.
    """
    try:
        if isinstance(spark, SparkSession):  # a job without a plan: the first one takes a new JVM seconds of CPU
            spark.sparkContext.parallelize(range(workers), workers).foreachPartition(lambda rows: None)
        else:  # Connect has plans alone
            spark.range(0, workers, 1, workers).mapInArrow(lambda batches: batches, "id bigint").collect()
    except Exception as error:  # the session was stopped meanwhile: then there is nothing to warm
        log.debug("the workers were not warmed: %s", error)


def _load_state_store() -> None:
    """Load the library of the state store into this JVM, where the tasks of a local master run."""
    try:
        SparkContext._jvm.org.rocksdb.RocksDB.loadLibrary()  # type: ignore[union-attr]  # there is one
    except Exception as error:  # the session was stopped meanwhile, or the store is another one
        log.debug("the state store was not loaded: %s", error)


def _cores(master: str) -> int:
    found = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if master == "local":
        return 1
    return int(found[1]) if found and found[1] != "*" else os.cpu_count() or 1


def check_tasks(tasks: Any, shards: int | None) -> None:
    """Refuse a number of tasks among which so many shards cannot be divided evenly."""
    if type(tasks) is not int or tasks < 1:
        raise SettingError(f"`tasks` is {tasks!r}; it is a whole number from 1 on.")
    if shards is None or shards % tasks:
        has = "not given" if shards is None else shards
        raise SettingError(
            f"`tasks` is {tasks} and `shards` is {has}; each task has as many shards as the others, or a batch would "
            "wait for one.",
            hint=f"give shards={tasks * max(1, round((shards or 1) / tasks))}, or a number of tasks that divides it.",
        )


def shards_and_tasks(spark: SparkSession) -> tuple[int, int]:
    """The shards of a join that names none, and the tasks that they share."""
    tasks = int(spark.conf.get(PARTITIONS) or 1)
    return int(spark.conf.get(SHARDS, None) or tasks), tasks


def tasks_for(spark: SparkSession, shards: int) -> int:
    """The tasks that `session` gives so many shards by default."""
    master = spark.conf.get("spark.master", None) or ""
    return even_tasks(shards, _cores(master)) if master.startswith("local") else shards


def limit_batches(df: DataFrame) -> None:
    """Have Spark put fewer rows into an Arrow batch from now on if rows of `df` may be of any length.

    The session stays so: its other queries may start at any time. Limits that the user has chosen stay.
    """
    conf = df.sparkSession.conf
    fixed = all(isinstance(f.dataType, FIXED_WIDTH) for f in df.schema)
    if not fixed and all(conf.get(name, None) == value for name, value in LIMITS.items()):
        conf.set(BATCH_ROWS, FEW_ROWS)


@contextmanager
def default_file_manager(spark: SparkSession, checkpoint: str | Path) -> Iterator[None]:
    """Start a query with Spark's own choice of a checkpoint file manager if the checkpoint is not on a local disk."""
    ours = spark.conf.get(FILE_MANAGER, None) == LOCAL_FILE_MANAGER
    if not ours or isinstance(reached(spark, str(checkpoint)), Path):
        yield
        return
    spark.conf.unset(FILE_MANAGER)
    try:
        yield
    finally:
        spark.conf.set(FILE_MANAGER, LOCAL_FILE_MANAGER)


@contextmanager
def bounded_run(spark: SparkSession, trigger: Mapping[str, Any]) -> Iterator[None]:
    """Start a query that takes the input that is there without batches for the clock, which would never end."""
    if not trigger.keys() & {"availableNow", "once"}:
        yield
        return
    before = spark.conf.get(EMPTY_BATCHES, "true") or "true"
    spark.conf.set(EMPTY_BATCHES, "false")
    try:
        yield
    finally:
        spark.conf.set(EMPTY_BATCHES, before)


def check(spark: SparkSession) -> None:
    """Refuse a session that lacks the state operator or a required setting, naming it.

    Any state store provider is accepted but Spark's default: vendors have classes of their own. What it does is
    believed until the first batch: Spark fails there if it lacks column families, or gives a state no id of its own.
    """
    require_state_operator(spark)
    for name, (value, why) in REQUIRED.items():
        have = spark.conf.get(name, None)
        fits = have is not None and DEFAULT_PROVIDER not in have if name == PROVIDER else have == value
        if not fits:
            raise SettingError(
                f"the Spark session has `{name}` = {have}, but a streaming join needs {value}: {why}.",
                hint=f'spark.conf.set("{name}", "{value}"), or make the session with wm.session() / wm.configure().',
            )
