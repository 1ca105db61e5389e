"""Groups over the results of a join: group columns, aggregates, and when groups are emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError, QueryError, suggestion
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Interval, TimeWindow, Tumbling

#: Aggregates. Over no values all but count, count_distinct and collect_list are NULL.
KINDS = ("count", "sum", "min", "max", "mean", "first", "last", "collect_list", "count_distinct")
EMIT = ("final", "update")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One of KINDS over the values of a column; `count` without a column counts rows."""

    kind: str
    column: str | None = None

    def result(self, column: pa.DataType | None) -> pa.DataType:
        """Type of the aggregate over a column of this type, as in Spark SQL."""
        if self.kind in ("count", "count_distinct"):
            return pa.int64()
        assert column is not None, "only a count has no column"
        if self.kind == "collect_list":
            return pa.list_(column)
        if self.kind in ("sum", "mean"):
            if pt.is_decimal(column):
                more = (10, 0) if self.kind == "sum" else (4, 4)
                return pa.decimal128(min(38, column.precision + more[0]), min(38, column.scale + more[1]))
            return pa.int64() if self.kind == "sum" and pt.is_integer(column) else pa.float64()
        return column

    def refuse(self, name: str, column: pa.DataType) -> None:
        """Refuse a column of a type for which this cannot be computed."""
        numeric = pt.is_integer(column) or pt.is_floating(column) or pt.is_decimal(column)
        if self.kind in ("sum", "mean") and not numeric:
            raise ColumnError(
                f"`{name}` is the {self.kind} of column `{self.column}` of type {column}; only numbers can be added.",
                hint=f'cast `{self.column}` to a number, or use wm.count("{self.column}").',
            )
        if self.kind in ("min", "max") and (pt.is_nested(column) or pt.is_null(column)):
            raise ColumnError(
                f"`{name}` is the {self.kind} of column `{self.column}` of type {column}, whose values have no order.",
                hint="take the aggregate of one of its fields.",
            )
        if self.kind == "count_distinct" and (pt.is_map(column) or pt.is_interval(column)):
            raise ColumnError(
                f"`{name}` counts distinct values of column `{self.column}` of type {column}, "
                "which cannot be compared for equality.",
                hint="count a column of a comparable type.",
            )


@dataclass(frozen=True, slots=True)
class Bucket:
    """Times of a column in pieces of `length` microseconds, counted from 1970-01-01 UTC; a group has their start."""

    column: str
    length: int
    name: str


