"""Streams of a pipeline: a DataFrame each, with time, window, delay and punctuations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.errors import QueryError
from watersmeet.model.windows import RowsWindow
from watersmeet.pipelines.pipeline import Source
from watersmeet.pipelines.schema import FILES
from watersmeet.spark import punctuations, streams
from watersmeet.spark.pipelines.messages import ENVELOPE, dead_letters, decoded
from watersmeet.spark.punctuations import ColumnConstraint, PunctuationRule
from watersmeet.spark.streams import Stream
from watersmeet.spark.workload_source import register

_CONSTRAINTS = {"unique": punctuations.unique, "clustered": punctuations.clustered, "ordered": punctuations.ordered}


def stream(spark: SparkSession, source: Source) -> tuple[Stream, DataFrame | None]:
    """The stream of a source, and its messages that are no rows, if they have a sink."""
    read, dead = _rows(spark, source)
    df = _selected(read, source.select)
    rules = [dict(rule) for rule in source.punctuation]
    hidden: tuple[str, ...] = ()
    if ENVELOPE in df.columns and source.format == "kafka":
        df, rules, hidden = _without_envelope(df, rules)
    made = streams.stream(
        df,
        time=source.time,
        window=window(source.window),
        delay=source.delay,
        late_share=source.late_share,
        idle_after=source.idle_after,
        idle_clock=source.idle_clock,
        filter=source.filter,
        order_by=source.order_by,
        punctuation=[_punctuation(rule) for rule in rules],
        name=source.name,
    )
    return replace(made, hidden=(*made.hidden, *hidden)), dead


def window(value: str | Mapping[str, Any] | None) -> str | RowsWindow | None:
    """The window of a TOML value."""
    return streams.rows(**value) if isinstance(value, Mapping) else value


def _rows(spark: SparkSession, source: Source) -> tuple[DataFrame, DataFrame | None]:
    """Rows and dead letters. Both are of one DataFrame, so a query that reads both reads the same messages."""
    reader = spark.readStream.format(source.format).options(**source.options)
    if source.format == "kafka":
        messages = reader.option("includeHeaders", "true").load()
        return decoded(messages, source), dead_letters(messages, source) if source.malformed == "sink" else None
    if source.format == "watersmeet":
        register(spark)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    elif source.format in FILES:
        reader = reader.schema(_inferred(spark, source))
    return (reader.load(source.path) if source.path is not None else reader.load()), None


def _inferred(spark: SparkSession, source: Source) -> StructType:
    """The schema of the files that are there now."""
    options = {"inferSchema": "true", **source.options} if source.format == "csv" else source.options
    try:
        return spark.read.format(source.format).options(**options).load(source.path).schema
    except AnalysisException as error:
        raise QueryError(
            f"stream `{source.name}` has no `schema`, and {source.path} has no file to infer it from "
            f"({error.getCondition()}).",
            hint='write schema = "item_id BIGINT, opened_at TIMESTAMP", or put a file there first.',
        ) from None


def _selected(df: DataFrame, texts: tuple[str, ...]) -> DataFrame:
    if texts == ("*",):
        return df
    kept = [ENVELOPE] if ENVELOPE in df.columns else []
    every = [F.col(f"`{name}`") for name in df.columns if name not in kept]
    columns = [column for text in texts for column in (every if text.strip() == "*" else [F.expr(text)])]
    return df.select(*columns, *kept)


def _without_envelope(
    df: DataFrame, rules: list[dict[str, Any]]
) -> tuple[DataFrame, list[dict[str, Any]], tuple[str, ...]]:
    """Replace `kafka` by the columns that punctuations compute from it; these are hidden from tuples."""
    hidden: dict[str, Column] = {}
    for n, rule in enumerate(rules):
        for key, value in rule.items():
            texts = value.values() if isinstance(value, dict) else [value] if key != "on" else []
            if not any(isinstance(text, str) and f"{ENVELOPE}." in text for text in texts):
                continue
            names = [f"{ENVELOPE} {n} {key} {i}" for i in range(len(texts))]
            hidden |= {name: F.expr(text) for name, text in zip(names, texts, strict=True)}
            quoted = [f"`{name}`" for name in names]
            rule[key] = dict(zip(value, quoted, strict=True)) if isinstance(value, dict) else quoted[0]
    columns = [F.col(f"`{name}`") for name in df.columns if name != ENVELOPE]
    return df.select(*columns, *(column.alias(name) for name, column in hidden.items())), rules, tuple(hidden)


def _punctuation(rule: Mapping[str, Any]) -> ColumnConstraint | PunctuationRule:
    values = dict(rule)
    for key, constraint in _CONSTRAINTS.items():
        if key in values:
            return constraint(values.pop(key), **values)
    for key, made in (("when", punctuations.when), ("heartbeat", punctuations.heartbeat), ("end", punctuations.end)):
        if key in values:
            return made(values.pop(key), **values)
    raise AssertionError("validated when the pipeline was read")
