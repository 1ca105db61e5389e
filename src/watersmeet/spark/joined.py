"""A join that is defined: from streams to one stateful operator and its DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce, wraps
from typing import Any, Concatenate, ParamSpec

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from watersmeet.checkpoints.convert_rows import SplitKeys
from watersmeet.errors import ColumnError
from watersmeet.joins import Join, plan
from watersmeet.model.asof import AsOf
from watersmeet.model.durations import Duration
from watersmeet.model.grouping import Bucket
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Interval, RowsWindow, format_window
from watersmeet.optimizer.plan import JoinPlan
from watersmeet.spark import session as sessions
from watersmeet.spark.as_stream import as_stream
from watersmeet.spark.explain.analysis import Analyze, analysis
from watersmeet.spark.explain.facts import Explanation, explain
from watersmeet.spark.explain.given_statistics import GivenStatistics
from watersmeet.spark.group_by import Grouping, grouping
from watersmeet.spark.planning import conditions, without_equality
from watersmeet.spark.planning import hot_keys as splitting
from watersmeet.spark.planning.arguments import NoDataFrame
from watersmeet.spark.planning.conditions import AnyCondition
from watersmeet.spark.planning.key_punctuations import fitted
from watersmeet.spark.planning.key_types import aligned
from watersmeet.spark.planning.plan_join import (
    Planner,
    assumed_statistics,
    engine_options,
    refuse_unbounded,
    shards_for,
)
from watersmeet.spark.planning.stream_kinds import same_kind
from watersmeet.spark.planning.wo_join_options import without_time
from watersmeet.spark.progress.counters import METRICS, numbered
from watersmeet.spark.punctuations import PunctuationRule, alone, with_rules
from watersmeet.spark.runtime import output_columns as operators
from watersmeet.spark.runtime.order_detail import order_detail_of
from watersmeet.spark.runtime.origins import with_origin
from watersmeet.spark.runtime.packing import PACKED_DDL, PackedRule, Packer, with_partition
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import DETAIL
from watersmeet.spark.runtime.spark_versions import require_static_joins
from watersmeet.spark.streams import Change, OperatorSpec, Stream, parse_window
from watersmeet.state.hot_keys.phases import may_split


@dataclass(frozen=True)
class JoinRequest:
    """What the user wrote, beside the streams and the key."""

    how: str = "inner"
    where: AnyCondition | None = None
    algorithm: str = "auto"
    on_violation: str = "drop"
    allow_unbounded: bool = False
    closed: str = "both"  # ends of the windows, or of the interval, that belong to it
    shards: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    split_keys: Sequence[Any] | None = None
    null_safe: frozenset[str] = frozenset()  # key columns, as in the first stream, of which NULLs are equal
    between: Interval | None = None  # of the second stream's times around the first one's
    asof: AsOf | None = None
    memory: int | None = None  # bytes of lists and rows, of all shards and operators


@dataclass(frozen=True)
class Joined(NoDataFrame):
    """A join that is defined, not running: its DataFrames do the work when something reads them.

    Over static DataFrames it gives the results as a batch:

    >>> orders = spark.sql("SELECT 1 AS id, TIMESTAMP '2026-05-01 10:00:00' AS ordered_at")
    >>> payments = spark.sql("SELECT 1 AS id, TIMESTAMP '2026-05-01 10:05:00' AS paid_at")
    >>> joined = wm.join(
    ...     wm.stream(orders, time="ordered_at", name="order"),
    ...     wm.stream(payments, time="paid_at", name="payment"),
    ...     on="id",
    ...     window="1 hour",
    ... )
    >>> joined
    <Joined inner join of order (1 hour), payment (1 hour) on id: hash, 2 shards, static>
    >>> joined.df.show()
    +---+-------------------+-------------------+
    | id|         ordered_at|            paid_at|
    +---+-------------------+-------------------+
    |  1|2026-05-01 10:00:00|2026-05-01 10:05:00|
    +---+-------------------+-------------------+
    """

    streams: tuple[Stream, ...]
    query: JoinQuery
    ids: tuple[int, ...]
    streaming: bool
    operator: Join[Any]
    planner: Planner = field(repr=False)
    plan: JoinPlan = field(repr=False)  # the operator's plan under assumed statistics, with the alternatives
    on_violation: str = "drop"
    condition: Column | None = None  # by which Spark filters the results, where the operator cannot
    inner: tuple[Joined, ...] = ()  # operators whose output this one joins, first to last
    hidden: tuple[str, ...] = ()  # columns that only the operators need
    split_keys: SplitKeys | None = None
    memory: int | None = None  # bytes of lists and rows of all shards, beyond which rows are spilled
    again: Callable[[Change], Joined] | None = field(default=None, repr=False, compare=False)  # over changed streams

    def __repr__(self) -> str:
        query = self.query
        streams = ", ".join(f"{s.name} ({format_window(s.window)})" for s in query.streams)
        kind = query.how if query.asof is None else f"{query.how} as-of"
        on = ", ".join(k for k in query.streams[0].key if k not in self.hidden)
        what = f"{kind} join of {streams} {f'on {on}' if on else 'without equality'}"
        shards = f"{len(self.ids)} shard{'s' if len(self.ids) != 1 else ''}"
        return f"<Joined {what}: {self.operator.name}, {shards}, {'streaming' if self.streaming else 'static'}>"

    @cached_property
    def _packed(self) -> DataFrame:
        """Blobs of all streams."""
        parts = [part for i, source in enumerate(self.streams) for part in self._packed_stream(i, source)]
        return reduce(DataFrame.unionAll, parts)

    @cached_property
    def _rows(self) -> DataFrame:
        """The operator's whole output, one row each: results, late rows, punctuations, statistics."""
        return self._run(METRICS)

    def _run(self, metrics: str) -> DataFrame:
        processor = ShardProcessor(
            self.query,
            self.ids,
            ended=self.ended,
            streaming=self.streaming,
            join=self.operator,
            on_violation=self.on_violation,
            memory=self.shard_memory,
            splits=self.splits,
        )
        rows = operators.run(self._packed, processor, self._columns, numbered(metrics))
        if self.split_keys is not None:
            column = self.split_keys.column
            is_first, detail = splitting.without_copies(F.col(DETAIL), column, self.streams[1].name)
            rows = rows.where(is_first).withColumn(DETAIL, detail)
        elif self.query.asof is not None:
            for column in self.hidden:
                rows = rows.withColumn(DETAIL, splitting.without_column(F.col(DETAIL), column))
        return rows if self.condition is None else conditions.filtered(rows, self.condition)

    def _packed_stream(self, i: int, source: Stream) -> list[DataFrame]:
        """Blobs of a stream: of its own rows, and of the DataFrames that hold punctuations alone."""
        spec = self.query.streams[i]
        kinds = [source.df.schema[k].dataType for k in spec.punctuated]
        numbered = list(enumerate(source.rules))
        own = [(n, rule) for n, rule in numbered if rule.df is None]
        unbounded = source.upstream is not None  # the output of a join has NULL for an unbounded end
        upstream_shard = None if source.upstream is None else F.get_json_object(DETAIL, "$.shard")
        df = with_rules(source.df, own, spec.time, kinds, upstream_shard) if own else source.df
        about: dict[str, Any] = {"order_detail": order_detail_of(self.operator), "passes": source.upstream is not None}
        about |= {"takes_part": source.takes_part, "beat": source.until, "splits": self.splits}
        about["copied"] = self.query.is_theta and i != self.query.spread
        df = df if spec.late_share is None else with_origin(df)
        if source.ends and source.upstream is None:
            df = with_partition(df)
        packer = Packer(spec, i, self.ids, _packed_rules(own, unbounded), **about)
        sessions.limit_batches(df)
        parts = [df.mapInArrow(packer, PACKED_DDL)]
        for n, rule in numbered:
            if rule.df is not None:
                df = alone(n, rule, spec.time, kinds)
                sessions.limit_batches(df)
                parts.append(
                    df.mapInArrow(Packer(spec, i, self.ids, _packed_rules([(n, rule)]), tuples=False), PACKED_DDL)
                )
        return parts

    @property
    def _columns(self) -> list[StructField]:
        kinds = {f.name: f.dataType for s in self.streams for f in s.columns}
        return [StructField(name, kinds[name]) for name in self.query.schema.names]

    @property
    def _operators(self) -> tuple[OperatorSpec, ...]:
        """The operators that keep state when this runs: the joins before it, and its own."""
        before = (o for s in self.streams if s.upstream is not None for o in s.upstream.operators)
        return (*before, (self.query, self.ids))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """Names of the algorithms of the joins before it, and of its own."""
        before = (name for s in self.streams if s.upstream is not None for name in s.upstream.algorithms)
        return (*before, self.operator.name)

    @property
    def shard_memory(self) -> int | None:
        """The memory of one shard: keys are hashed, so shards need about as much each."""
        return None if self.memory is None else max(1, self.memory // len(self.ids))

    @property
    def splits(self) -> bool:
        """Whether `wm.write` may split hot keys: of two streams with windows of time, without punctuations."""
        traits = self.operator.algorithm.traits
        plain = self.split_keys is None and not any(s.rules for s in self.streams) and not traits.baseline
        return self.streaming and plain and traits.streams == 2 and len(self.ids) > 1 and bool(may_split(self.query))

    @property
    def ended(self) -> bool:
        """Whether no batch follows the next one: of static inputs, or at the end of a run."""
        return not self.streaming or any(s.ends for s in self.streams)

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
        """Results and late rows in one: `kind`, `stream`, the result's columns, `row` (JSON), `shard`, `shards`.

        Shards are numbered from 0 on, here and wherever they are shown.
        """
        return operators.tagged(self._rows, self.names, len(self.ids))

    def group_by(self, *cols: str | Bucket | Sequence[str | Bucket]) -> Grouping:
        """Group the results by columns and by `wm.bucket`s of time; `agg` defines what is computed of each group.

        They are given one by one, or in a list.
        """
        return grouping(self, cols)

    groupBy = group_by  # noqa: N815  # Spark's spelling

    def as_stream(self, name: str | None = None, *, window: Duration | RowsWindow | None = None) -> Stream:
        """The results as a stream for a further join, with event time `event_time` and the join's punctuations.

        Keys that are finished here are closed in the further join as well, if that is on the same key. `window` is that
        of the results in the further join. A join of joins of windows is not the join of all streams at once: each
        result must fit the windows of both joins, whatever the order in which its parts came.
        """
        return as_stream(self, name, parse_window(window))

    def explain(
        self, analyze: Analyze = False, *, statistics: GivenStatistics | None = None, verbose: bool = False
    ) -> Explanation:
        """What will run, what is kept how long, when late and unmatched rows come, and cautions.

        `str()` of it is the text, `to_dict()` the same as data, `to_svg()` a picture. With `verbose` the text also has
        the streams' statistics, the predicted costs, the algorithms that were not taken, and Spark's settings.

        Predictions need statistics of the streams: rates, keys, closed keys. Without any they are assumed, and the text
        shows that. `statistics` gives them, by stream (``{"bid": {"rate": 500, "keys": 2000}}``, or a static DataFrame
        with some of the stream's rows), as the folder of a checkpoint, whose state has them, or as "sample" for
        static DataFrames.

        `analyze` adds what was measured beside what was predicted, and takes the statistics from there: of a query, of
        its ``lastProgress``, or of several of its progresses. True finds the query of this session that runs the join;
        a static join is run.
        """
        names = [s.name for s in self.query.streams]
        found = analysis(analyze, self._rows, names, streaming=self.streaming) if analyze else None
        return explain(self, found, statistics, verbose=verbose)


Rest = ParamSpec("Rest")


def repeatable(make: Callable[Concatenate[Sequence[Stream], Rest], Joined]) -> Callable[..., Joined]:
    """Have the joins that `make` returns of named streams know how they are made over others."""

    @wraps(make)
    def made(streams: Sequence[Stream], *args: Rest.args, **kwargs: Rest.kwargs) -> Joined:
        joined = make(streams, *args, **kwargs)

        def again(change: Change) -> Joined:
            changed = [replace(s.again(change, s.name), name=s.name) for s in streams]
            return made(changed, *args, **kwargs)

        return replace(joined, again=again)

    return made


def one_operator(
    streams: tuple[Stream, ...],
    keys: Sequence[tuple[str, ...]],
    request: JoinRequest,
) -> Joined:
    """Streams that meet in one operator, each by its own key columns."""
    streaming = same_kind(streams)
    spark = streams[0].df.sparkSession
    by_default, tasks = sessions.shards_and_tasks(spark)
    shards = shards_for(streams, request.shards, by_default, request.options)
    parts, by_spark = None, None
    if request.split_keys is not None:
        streams, keys, parts = splitting.split(streams, keys, request.how, request.split_keys, shards)
    ids = shard_ids(shards, tasks)
    if not keys[0]:
        inputs = without_equality.inputs(streams, request)
        streams, query = inputs.streams, inputs.query
    else:
        streams = tuple(fitted(s, key, ids) for s, key in zip(aligned(streams, keys), keys, strict=True))
        if request.algorithm == "wo_join":
            streams = tuple(map(without_time, streams))
        specs = tuple(s.spec(key, closed=request.closed == "both") for s, key in zip(streams, keys, strict=True))
        if request.null_safe:
            flags = tuple(column in request.null_safe for column in keys[0])
            specs = tuple(replace(spec, null_safe=flags) for spec in specs)
        query = JoinQuery(specs, request.how, asof=request.asof)  # refuses wrong streams before `where` is read
        own, by_spark = conditions.predicate(request.where, streams, specs, request.how)
        query = replace(query, where=own)
    if spark.conf.get("spark.sql.caseSensitive") != "true":
        _refuse_look_alikes(query)
    if streaming:
        sessions.check(spark)
    else:
        require_static_joins(spark)
    options = engine_options(request.options, streams, shards)
    planner = Planner(query, streams, tuple(options), shards, streaming, forced=request.algorithm != "auto")
    statistics = assumed_statistics(query, streams)
    algorithm = request.algorithm if planner.forced else planner.best(statistics).algorithm
    operator = plan(query, algorithm, **options)
    if not request.allow_unbounded and not operator.algorithm.traits.bounded:
        refuse_unbounded(query, streams, algorithm, uses_punctuations=operator.algorithm.uses_punctuations)
    about: dict[str, Any] = {"planner": planner, "plan": planner.of(operator, statistics)}
    hidden = () if parts is None else (parts.column,)
    about |= {"on_violation": request.on_violation, "split_keys": parts, "hidden": hidden}
    about["memory"] = request.memory
    joined = Joined(streams, query, ids, streaming, operator, condition=by_spark, **about)
    if by_spark is not None:
        conditions.check(by_spark, joined._columns, spark)
    return joined


def _refuse_look_alikes(query: JoinQuery) -> None:
    """Refuse names that differ in case only: Spark takes them for one column."""
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


def _packed_rules(rules: Sequence[tuple[int, PunctuationRule]], unbounded: bool = False) -> tuple[PackedRule, ...]:
    return tuple(PackedRule(n, s.kind, s.low_closed, s.high_closed, s.needs(unbounded)) for n, s in rules)
