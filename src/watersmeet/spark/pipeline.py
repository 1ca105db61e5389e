"""A join that is defined: from streams to one stateful operator and its DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from watersmeet.errors import ColumnError
from watersmeet.joins import Join, listens, plan
from watersmeet.joins.wo_join import WOJoin
from watersmeet.model.grouping import Bucket
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow
from watersmeet.spark import conditions, operators, splitting
from watersmeet.spark import session as sessions
from watersmeet.spark.analysis import Analyze, analysis
from watersmeet.spark.choosing import algorithm_for, engine_options, refuse_unbounded, shards_for
from watersmeet.spark.conditions import Condition
from watersmeet.spark.counters import METRICS
from watersmeet.spark.derived import as_stream
from watersmeet.spark.explain import Explanation, explain
from watersmeet.spark.grouping import Grouping, grouping
from watersmeet.spark.kinds import NOTE
from watersmeet.spark.measuring import measuring_of
from watersmeet.spark.oblivious import without_time
from watersmeet.spark.packing import PACKED_DDL, Packer, Signed
from watersmeet.spark.placement import shard_ids
from watersmeet.spark.processor import ShardProcessor
from watersmeet.spark.punctuations import Sign, with_signs
from watersmeet.spark.statistics import Given
from watersmeet.spark.streams import Stream, aligned, same_kind


@dataclass(frozen=True)
class Asked:
    """What `join` is told beside the streams and the key."""

    how: str = "inner"
    where: Condition | None = None
    algorithm: str = "auto"
    on_violation: str = "drop"
    allow_unbounded: bool = False
    closed: bool = True
    shards: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    split_keys: Sequence[Any] | None = None


@dataclass(frozen=True)
class Joined:
    """A join that is defined, not running: its DataFrames do the work when something reads them."""

    streams: tuple[Stream, ...]
    query: JoinQuery
    ids: tuple[int, ...]
    streaming: bool
    operator: Join
    on_violation: str = "drop"
    condition: Column | None = None  # by which Spark filters the results, where the operator cannot
    inner: tuple[Joined, ...] = ()  # operators whose output this one joins, first to last
    hidden: tuple[str, ...] = ()  # columns that only the operators need
    forced: bool = False  # whether the algorithm was asked for by name
    options: tuple[str, ...] = ()  # names of the options that the algorithm was given
    part: str | None = None  # the column that tells the parts of split keys

    @cached_property
    def _packed(self) -> DataFrame:
        """Blobs of all streams."""
        parts = [part for i, source in enumerate(self.streams) for part in self._packed_stream(i, source)]
        return reduce(DataFrame.unionAll, parts)

    @cached_property
    def _rows(self) -> DataFrame:
        """Everything the operator says, one row each: results, late rows, punctuations, statistics."""
        return self._run(METRICS)

    def _run(self, metrics: str) -> DataFrame:
        processor = ShardProcessor(
            self.query, self.ids, ended=not self.streaming, join=self.operator, on_violation=self.on_violation
        )
        rows = operators.run(self._packed, processor, self._columns, metrics)
        if self.part is not None:
            first, note = splitting.without_copies(F.col(NOTE), self.part, self.streams[1].name)
            rows = rows.where(first).withColumn(NOTE, note)
        return rows if self.condition is None else conditions.filtered(rows, self.condition)

    def _packed_stream(self, i: int, source: Stream) -> list[DataFrame]:
        """Blobs of a stream: of its own rows, and of the DataFrames that hold punctuations alone."""
        spec = self.query.streams[i]
        kinds = [source.df.schema[k].dataType.simpleString() for k in spec.key]
        numbered = list(enumerate(source.signs))
        own = [(n, sign) for n, sign in numbered if sign.df is None]
        if source.upstream is not None and source.upstream.key != spec.key:
            own = [(n, sign) for n, sign in own if sign.kind not in ("value", "range")]
        if source.upstream is not None and source.upstream.ids != self.ids:
            own = [(n, sign) for n, sign in own if sign.kind != "range"]
        unbounded = source.upstream is not None  # then a join says NULL for an end that is not there
        teller = None if source.upstream is None else F.get_json_object(NOTE, "$.shard")
        df = with_signs(source.df, own, spec.time, kinds, teller) if own else source.df
        about: dict[str, Any] = {"measuring": measuring_of(self.operator), "passes": source.upstream is not None}
        packer = Packer(spec, i, self.ids, _signed(own, unbounded), **about)
        sessions.limit_batches(df)
        parts = [df.mapInArrow(packer, PACKED_DDL)]
        for n, sign in numbered:
            if sign.df is not None:
                df = with_signs(sign.df, [(n, sign)], spec.time, kinds)
                sessions.limit_batches(df)
                parts.append(df.mapInArrow(Packer(spec, i, self.ids, _signed([(n, sign)]), tuples=False), PACKED_DDL))
        return parts

    @property
    def _columns(self) -> list[StructField]:
        kinds = {f.name: f.dataType for s in self.streams for f in s.columns}
        return [StructField(name, kinds[name]) for name in self.query.schema.names]

    @property
    def names(self) -> list[str]:
        """Columns of `df`."""
        return [name for name in self.query.schema.names if name not in self.hidden]

    @property
    def df(self) -> DataFrame:
        """Results: the key columns, then each stream's other columns. Late rows are left out (and counted)."""
        return operators.results(self._rows, self.names)

    @property
    def tagged(self) -> DataFrame:
        """Results and late rows in one: `kind`, `stream`, the result's columns, `row` (JSON), `shard`, `shards`."""
        return operators.tagged(self._rows, self.names, len(self.ids))

    def group_by(self, *cols: str | Bucket) -> Grouping:
        """Group the results by columns and by `wm.bucket`s of time; `agg` then says what to compute of each group."""
        return grouping(self, cols)

    def as_stream(self, name: str | None = None, *, window: str | RowsWindow | None = None) -> Stream:
        """The results as a stream for a further join, with event time `event_time` and the join's own promises.

        Finished keys close them in the further join as well, if that is on the same key. `window` is that of the
        results in the further join. A join of joins of windows is not the join of all streams at once: each result must
        fit the windows of both joins, whatever the order in which its parts came.
        """
        return as_stream(self, name, window)

    def explain(self, analyze: Analyze = False, *, statistics: Given | None = None) -> Explanation:
        """What will run and why, what is kept how long, what that takes, and when late and unmatched rows come.

        `str()` of it is the text, `to_dict()` the same as data, `to_svg()` a picture.

        Predictions need figures of the streams: rates, keys, closings. Without any they are assumed, and the text says
        so. `statistics` gives them, by stream (``{"bid": {"rate": 500, "keys": 2000}}``, or a static DataFrame with
        some of the stream's rows), as the folder of a checkpoint, whose state remembers them, or as "sample" for static
        DataFrames.

        `analyze` adds what was measured beside what was predicted, and takes the figures from there: of a query, of its
        ``lastProgress``, or of several of its progresses. True finds the query of this session that runs the join;
        a static join is run.
        """
        names = [s.name for s in self.query.streams]
        found = analysis(analyze, self._rows, names, streaming=self.streaming) if analyze else None
        return explain(self, found, statistics)


