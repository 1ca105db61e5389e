"""Streams as a pipeline tells of them: a DataFrame, with time, window, delay and punctuations."""

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
from watersmeet.pipelines.words import FILES
from watersmeet.spark import punctuations, streams
from watersmeet.spark.pipelines.messages import ENVELOPE, decoded
from watersmeet.spark.punctuations import Known, Sign
from watersmeet.spark.source import register
from watersmeet.spark.streams import Stream

_KNOWN = {"unique": punctuations.unique, "clustered": punctuations.clustered, "ordered": punctuations.ordered}


def stream(spark: SparkSession, source: Source) -> Stream:
    """The stream of a source."""
    df = _selected(_rows(spark, source), source.select)
    signs = [dict(sign) for sign in source.punctuation]
    hidden: tuple[str, ...] = ()
    if ENVELOPE in df.columns and source.format == "kafka":
        df, signs, hidden = _without_envelope(df, signs)
    made = streams.stream(
        df,
        time=source.time,
        window=window(source.window),
        delay=source.delay,
        late_share=source.late_share,
        idle_after=source.idle_after,
        order_by=source.order_by,
        punctuation=[_punctuation(sign) for sign in signs],
        name=source.name,
    )
    return replace(made, hidden=hidden)


def window(told: str | Mapping[str, Any] | None) -> str | RowsWindow | None:
    """A window as a pipeline tells it."""
    return streams.rows(**told) if isinstance(told, Mapping) else told


def _rows(spark: SparkSession, source: Source) -> DataFrame:
    reader = spark.readStream.format(source.format).options(**source.options)
    if source.format == "kafka":
        return decoded(reader.option("includeHeaders", "true").load(), source)
    if source.format == "watersmeet":
        register(spark)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    elif source.format in FILES:
        reader = reader.schema(_inferred(spark, source))
    return reader.load(source.path) if source.path is not None else reader.load()


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
    df: DataFrame, signs: list[dict[str, Any]]
) -> tuple[DataFrame, list[dict[str, Any]], tuple[str, ...]]:
    """What punctuations ask of `kafka` is computed here, so that it need not travel: columns that are no tuple's."""
    asked: dict[str, Column] = {}
    for n, sign in enumerate(signs):
        for word, told in sign.items():
            texts = told if isinstance(told, list) else [told]
            if not any(isinstance(text, str) and f"{ENVELOPE}." in text for text in texts):
                continue
            names = [f"{ENVELOPE} {n} {word} {i}" for i in range(len(texts))]
            asked |= {name: F.expr(text) for name, text in zip(names, texts, strict=True)}
            quoted = [f"`{name}`" for name in names]
            sign[word] = quoted if isinstance(told, list) else quoted[0]
    columns = [F.col(f"`{name}`") for name in df.columns if name != ENVELOPE]
    return df.select(*columns, *(column.alias(name) for name, column in asked.items())), signs, tuple(asked)


def _punctuation(sign: Mapping[str, Any]) -> Known | Sign:
    told = dict(sign)
    for word, known in _KNOWN.items():
        if word in told:
            return known(told.pop(word), **told)
    for word, made in (("when", punctuations.when), ("heartbeat", punctuations.heartbeat), ("end", punctuations.end)):
        if word in told:
            return made(told.pop(word), **told)
    raise AssertionError("the reader has asked for one of them")
