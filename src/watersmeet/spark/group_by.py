"""`joined.group_by(…).agg(…)`: groups of a join's results, in the join's own operator or in a second one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, DecimalType, DoubleType, LongType, StructField

from watersmeet.errors import QueryError
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.model import durations
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.explain.analysis import Analyze, analysis
from watersmeet.spark.explain.facts import Explanation, explain
from watersmeet.spark.explain.given_statistics import GivenStatistics
from watersmeet.spark.planning.arguments import NoDataFrame, kind_of
from watersmeet.spark.progress.counters import METRICS, numbered
from watersmeet.spark.runtime import output_columns as operators
from watersmeet.spark.runtime.group_blobs import GroupPacker, GroupProcessor
from watersmeet.spark.runtime.packing import PACKED_DDL
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.session import limit_batches
from watersmeet.spark.streams import Change, OperatorSpec

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined

#: Name of the observed metrics of groups that have an operator of their own.
GROUP_METRICS = "watersmeet_groups"


@dataclass(frozen=True)
class Grouping(NoDataFrame):
    """Results by group; `agg` defines what is computed of each group."""

    joined: Joined
    by: tuple[str | Bucket, ...]

    def __repr__(self) -> str:
        by = ", ".join(b if isinstance(b, str) else b.name for b in self.by)
        return f"<Grouping by {by}, without aggregates yet, of {self.joined!r}>"

    def agg(self, *unnamed: Any, emit: str = "final", **aggregates: Aggregate) -> Grouped:
        """Compute aggregates, each under its name, e.g. ``agg(bids=wm.count(), best=wm.max("price"))``.

        With emit="final" a group comes out once, when nothing can change it any more: when punctuations have ended its
        join key, when its time bucket is over, or at the end. With emit="update" every batch yields the groups it
        changed.
        """
        if unnamed:
            raise QueryError(
                f"`agg` takes aggregates by name; got {kind_of(unnamed[0])}.",
                hint='e.g. agg(n=wm.count(), best=wm.max("price")); those of Spark go with joined.df.groupBy.',
            )
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise QueryError(
                    f"`{name}` is {kind_of(aggregate)}; `agg` takes aggregates.",
                    hint=f'e.g. {name}=wm.count(), or {name}=wm.max("price").',
                )
        joined = self.joined
        group_by = GroupBy(self.by, tuple(aggregates.items()), emit)
        by_spark = None if joined.condition is None else str(joined.condition)
        of = joined.query
        what = (of.streams, of.how, of.where, of.spread, of.asof)
        query = GroupedQuery(*what, group_by=group_by, filtered_by=by_spark)
        if joined.condition is not None:
            _refuse_by_key(query)
        query.refuse_endless(_closes(joined))
        return Grouped(joined, query, partial(self._again, emit, aggregates))

    def _again(self, emit: str, aggregates: dict[str, Aggregate], change: Change) -> Grouped:
        assert self.joined.again is not None, "made by `join`"
        return Grouping(self.joined.again(change), self.by).agg(emit=emit, **aggregates)


def grouping(joined: Joined, by: Sequence[str | Bucket | Sequence[str | Bucket]]) -> Grouping:
    """Results by these columns, or by those of one list, as Spark's `groupBy` takes them."""
    given: Sequence[Any] = by[0] if len(by) == 1 and isinstance(by[0], list | tuple) else by
    for column in given:
        if not isinstance(column, str | Bucket):
            raise QueryError(
                f"`group_by` takes names of columns and buckets; got {kind_of(column)}.",
                hint='e.g. group_by("item_id", wm.bucket("bid_at", "1 minute")).',
            )
    return Grouping(joined, tuple(given))


def _refuse_by_key(query: GroupedQuery) -> None:
    """Refuse final groups by key alone in a second operator: closed keys are known to the join's operator only."""
    if query.group_by.emit == "final" and query.final_bucket() is None:
        raise QueryError(
            f"`group_by` is by {', '.join(query.group_by.names)}, and Spark filters the results by `where` before they "
            "are grouped, outside the operator that knows when a key has ended; such a group would never be final.",
            hint="write `where` in comparisons and arithmetic, which the join evaluates itself, "
            f'add wm.bucket("{query.streams[0].time}", "1 minute") to the group_by, or use emit="update".',
        )


def _closes(joined: Joined) -> tuple[bool, ...]:
    """Which streams close keys by punctuations that the join uses."""
    uses_punctuations = joined.operator.algorithm.uses_punctuations
    return tuple(uses_punctuations and s.closes for s in joined.streams)


