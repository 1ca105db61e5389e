"""The parts of a running pipeline: its session, its join or SQL query, its streaming query."""

from __future__ import annotations

import os
from functools import reduce
from typing import Any, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import SettingError
from watersmeet.pipelines.pipeline import Pipeline
from watersmeet.pipelines.schema import AVAILABLE_NOW
from watersmeet.spark import session as sessions
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.join import join_with
from watersmeet.spark.joined import Joined
from watersmeet.spark.pipelines import packages
from watersmeet.spark.pipelines.sinks import writer
from watersmeet.spark.pipelines.sources import stream, window
from watersmeet.spark.sql import sql
from watersmeet.spark.streams import Stream
from watersmeet.spark.write import start_writing


def session(pipeline: Pipeline, master: str | None = None) -> SparkSession:
    """The session of a pipeline. Its master is the one given here, its own, that of spark-submit, or local."""
    options = pipeline.session
    settings: dict[str, Any] = dict(options.settings)
    jars = [str(jar) for jar in packages.fetched(connectors(pipeline))]
    if jars:
        own = settings.get("spark.jars") or packages.default_jars()
        settings["spark.jars"] = ",".join([own, *jars] if own else jars)
    if options.packages and "spark.jars.packages" not in settings:
        settings["spark.jars.packages"] = ",".join(options.packages)
    if options.memory is not None:
        settings["spark.driver.memory"] = options.memory
    settings.setdefault("spark.app.name", pipeline.name)
    submitted = _submitted()
    if "watersmeet" in submitted.get("spark.submit.pyFiles", ""):  # the workers' daemon cannot import these
        settings.setdefault("spark.python.daemon.module", "pyspark.daemon")
    chosen = master or options.master or submitted.get("spark.master") or "local[*]"
    try:
        return sessions.session(master=chosen, shards=options.shards, tasks=options.tasks, **settings)
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        modules = settings.get("spark.jars.packages")
        raise SettingError(
            "Spark did not start."
            + (f" It was to fetch {modules} from Maven, which needs a network." if modules else ""),
            hint="`watersmeet doctor` says what is here"
            + ("; jars may also lie in Spark's own folder, or be named in settings, spark.jars." if modules else "."),
        ) from error


def connectors(pipeline: Pipeline) -> list[str]:
    """Formats of the pipeline whose connector comes from Maven: it is in no setting and not in Spark's folder."""
    settings = pipeline.session.settings
    named = [settings.get(name, "") for name in ("spark.jars", "spark.jars.packages")]
    return packages.missing(pipeline.formats, ",".join([*named, *pipeline.session.packages]))


def _submitted() -> dict[str, str]:
    """The settings of spark-submit; empty if it did not start this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


class Assembled(NamedTuple):
    """The join or groups of a pipeline, defined and not started, and the messages that its streams cannot read."""

    joined: Joined | Grouped
    dead_letters: DataFrame | None


def assemble(pipeline: Pipeline, spark: SparkSession) -> Assembled:
    """The parts of a pipeline's query."""
    read = {source.name: stream(spark, source) for source in pipeline.sources}
    dead = [letters for _, letters in read.values() if letters is not None]
    joined = _joined(pipeline, {name: made for name, (made, _) in read.items()})
    return Assembled(joined, reduce(DataFrame.union, dead) if dead else None)


def _joined(pipeline: Pipeline, streams: dict[str, Stream]) -> Joined | Grouped:
    if pipeline.query is not None:
        return sql(pipeline.query, **streams)
    arguments = dict(pipeline.join or {})
    chosen = [streams[name] for name in arguments.pop("streams", list(streams))]
    if "window" in arguments:
        arguments["window"] = window(arguments["window"])
    fixed = ("order", "max_matches_per_row", "memory", "strategy")
    options = arguments.pop("options", {}) | {name: arguments.pop(name) for name in fixed if name in arguments}
    return join_with(chosen, options, **arguments)


def start(pipeline: Pipeline, assembled: Assembled, *, once: bool = False) -> StreamingQuery:
    """Start the query. With `once` it processes the available input and ends."""
    trigger: str | dict[str, Any] | None = pipeline.trigger
    if once or trigger == AVAILABLE_NOW:
        trigger = {"availableNow": True}
    sinks: dict[str, Any] = {sink.name: writer(sink) for sink in pipeline.sinks}
    return start_writing(*assembled, sinks, pipeline.checkpoint, trigger, ends=pipeline.ends)
