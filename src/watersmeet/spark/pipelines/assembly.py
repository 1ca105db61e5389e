"""A pipeline put together: its session, its join or query, its running query."""

from __future__ import annotations

import os
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import SettingError
from watersmeet.pipelines.pipeline import Pipeline
from watersmeet.pipelines.words import AVAILABLE_NOW
from watersmeet.spark import session as sessions
from watersmeet.spark.grouping import Grouped
from watersmeet.spark.joining import join
from watersmeet.spark.pipeline import Joined
from watersmeet.spark.pipelines import packages
from watersmeet.spark.pipelines.sinks import writer
from watersmeet.spark.pipelines.sources import stream, window
from watersmeet.spark.sql import sql
from watersmeet.spark.write import write


def session(pipeline: Pipeline, master: str | None = None) -> SparkSession:
    """A session with what the pipeline asks for: the master given here, its own, that of spark-submit, or local."""
    told = pipeline.session
    settings: dict[str, Any] = dict(told.settings)
    named = ",".join([settings.get("spark.jars", ""), *told.packages])
    needed = [*packages.coordinates(pipeline.formats, named), *told.packages]
    if needed and "spark.jars.packages" not in settings:
        settings["spark.jars.packages"] = ",".join(needed)
    if told.memory is not None:
        settings["spark.driver.memory"] = told.memory
    settings.setdefault("spark.app.name", pipeline.name)
    submitted = _submitted()
    if "watersmeet" in submitted.get("spark.submit.pyFiles", ""):  # which the workers' daemon does not see
        settings.setdefault("spark.python.daemon.module", "pyspark.daemon")
    chosen = master or told.master or submitted.get("spark.master") or "local[*]"
    try:
        return sessions.session(master=chosen, shards=told.shards, **settings)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        asked = settings.get("spark.jars.packages")
        raise SettingError(
            "Spark did not start." + (f" It was to fetch {asked} from Maven, which needs a network." if asked else ""),
            hint="`watersmeet doctor` says what is here"
            + ("; jars may also lie in Spark's own folder, or be named in settings, spark.jars." if asked else "."),
        ) from error


def _submitted() -> dict[str, str]:
    """What spark-submit was told, if it started this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def joined(pipeline: Pipeline, spark: SparkSession) -> Joined | Grouped:
    """What the pipeline asks for, defined and not started."""
    streams = {source.name: stream(spark, source) for source in pipeline.sources}
    if pipeline.query is not None:
        return sql(pipeline.query, **streams)
    told = dict(pipeline.join or {})
    chosen = [streams[name] for name in told.pop("streams", list(streams))]
    if "window" in told:
        told["window"] = window(told["window"])
    return join(*chosen, **told.pop("options", {}), **told)


def start(pipeline: Pipeline, asked: Joined | Grouped, *, once: bool = False) -> StreamingQuery:
    """Start it. `once` works off what is there and ends."""
    trigger: str | dict[str, Any] | None = pipeline.trigger
    if once or trigger == AVAILABLE_NOW:
        trigger = {"availableNow": True}
    sinks = {sink.name: writer(sink) for sink in pipeline.sinks}
    return write(asked, checkpoint=pipeline.checkpoint, trigger=trigger, **sinks)