@dataclass(frozen=True)
class Grouped(NoDataFrame):
    """Groups that are defined, not running: the DataFrames do the work when something reads them.

    >>> auctions = spark.sql("SELECT 7 AS item, TIMESTAMP '2026-05-01 10:00:00' AS opened_at")
    >>> bids = spark.sql("SELECT 7 AS item, TIMESTAMP '2026-05-01 10:05:00' AS bid_at, id AS price FROM range(3)")
    >>> joined = wm.join(
    ...     wm.stream(auctions, time="opened_at", punctuation=wm.unique("item")),
    ...     wm.stream(bids, time="bid_at"),
    ...     on="item",
    ...     window="1 hour",
    ... )
    >>> joined.group_by(wm.bucket("bid_at", "1 hour")).agg(bids=wm.count(), best=wm.max("price")).df.show()
    +-------------------+----+----+
    |      bid_at_bucket|bids|best|
    +-------------------+----+----+
    |2026-05-01 10:00:00|   3|   2|
    +-------------------+----+----+
    """

    joined: Joined
    query: GroupedQuery
    again: Callable[[Change], Grouped] | None = field(default=None, repr=False, compare=False)  # over changed streams

    def __repr__(self) -> str:
        by = self.query.group_by
        aggregates = ", ".join(f"{name} ({aggregate.kind})" for name, aggregate in by.aggregates)
        return f"<Grouped by {', '.join(by.names)}: {aggregates}, {by.emit}, of {self.joined!r}>"

    @property
    def streaming(self) -> bool:
        return self.joined.streaming

    @cached_property
    def _rows(self) -> DataFrame:
        joined, query = self.joined, self.query
        if self._inside():
            operator = GroupedJoin(joined.operator, query)
            processor = ShardProcessor(
                query,
                joined.ids,
                ended=joined.ended,
                streaming=joined.streaming,
                join=operator,
                on_violation=joined.on_violation,
                memory=joined.shard_memory,
            )
            return operators.run(joined._packed, processor, self._columns, numbered(METRICS))
        limit_batches(joined._rows)
        packed = joined._rows.mapInArrow(GroupPacker(query, joined.ids), PACKED_DDL)
        processor = GroupProcessor(query, joined.ids, len(joined.ids))
        return operators.run(packed, processor, self._columns, numbered(GROUP_METRICS))

    def _inside(self) -> bool:
        """Whether the join's own operator keeps the groups: each is within a key, and Spark filters no results."""
        return self.query.on_key() and self.joined.condition is None

    @property
    def _operators(self) -> tuple[OperatorSpec, ...]:
        """The operators that keep state when this runs."""
        of_join = self.joined._operators
        return (*(of_join[:-1] if self._inside() else of_join), (self.query, self.joined.ids))

    @property
    def _columns(self) -> list[StructField]:
        spark = {f.name: f.dataType for f in self.joined._columns}
        by = self.query.group_by
        fields = [StructField(n, spark[s]) for n, s in zip(by.names, by.sources, strict=True)]
        for name, aggregate in by.aggregates:
            kind = self.query.schema.field(name).type
            fields.append(StructField(name, _spark_type(aggregate, kind, spark)))
        return fields

    @property
    def names(self) -> list[str]:
        """Columns of `df`."""
        return list(self.query.schema.names)

    @property
    def df(self) -> DataFrame:
        """Groups: their columns, then their aggregates."""
        return operators.results(self._rows, self.names)

    @property
    def tagged(self) -> DataFrame:
        """Groups (`kind` result), late and violating rows of the join, finished keys; columns as in `Joined.tagged`."""
        return operators.tagged(self._rows, self.names, len(self.joined.ids))

    def explain(
        self, analyze: Analyze = False, *, statistics: GivenStatistics | None = None, verbose: bool = False
    ) -> Explanation:
        """The join's explanation (see `Joined.explain`), and when groups come out."""
        rows, names = (self if self._inside() else self.joined)._rows, [s.name for s in self.query.streams]
        found = analysis(analyze, rows, names, streaming=self.streaming) if analyze else None
        of_join = explain(self.joined, found, statistics)
        groups = {
            "by": list(self.query.group_by.names),
            "aggregates": {name: a.kind for name, a in self.query.group_by.aggregates},
            "emit": self.query.group_by.emit,
            "operator": "the join's own operator" if self._inside() else "a second operator, behind a shuffle by group",
            "come": self._come(),
        }
        of_groups = {name: fact for name, fact in of_join.to_dict().items() if name != "hot_keys"} | {"groups": groups}
        return Explanation(of_groups, of_join.draw, verbose)

    def _come(self) -> str:
        query, key = self.query, ", ".join(self.query.streams[0].key)
        ends = []
        if self._inside() and any(_closes(self.joined)):
            ends.append(f"when punctuations have ended its {key}")
        bucket = query.final_bucket()
        if bucket is not None:
            position, i = bucket
            by, stream = query.group_by.by[position], query.streams[i]
            assert isinstance(by, Bucket), "final_bucket gives a bucket"
            past = f"when {stream.name} is past the end of its {durations.formatted(by.length)} of {stream.time} "
            if query.asof is not None:
                ends.append(f"{past}and all of its rows are final")
            else:
                window = stream.window
                last = window.length if isinstance(window, TimeWindow) else window.reach
                others = " and ".join(o.name for j, o in enumerate(query.streams) if j != i)
                ends.append(f"{past}and {others} is past that {durations.signed(last)}")
        ends.append("when all streams have ended")
        final = ", or ".join(ends)
        if query.group_by.emit == "update":
            return f"in every batch that changes it; it is evicted {final}"
        return f"once, {final}"


def _spark_type(aggregate: Aggregate, kind: pa.DataType, columns: dict[str, DataType]) -> DataType:
    match aggregate.kind:
        case "min" | "max" | "first" | "last":
            return columns[aggregate.column or ""]
        case "collect_list":
            return ArrayType(columns[aggregate.column or ""], containsNull=False)
        case _ if pt.is_decimal(kind):
            return DecimalType(kind.precision, kind.scale)
        case _:
            return LongType() if pt.is_integer(kind) else DoubleType()
