"""Messages of Kafka as rows, and rows as messages."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StringType, StructField, StructType

from watersmeet.errors import ColumnError
from watersmeet.pipelines.pipeline import Sink, Source

#: The column with what a message has beside its value: key, headers, topic, partition, offset, timestamp.
ENVELOPE = "kafka"
#: The header of every message that a sink writes: the number of its batch, the same if that is written again.
BATCH = "watersmeet-batch"
_CORRUPT = "watersmeet corrupt"
_HEADERS = """aggregate(coalesce(headers, array()), CAST(map() AS map<string, string>), (all, one) ->
    map_concat(map_filter(all, (k, v) -> k <> one.key), map(one.key, CAST(one.value AS string))))"""


def decoded(messages: DataFrame, source: Source) -> DataFrame:
    """The columns of the value, then `kafka`. A message without a value (a tombstone) has NULLs for its columns.

    A value that is not what `schema` says stops the query; with ``malformed = "drop"`` it is left out, and counted in
    the query's progress.
    """
    if source.value == "text":
        return messages.select(F.col("value").cast("string").alias("value"), _envelope())
    read = messages.select(_row(source).alias("row"), F.col("value").isNotNull().alias("full"), _envelope())
    kind = read.schema["row"].dataType
    if not isinstance(kind, StructType):
        raise ColumnError(
            f"the Avro schema of stream `{source.name}` is {kind.simpleString()}; a message is a record of columns.",
            hint="wrap it in a record, or read it as text.",
        )
    names = [name for name in kind.names if name != _CORRUPT]
    if ENVELOPE in names:
        raise ColumnError(
            f"stream `{source.name}` has a column `{ENVELOPE}`, which is what a message has beside its value.",
            hint="leave it out of the schema, or call it otherwise.",
        )
    row = F.col("row")
    if source.value == "avro":  # which gives a record of NULLs for what it cannot read
        bad = F.col("full") & F.coalesce(*(row.getField(name).cast("string") for name in names)).isNull()
    else:
        bad = row.getField(_CORRUPT).isNotNull()
    if source.malformed == "drop":
        read = read.observe(f"watersmeet_malformed_{source.name}", F.count_if(bad).alias("messages")).where(~bad)
    elif source.value == "json":
        row = F.when(bad, F.raise_error(_complaint(source))).otherwise(row)
    return read.select(*(row.getField(name).alias(name) for name in names), ENVELOPE)


def _row(source: Source) -> Column:
    assert source.schema is not None, "the reader has asked for it"
    if source.value == "avro":
        data = F.expr(f"substring(value, {source.prefix_bytes + 1})") if source.prefix_bytes else F.col("value")
        return from_avro(data, source.schema, {"mode": "FAILFAST" if source.malformed == "fail" else "PERMISSIVE"})
    columns = StructType.fromDDL(source.schema)
    assert isinstance(columns, StructType), "a schema is columns and types"
    schema = StructType([*columns.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.col("value").cast("string"), schema, options)


def _envelope() -> Column:
    told = [F.col(name) for name in ("topic", "partition", "offset", "timestamp")]
    return F.struct(F.col("key").cast("string").alias("key"), F.expr(_HEADERS).alias("headers"), *told).alias(ENVELOPE)


def _complaint(source: Source) -> Column:
    said = f"stream `{source.name}`: the message at %s, partition %s, offset %s is not {source.schema}"
    hint = 'mend the schema, or write malformed = "drop"'
    place = [F.col(f"{ENVELOPE}.{part}") for part in ("topic", "partition", "offset")]
    return F.format_string(said.replace("%s", "\0").replace("%", "%%").replace("\0", "%s") + f" ({hint})", *place)


def encoded(rows: DataFrame, sink: Sink, batch: int) -> DataFrame:
    """Messages with the row as their value, in JSON (NULLs are written) or Avro, and the number of the batch."""
    columns = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
    if sink.value == "avro":
        value = to_avro(columns, sink.schema) if sink.schema else to_avro(columns)
    else:
        value = F.to_json(columns, {"ignoreNullFields": "false"})
    headers = {BATCH: F.lit(str(batch))} | {name: F.expr(text) for name, text in sink.headers.items()}
    listed = F.array(*(F.struct(F.lit(n).alias("key"), _bytes(v).alias("value")) for n, v in headers.items()))
    key = F.lit(None) if sink.key is None else F.expr(sink.key)
    return rows.select(_bytes(key).alias("key"), value.alias("value"), listed.alias("headers"))


def _bytes(value: Column) -> Column:
    return value.cast("string").cast("binary")