@dataclass(frozen=True, slots=True)
class GroupBy:
    """Group columns and buckets, aggregates by name, and whether groups come when final or when changed."""

    by: tuple[str | Bucket, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    emit: str = "final"

    def __post_init__(self) -> None:
        if self.emit not in EMIT:
            raise QueryError(f'`emit` is "{self.emit}"; groups come out when they are "final", or with every "update".')
        if not self.by:
            raise QueryError("`group_by` names no column; groups need at least one.", hint='e.g. group_by("item_id").')
        if not self.aggregates:
            raise QueryError("`agg` computes nothing.", hint="e.g. agg(bids=wm.count()).")
        taken: set[str] = set()
        for name in (*self.names, *(name for name, _ in self.aggregates)):
            if name in taken:
                raise ColumnError(
                    f"two columns of the groups are called `{name}`.", hint="give the aggregate or bucket another name."
                )
            taken.add(name)

    def describe(self) -> dict[str, Any]:
        """The same as JSON."""
        buckets = [
            b if isinstance(b, str) else {"column": b.column, "length": b.length, "name": b.name} for b in self.by
        ]
        aggregates = [{"name": name, "kind": a.kind, "column": a.column} for name, a in self.aggregates]
        return {"by": buckets, "aggregates": aggregates, "emit": self.emit}

    @classmethod
    def described(cls, description: dict[str, Any]) -> GroupBy:
        """The inverse of `describe`."""
        by = tuple(b if isinstance(b, str) else Bucket(**b) for b in description["by"])
        aggregates = tuple((a["name"], Aggregate(a["kind"], a["column"])) for a in description["aggregates"])
        return cls(by, aggregates, description["emit"])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the group columns."""
        return tuple(b if isinstance(b, str) else b.name for b in self.by)

    @property
    def sources(self) -> tuple[str, ...]:
        """The results' columns that the group columns are made of."""
        return tuple(b if isinstance(b, str) else b.column for b in self.by)

    def schema(self, results: pa.Schema) -> pa.Schema:
        """Columns of a group, over results with these columns."""
        fields = [pa.field(n, results.field(s).type) for n, s in zip(self.names, self.sources, strict=True)]
        for name, aggregate in self.aggregates:
            column = None if aggregate.column is None else results.field(aggregate.column).type
            fields.append(pa.field(name, aggregate.result(column)))
        return pa.schema(fields)

    def check(self, results: pa.Schema, times: Sequence[str]) -> None:
        """Refuse columns that the results do not have, or that have the wrong type; `times` are the streams' own."""
        for column in self.sources:
            _require(column, results, "group_by")
        for bucket in self.by:
            if isinstance(bucket, Bucket):
                kind = results.field(bucket.column).type
                if not (pt.is_timestamp(kind) and kind.unit == "us") and bucket.column not in times:
                    raise ColumnError(
                        f"`bucket` is over column `{bucket.column}` of type {kind}; a bucket holds timestamps.",
                        hint=f"cast `{bucket.column}` to a timestamp.",
                    )
        for name, aggregate in self.aggregates:
            if aggregate.column is not None:
                _require(aggregate.column, results, name)
                aggregate.refuse(name, results.field(aggregate.column).type)


def _require(column: str, results: pa.Schema, argument: str) -> None:
    if column not in results.names:
        raise ColumnError(
            f"`{argument}` names column `{column}`, which the results of the join do not have.",
            hint=suggestion(column, results.names, "they have"),
        )


@dataclass(frozen=True, slots=True)
class GroupedQuery(JoinQuery):
    """A join and the groups of its results. The columns are those of the groups; `results` has the join's own."""

    group_by: GroupBy = field(kw_only=True)
    filtered_by: str | None = field(kw_only=True, default=None)  # a condition between the join and the groups

    def __post_init__(self) -> None:
        JoinQuery.__post_init__(self)
        self.group_by.check(self.join.schema, [s.time for s in self.streams])

    @property
    def join(self) -> JoinQuery:
        """The join alone."""
        return JoinQuery(self.streams, self.how, self.where, self.spread, self.asof)

    @property
    def schema(self) -> pa.Schema:
        return self.group_by.schema(self.join.schema)

    def describe(self) -> dict[str, object]:
        between = {"filtered_by": self.filtered_by} if self.filtered_by is not None else {}
        return {**JoinQuery.describe(self), "group_by": self.group_by.describe(), **between}

    def on_key(self) -> bool:
        """Whether groups stay within one join key: then they live in its shard, and end with it."""
        return not self.is_theta and set(self.streams[0].key) <= {b for b in self.group_by.by if isinstance(b, str)}

    def final_bucket(self) -> tuple[int, int] | None:
        """(index among the group columns, stream) of the first bucket by which time ends groups, if there is one."""
        timed = self.streams if self.pairs and self.asof is None else self.streams[:1]  # whose times are bounded
        for index, bucket in enumerate(self.group_by.by):
            for i, stream in enumerate(timed):
                on_time = isinstance(bucket, Bucket) and bucket.column == stream.time
                bounded = self.asof is not None or isinstance(stream.window, TimeWindow | Interval | Tumbling)
                if on_time and bounded:
                    return index, i
        return None

    def refuse_endless(self, closes: tuple[bool, ...]) -> None:
        """Refuse groups that would never be final; `closes[i]`: stream i closes keys by punctuations."""
        if self.group_by.emit == "update" or self.final_bucket() is not None:
            return
        ways = f'add wm.bucket("{self.streams[0].time}", "1 minute") to the group_by, or use emit="update".'
        key = ", ".join(self.streams[0].key)
        if self.is_theta:
            raise QueryError(
                f"`group_by` is by {', '.join(self.group_by.names)}, and the join has no key that could end; such a "
                "group may grow for ever and would never come out.",
                hint=ways,
            )
        if not self.on_key():
            raise QueryError(
                f"`group_by` is by {', '.join(self.group_by.names)}, but punctuations end values of the join key "
                f"({key}) only; such a group may grow for ever and would never come out.",
                hint=f"group by {key} as well, {ways}",
            )
        if self.asof is not None and closes[0]:
            return  # a key that the left stream has closed is finished
        for i, stream in enumerate(self.streams):
            others = [j for j in range(len(self.streams)) if j != i]
            alone = not any(map(self.pads, others)) and isinstance(stream.window, TimeWindow | Interval | Tumbling)
            if closes[i] and (all(closes) or alone):
                return
        silent = [s.name for s, c in zip(self.streams, closes, strict=True) if not c]
        raise QueryError(
            f"`group_by` is by {', '.join(self.group_by.names)}, and no punctuation ends values of {key} "
            f"(`{'`, `'.join(silent)}` would have to close them); windows alone never do: a key may come again, "
            "so its group would never be final.",
            hint=f'give a stream punctuations, e.g. wm.when("closed", on="{self.streams[0].key[0]}"), {ways}',
        )