def one_operator(
    streams: tuple[Stream, ...],
    keys: Sequence[tuple[str, ...]],
    asked: Asked,
) -> Joined:
    """Streams that meet in one operator, each by its own key columns."""
    streaming = same_kind(streams)
    spark = streams[0].df.sparkSession
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    shards = shards_for(streams, asked.shards, partitions, asked.options)
    part = None
    if asked.split_keys is not None:
        streams, keys, part = splitting.split(streams, keys, asked.how, asked.split_keys, shards)
    streams = aligned(streams, keys)
    if asked.algorithm == "wo_join":
        streams = tuple(map(without_time, streams))
    specs = tuple(s.spec(key, closed=asked.closed) for s, key in zip(streams, keys, strict=True))
    query = JoinQuery(specs, asked.how)  # says what is wrong with the streams before `where` is looked at
    own, by_spark = conditions.predicate(asked.where, streams, specs, asked.how)
    query = replace(query, where=own)
    if spark.conf.get("spark.sql.caseSensitive") != "true":
        _refuse_look_alikes(query)
    if streaming:
        sessions.check(spark)
    ids = shard_ids(shards, partitions)
    options = engine_options(asked.options, streams, shards)
    forced = asked.algorithm != "auto"
    algorithm = asked.algorithm if forced else algorithm_for(query, streams, options)
    operator = plan(query, algorithm, **options)
    if not asked.allow_unbounded and not isinstance(operator, WOJoin):
        refuse_unbounded(streams, algorithm, listens=listens(operator))
    about: dict[str, Any] = {"on_violation": asked.on_violation, "forced": forced, "options": tuple(options)}
    about |= {"part": part, "hidden": () if part is None else (part,)}
    joined = Joined(streams, query, ids, streaming, operator, condition=by_spark, **about)
    if by_spark is not None:
        conditions.check(by_spark, joined._columns, spark)
    return joined


def _refuse_look_alikes(query: JoinQuery) -> None:
    """Refuse names that Spark would take for one."""
    known: dict[str, str] = {}
    for stream in query.streams:
        for name in (*stream.key, *stream.payload):
            other = known.setdefault(name.lower(), name)
            if other != name:
                raise ColumnError(
                    f"columns `{other}` and `{name}` of the result differ in upper and lower case only, which Spark "
                    "does not tell apart.",
                    hint=f'rename one: df.withColumnRenamed("{name}", "{stream.name}_{name}").',
                )


def _signed(signs: Sequence[tuple[int, Sign]], unbounded: bool = False) -> tuple[Signed, ...]:
    return tuple(Signed(n, s.kind, s.low_closed, s.high_closed, s.needs(unbounded)) for n, s in signs)
