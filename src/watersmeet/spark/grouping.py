"""`joined.group_by(…).agg(…)`: groups of a join's results, in the join's own operator or in a second one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, DecimalType, DoubleType, LongType, StructField

from watersmeet.errors import QueryError
from watersmeet.joins import listens
from watersmeet.joins.group_by import GroupedJoin
from watersmeet.model import durations
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.windows import TimeWindow
from watersmeet.spark import operators
from watersmeet.spark.analysis import Analyze, analysis
from watersmeet.spark.counters import METRICS
from watersmeet.spark.explain import Explanation, explain
from watersmeet.spark.group_packing import GroupPacker, GroupProcessor
from watersmeet.spark.packing import PACKED_DDL
from watersmeet.spark.processor import ShardProcessor
from watersmeet.spark.session import limit_batches
from watersmeet.spark.statistics import Given

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined

#: Name of the observed metrics of groups that have an operator of their own.
GROUP_METRICS = "watersmeet_groups"


@dataclass(frozen=True)
class Grouping:
    """Results by group; what to compute of them is said by `agg`."""

    joined: Joined
    by: tuple[str | Bucket, ...]

    def agg(self, *, emit: str = "final", **aggregates: Aggregate) -> Grouped:
        """Compute aggregates, each under its name, e.g. ``agg(bids=wm.count(), best=wm.max("price"))``.

        With emit="final" a group comes out once, when nothing can change it any more: when punctuations have ended its
        join key, when its time bucket is over, or at the end. With emit="update" every batch yields the groups it
        changed.
        """
        for name, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise QueryError(
                    f"`{name}` is a {type(aggregate).__name__}; `agg` takes aggregates.",
                    hint=f'e.g. {name}=wm.count(), or {name}=wm.max("price").',
                )
        joined = self.joined
        group_by = GroupBy(self.by, tuple(aggregates.items()), emit)
        by_spark = None if joined.condition is None else str(joined.condition)
        what = (joined.query.streams, joined.query.how, joined.query.where)
        query = GroupedQuery(*what, group_by=group_by, filtered_by=by_spark)
        if joined.condition is not None:
            _refuse_by_key(query)
        query.refuse_endless(_closes(joined))
        return Grouped(joined, query)


def grouping(joined: Joined, by: tuple[str | Bucket, ...]) -> Grouping:
    for column in by:
        if not isinstance(column, str | Bucket):
            raise QueryError(
                f"`group_by` takes names of columns and buckets; got {type(column).__name__}.",
                hint='e.g. group_by("item_id", wm.bucket("bid_at", "1 minute")).',
            )
    return Grouping(joined, by)


def _refuse_by_key(query: GroupedQuery) -> None:
    """Groups of results that Spark filters stand in a second operator, which keys' ends do not reach."""
    if query.group_by.emit == "final" and query.closing_bucket() is None:
        raise QueryError(
            f"`group_by` is by {', '.join(query.group_by.names)}, and Spark filters the results by `where` before they "
            "are grouped, outside the operator that knows when a key has ended; such a group would never be final.",
            hint="say `where` in comparisons and arithmetic, which the join evaluates itself, "
            f'add wm.bucket("{query.streams[0].time}", "1 minute") to the group_by, or use emit="update".',
        )


def _closes(joined: Joined) -> tuple[bool, ...]:
    """Which streams end keys by punctuations that the join listens to."""
    heard = listens(joined.operator)
    return tuple(heard and bool(s.known or any(g.kind != "heartbeat" for g in s.signs)) for s in joined.streams)


@dataclass(frozen=True)
class Grouped:
    """Groups that are defined, not running: the DataFrames do the work when something reads them."""

    joined: Joined
    query: GroupedQuery

    @property
    def streaming(self) -> bool:
        return self.joined.streaming

    @cached_property
    def _rows(self) -> DataFrame:
        joined, query = self.joined, self.query
        if self._inside():
            operator = GroupedJoin(joined.operator, query)
            processor = ShardProcessor(
                query, joined.ids, ended=not joined.streaming, join=operator, on_violation=joined.on_violation
            )
            return operators.run(joined._packed, processor, self._columns, METRICS)
        limit_batches(joined._rows)
        packed = joined._rows.mapInArrow(GroupPacker(query, joined.ids), PACKED_DDL)
        return operators.run(packed, GroupProcessor(query, joined.ids, len(joined.ids)), self._columns, GROUP_METRICS)

    def _inside(self) -> bool:
        """Whether groups stand in the join's own operator: they stay within a key, and nothing filters results."""
        return self.query.on_key() and self.joined.condition is None

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

    def explain(self, analyze: Analyze = False, *, statistics: Given | None = None) -> Explanation:
        """What the join's explanation says (see `Joined.explain`), and when groups come."""
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
        return Explanation({**of_join.to_dict(), "groups": groups}, of_join.draw)

    def _come(self) -> str:
        query, key = self.query, ", ".join(self.query.streams[0].key)
        ends = []
        if self._inside() and any(_closes(self.joined)):
            ends.append(f"when punctuations have ended its {key}")
        bucket = query.closing_bucket()
        if bucket is not None:
            place, i = bucket
            by, stream = query.group_by.by[place], query.streams[i]
            assert isinstance(by, Bucket), "such are the buckets that close"
            assert isinstance(stream.window, TimeWindow), "such are the buckets that close"
            others = " and ".join(o.name for j, o in enumerate(query.streams) if j != i)
            ends.append(
                f"when {stream.name} is past the end of its {durations.spell(by.length)} of {stream.time} "
                f"and {others} is past that + {durations.spell(stream.window.length)}"
            )
        ends.append("when all streams have ended")
        final = ", or ".join(ends)
        if query.group_by.emit == "update":
            return f"in every batch that changes it; it is forgotten {final}"
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
