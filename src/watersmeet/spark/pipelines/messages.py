"""Messages of Kafka as rows, and rows as messages."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import StringType, StructField, StructType

from watersmeet.errors import ColumnError
from watersmeet.pipelines.pipeline import Sink, Source

#: The column with the parts of a message beside its value: key, headers, topic, partition, offset, timestamp.
ENVELOPE = "kafka"
#: The header of every message that a sink writes: the number of its batch, the same at each attempt.
BATCH = "watersmeet-batch"
#: A further header: what tells a message from the others of its batch, the same at each attempt.
ROW = "watersmeet-row"
_CORRUPT = "watersmeet corrupt"
_HEADER = "watersmeet header "
_HEADERS = """aggregate(coalesce(headers, array()), CAST(map() AS map<string, string>), (all, one) ->
    map_concat(map_filter(all, (k, v) -> k <> one.key), map(one.key, CAST(one.value AS string))))"""


def decoded(messages: DataFrame, source: Source) -> DataFrame:
    """The columns of the value, then `kafka`. A message without a value (a tombstone) has NULLs for its columns.

    A value that does not match `schema` stops the query; with ``malformed = "drop"`` or ``"sink"`` it is left out, and
    counted in the query's progress. `dead_letters` has those that are left out.
    """
    if source.value == "text":
        return messages.select(F.col("value").cast("string").alias("value"), _envelope())
    read, names, bad = _parsed(messages, source)
    row = F.col("row")
    if source.malformed != "fail":
        read = read.observe(f"watersmeet_malformed_{source.name}", F.count_if(bad).alias("messages")).where(~bad)
    elif source.value == "json":
        row = F.when(bad, F.raise_error(_malformed_message(source))).otherwise(row)
    return read.select(*(row.getField(name).alias(name) for name in names), ENVELOPE)


def dead_letters(messages: DataFrame, source: Source) -> DataFrame:
    """The messages that are no rows, with `stream`, `topic`, `partition`, `offset`, `timestamp`, `key` and `reason`.

    Their `value` is in base64, as it may be anything.
    """
    read, _, bad = _parsed(messages, source)
    unfit = F.lit(f"the value does not fit the schema {source.schema}")
    text = F.col("value").cast("string")
    reason = F.when(F.try_parse_json(text).isNull(), "the value is not JSON").otherwise(unfit)
    return read.where(bad).select(
        F.lit(source.name).alias("stream"),
        *(F.col(f"{ENVELOPE}.{name}") for name in ("topic", "partition", "offset", "timestamp", "key")),
        F.base64("value").alias("value"),
        (unfit if source.value == "avro" else reason).alias("reason"),
    )


def _parsed(messages: DataFrame, source: Source) -> tuple[DataFrame, list[str], Column]:
    """Messages with the column `row`, the names of its fields, and the condition under which it could not be read."""
    read = messages.select(_row(source).alias("row"), "value", _envelope())
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
    if source.value == "avro":  # from_avro gives a record of NULLs for a value that it cannot read
        empty = F.coalesce(*(row.getField(name).cast("string") for name in names)).isNull()
        return read, names, F.col("value").isNotNull() & empty
    return read, names, row.getField(_CORRUPT).isNotNull()


def _row(source: Source) -> Column:
    assert source.schema is not None, "validated when the pipeline was read"
    if source.value == "avro":
        data = F.expr(f"substring(value, {source.prefix_bytes + 1})") if source.prefix_bytes else F.col("value")
        return from_avro(data, source.schema, {"mode": "FAILFAST" if source.malformed == "fail" else "PERMISSIVE"})
    columns = StructType.fromDDL(source.schema)
    assert isinstance(columns, StructType), "a schema is columns and types"
    schema = StructType([*columns.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return F.from_json(F.col("value").cast("string"), schema, options)


def _envelope() -> Column:
    columns = [F.col(name) for name in ("topic", "partition", "offset", "timestamp")]
    return F.struct(F.col("key").cast("string").alias("key"), F.expr(_HEADERS).alias("headers"), *columns).alias(
        ENVELOPE
    )


def _malformed_message(source: Source) -> Column:
    message = f"stream `{source.name}`: the message at %s, partition %s, offset %s is not {source.schema}"
    hint = 'mend the schema, or write malformed = "sink" or "drop"'
    position = [F.col(f"{ENVELOPE}.{part}") for part in ("topic", "partition", "offset")]
    return F.format_string(message.replace("%s", "\0").replace("%", "%%").replace("\0", "%s") + f" ({hint})", *position)


def encoded(rows: DataFrame, sink: Sink, batch: int) -> DataFrame:
    """Messages with the row as their value, in JSON (NULLs are written) or Avro, and headers to know them by.

    A batch that is written again has the same messages, in another order maybe. A message is known by its content and,
    as results are a bag, by its number among equal ones.
    """
    columns = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
    if sink.value == "avro":
        value = to_avro(columns, sink.schema) if sink.schema else to_avro(columns)
    else:
        value = F.to_json(columns, {"ignoreNullFields": "false"})
    headers = {BATCH: F.lit(str(batch)), ROW: _row_id()} | {n: F.col(f"`{_HEADER}{n}`") for n in sink.headers}
    listed = F.array(*(F.struct(F.lit(n).alias("key"), _bytes(v).alias("value")) for n, v in headers.items()))
    key = F.lit(None) if sink.key is None else F.expr(sink.key)
    named = [F.expr(text).alias(f"{_HEADER}{name}") for name, text in sink.headers.items()]
    made = rows.select(_bytes(key).alias("key"), value.alias("value"), *named)
    return made.select("key", "value", listed.alias("headers"))


def _row_id() -> Column:
    """A digest of key and value, and the number of the message among those that are equal in both."""
    equal = Window.partitionBy("key", "value").orderBy(F.lit(1))
    content = F.concat(F.coalesce("key", F.lit("").cast("binary")), F.col("value").cast("binary"))
    return F.concat_ws("-", F.md5(content), F.row_number().over(equal).cast("string"))


def _bytes(value: Column) -> Column:
    return value.cast("string").cast("binary")
