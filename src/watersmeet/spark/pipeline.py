"""`wm.join`: from streams to one stateful operator and its DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, ByteType, StringType, StructField, StructType

from watersmeet.errors import QueryError, WindowError
from watersmeet.model.queries import JoinQuery
from watersmeet.spark import session as sessions
from watersmeet.spark.explain import Explanation, explain
from watersmeet.spark.packing import PACKED_DDL, Packer
from watersmeet.spark.placement import shard_ids
from watersmeet.spark.processor import LATE, RESULT, STATS, SheetReader, ShardProcessor
from watersmeet.spark.streams import Stream, aligned, same_kind

#: Name of the observed metrics in a query's progress.
METRICS = "watersmeet"
SUMMED = (
    "rows_in late null_keys probed results inserted invalidated stored state_bytes bytes_written "
    "decode_us load_us join_us emit_us save_us cache_hit caught_up rebuilt"
).split()


@dataclass(frozen=True)
class Joined:
    """A join that is defined, not running: its DataFrames do the work when something reads them."""

    streams: tuple[Stream, ...]
    query: JoinQuery
    ids: tuple[int, ...]
    streaming: bool

    @cached_property
    def _rows(self) -> DataFrame:
        """Everything the operator says, one row each: results, late rows (statistics are observed and removed)."""
        packed: DataFrame | None = None
        for i, (source, spec) in enumerate(zip(self.streams, self.query.streams, strict=True)):
            part = source.df.mapInArrow(Packer(spec, i, self.ids), PACKED_DDL)
            packed = part if packed is None else packed.unionAll(part)
        assert packed is not None, "a query has at least two streams"
        processor = ShardProcessor(self.query, self.ids, ended=not self.streaming)
        is_packed = processor.sheet.packed
        out = packed.groupBy("shard").transformWithStateInPandas(
            processor,
            outputStructType=StructType([*_head(), StructField("blob", BinaryType())]) if is_packed else self._schema,
            outputMode="Append",
            timeMode="None",
        )
        if is_packed:
            out = out.mapInArrow(SheetReader(self.query.schema), self._schema)
        stats = [F.sum(_stat(name)).alias(name) for name in SUMMED]
        return out.observe(METRICS, stats[0], *stats[1:], F.max(_stat("stored")).alias("stored_max")).where(
            F.col("kind") != STATS
        )

    @property
    def _schema(self) -> StructType:
        columns = {f.name: f.dataType for s in self.streams for f in s.df.schema}
        return StructType([*_head(), *(StructField(name, columns[name]) for name in self.query.schema.names)])

    @property
    def df(self) -> DataFrame:
        """Results: the key columns, then each stream's other columns. Late rows are left out (and counted)."""
        return self._rows.where(F.col("kind") == RESULT).select(*map(_quoted, self.query.schema.names))

    @property
    def tagged(self) -> DataFrame:
        """Results and late rows in one: `kind`, `stream`, the result's columns, `row` (JSON), `shard`, `shards`."""
        kind = F.when(F.col("kind") == RESULT, "result").when(F.col("kind") == LATE, "late")
        return self._rows.select(
            kind.alias("kind"),
            F.get_json_object("note", "$.stream").alias("stream"),
            *map(_quoted, self.query.schema.names),
            F.get_json_object("note", "$.row").alias("row"),
            F.get_json_object("note", "$.shard").cast("int").alias("shard"),
            F.lit(len(self.ids)).alias("shards"),
        )

    def explain(self) -> Explanation:
        """What will run, what is kept how long, and what happens to late rows; `str()` of it is the text."""
        return explain(self.query, len(self.ids), self.streaming)


def join(
    *streams: Stream,
    on: str | Sequence[str],
    how: str = "inner",
    closed: bool = True,
    shards: int | None = None,
) -> Joined:
    """Join two streams on equal values of `on`, within their windows.

    A pair (a, b) is a result iff the keys are equal and, at the time of the newer one, the older is in its own
    stream's window: b at most b's window older than a, or a at most a's window older than b. The result is that of
    a batch join over all rows that did not come late. `closed=False` leaves out the edge of the window itself.
    `shards` divides the keys (default: Spark's number of shuffle partitions); it is fixed for the life of a
    checkpoint.
    """
    if len(streams) != 2:
        raise QueryError(f"`join` takes two streams; {len(streams)} given.", hint="join the others in a further join.")
    for s in streams:
        if not isinstance(s, Stream):
            raise QueryError(
                f"`join` takes streams; got {type(s).__name__}.", hint='wrap it: wm.stream(df, time="…", window="…").'
            )
    if how != "inner":
        raise QueryError(f'`how` is "{how}"; this version joins "inner" only.')
    names = [s.name for s in streams]
    if len(set(names)) < len(names):
        raise QueryError(f"two streams are called `{names[0]}`; messages could not tell them apart.", hint="set `name`.")
    key = (on,) if isinstance(on, str) else tuple(on)
    if not key:
        raise QueryError("`on` names no column; a join needs at least one key.")
    for s in streams:
        if s.length is None:
            raise WindowError(
                f"stream `{s.name}` has neither a window nor a punctuation; its tuples would be kept for ever.",
                hint='give it one: wm.stream(df, time="…", window="10 minutes").',
            )
    streaming = same_kind(streams)
    streams = aligned(streams, key)
    query = JoinQuery(tuple(s.spec(key, closed=closed) for s in streams), how)
    spark = streams[0].df.sparkSession
    if streaming:
        sessions.check(spark)
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    count = shards or partitions
    if count < 1:
        raise QueryError(f"`shards` is {count}; there is at least one.")
    return Joined(streams, query, shard_ids(count, partitions), streaming)


def _stat(name: str) -> Column:
    return F.when(F.col("kind") == STATS, F.get_json_object("note", f"$.{name}").cast("bigint"))


def _quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _head() -> list[StructField]:
    return [StructField("kind", ByteType()), StructField("note", StringType())]
