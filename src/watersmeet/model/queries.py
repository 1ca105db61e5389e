"""Queries: streams, their windows and delays, and how they are joined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.asof import AsOf
from watersmeet.model.predicates import Predicate
from watersmeet.model.punctuations import Clustered, Constraint, Ordered, describe
from watersmeet.model.windows import FOREVER, Interval, RowsWindow, TimeWindow, Tumbling, Unbounded, Window

#: Python types of a distance between two keys, by the type of the keys.
_SLACK: tuple[tuple[Any, tuple[type, ...]], ...] = (
    (pt.is_integer, (int,)),
    (pt.is_floating, (int, float)),
    (pt.is_decimal, (int, Decimal)),
    (pt.is_date, (timedelta,)),
    (pt.is_timestamp, (timedelta,)),
    (pt.is_duration, (timedelta,)),
)


def has_order(kind: pa.DataType) -> bool:
    """Whether values of this type can be sorted."""
    return not (pt.is_nested(kind) or pt.is_null(kind) or pt.is_interval(kind))


@dataclass(frozen=True)
class StreamSpec:
    """One input: its columns, which of them are time and key, its window and its delay (microseconds).

    `order_by` breaks ties between tuples of one event time, before the bytes of the row do. A stream that has shown
    nothing while the others advance by more than `idle_after` counts as idle: its watermark is then the largest one of
    the others less `idle_after`. With `late_share` the delay is measured, so that about that share of the rows comes
    late; `delay` is 0 then. A stream that has shown nothing for `idle_clock` by the timestamps of the batches follows
    these: its watermark is then the batch's timestamp less `idle_clock` and the delay. Of the key columns that are
    `null_safe` a NULL equals a NULL. In a join without equality the key has no columns, and punctuations and
    constraints are about the column `compared`.
    """

    name: str
    schema: pa.Schema
    time: str
    key: tuple[str, ...]
    window: Window
    delay: int = 0
    constraints: tuple[Constraint, ...] = ()
    upstream_shards: int = 0  # shards of the join whose output this is; they send the watermark
    order_by: str | None = None  # the column that breaks ties of times
    idle_after: int | None = None  # microseconds of the other streams' time in which it shows nothing
    late_share: float | None = None  # the share of rows that may be late
    idle_clock: int | None = None  # microseconds of the batches' timestamps in which it shows nothing
    null_safe: tuple[bool, ...] = ()  # for each key column; empty: none is
    compared: str | None = None  # the column of which values are closed, where there is no key

    def __post_init__(self) -> None:
        for column in (self.time, *self.punctuated):
            if column not in self.schema.names:
                raise ColumnError(
                    f"stream `{self.name}` has no column `{column}`.", hint=f"it has {', '.join(self.schema.names)}."
                )
        kind = self.schema.field(self.time).type
        if kind != pa.int64() and not (pt.is_timestamp(kind) and kind.unit == "us"):
            raise ColumnError(
                f"`time` of stream `{self.name}` is column `{self.time}` of type {kind}; "
                "an event time is a timestamp in microseconds, or a number of them.",
                hint=f"cast `{self.time}` to timestamp[us].",
            )
        if self.delay < 0:
            raise WindowError(
                f"`delay` of stream `{self.name}` is {durations.formatted(self.delay)}; a tuple cannot come before it "
                "happened.",
                hint='use "0 seconds" for a stream that is in order.',
            )
        if self.idle_after is not None and self.idle_after <= 0:
            raise WindowError(
                f"`idle_after` of stream `{self.name}` is {durations.formatted(self.idle_after)}; every stream is "
                "silent for a moment.",
                hint="give a time in which the stream would certainly have shown something, or leave it out.",
            )
        if self.idle_clock is not None and self.idle_clock <= 0:
            raise WindowError(
                f"`idle_clock` of stream `{self.name}` is {durations.formatted(self.idle_clock)}; every stream is "
                "silent for a moment.",
                hint="give a time in which the stream would certainly have shown something, or leave it out.",
            )
        if self.late_share is not None and not 0 < self.late_share < 1:
            raise WindowError(
                f"`late_share` of stream `{self.name}` is {self.late_share!r}; it is the share of rows that may come "
                "late, between 0 and 1.",
                hint="use a small number such as 0.001; a `delay` that is given holds for all rows.",
            )
        if not self.key and isinstance(self.window, RowsWindow) and self.window.per_key:
            raise WindowError(
                f"`window` of stream `{self.name}` counts rows per key, and the join has no key.",
                hint=f"count the rows of the stream: wm.rows({self.window.rows}), or join on a key.",
            )
        if self.order_by is not None:
            self.check_order_by(self.order_by)
        for constraint in self.constraints:
            if isinstance(constraint, Ordered):
                self._check_ordered(constraint)
            if isinstance(constraint, Clustered) and any(self.null_safe):
                raise QueryError(
                    f"`clustered` of stream `{self.name}` is about {', '.join(self.key)}, of which NULLs are joined; "
                    "a row without a value ends no cluster.",
                    hint="leave the constraint out, or join with = in place of <=>.",
                )

    def check_order_by(self, column: str) -> None:
        """Refuse a column that cannot break ties of times."""
        if column not in self.schema.names:
            raise ColumnError(
                f"`order_by` of stream `{self.name}` names column `{column}`, which it does not have.",
                hint=f"it has {', '.join(self.schema.names)}.",
            )
        kind = self.schema.field(column).type
        if not has_order(kind):
            raise ColumnError(
                f"`order_by` of stream `{self.name}` is column `{column}` of type {kind}, whose values have no order.",
                hint="order by a number, a text or a time.",
            )

    def _check_ordered(self, constraint: Ordered) -> None:
        if not self.has_ordered_key:
            kinds = ", ".join(str(self.schema.field(k).type) for k in self.punctuated)
            raise ColumnError(
                f"`ordered` of stream `{self.name}` is about {', '.join(self.punctuated)} ({kinds}); "
                "only one column of a type with an order can ascend.",
                hint="join on one column of numbers, texts or times, or leave the constraint out.",
            )
        kind, slack = self.schema.field(self.punctuated[0]).type, constraint.slack
        distances = next((of for test, of in _SLACK if test(kind)), ())
        if slack != 0 and (type(slack) not in distances or slack < type(slack)(0)):
            raise QueryError(
                f"`slack` of `ordered` on stream `{self.name}` is {slack!r}, and its key is {kind}; a slack is a "
                "distance between values, not negative.",
                hint="a number for numbers, a timedelta for dates and timestamps; texts and bytes have none.",
            )

    @property
    def punctuated(self) -> tuple[str, ...]:
        """The columns whose values punctuations close: the key or, without one, the column `compared`."""
        return self.key or (() if self.compared is None else (self.compared,))

    @property
    def has_ordered_key(self) -> bool:
        """Whether ranges of values can be closed: they are of one column, of a type with an order."""
        of = self.punctuated
        return len(of) == 1 and has_order(self.schema.field(of[0]).type) and not any(self.null_safe)

    @property
    def in_order(self) -> bool:
        """Whether no row may be older than the newest one: punctuations then hold from their own time on."""
        return self.delay == 0 and self.late_share is None

    @property
    def timeless(self) -> bool:
        """Whether no row is ever late, whatever its time: punctuations then hold from their batch on."""
        return self.delay >= FOREVER

    @cached_property
    def payload(self) -> tuple[str, ...]:
        """Columns that only this stream contributes to a result."""
        return tuple(name for name in self.schema.names if name not in self.key)


#: Kinds of joins without equality: one stream is divided among the shards, and it is the preserved one.
THETA_HOW = ("inner", "left", "semi", "anti")

#: Kinds of joins, and the streams whose single rows are results: when unmatched, or (semi) at their first match.
HOW: dict[str, tuple[int, ...]] = {
    "inner": (),
    "left": (0,),
    "right": (1,),
    "full": (0, 1),
    "semi": (0,),
    "anti": (0,),
}
#: Further names that Spark has for them, in small letters and without underscores.
SPARK_HOW = {
    **dict.fromkeys(("outer", "fullouter"), "full"),
    "leftouter": "left",
    "rightouter": "right",
    "leftsemi": "semi",
    "leftanti": "anti",
}


def join_kind(how: str) -> str:
    """The kind of join that `how` names, as Spark reads it: "LEFT_OUTER" and "leftouter" are "left"."""
    name = how.lower().replace("_", "")
    kind = SPARK_HOW.get(name, name)
    if kind in HOW:
        return kind
    hint = f"Spark's names go as well: {', '.join(SPARK_HOW)}."
    if name == "cross":
        hint = "a cross join pairs all rows; name equal columns with `on`, or use df.crossJoin with a static table."
    raise QueryError(f'`how` is "{how}"; a join is one of {", ".join(HOW)}.', hint=hint)


def columns_of(streams: Sequence[StreamSpec]) -> pa.Schema:
    """Columns of a combination of tuples of these streams: the key (that of the first), then each one's payload."""
    fields = [streams[0].schema.field(k) for k in streams[0].key]
    return pa.schema(fields + [s.schema.field(c) for s in streams for c in s.payload])


@dataclass(frozen=True)
class JoinQuery:
    """Streams that meet on a common key. The result's columns are the key, then each stream's payload.

    `where` must hold for a combination to be one: a row all of whose combinations fail it is unmatched. A join whose
    key has no columns is one without equality: `where` alone decides. Rows of its stream number `spread` are divided
    among the shards, those of all others are copied to each. With `asof` a row of the first stream has at most one
    partner, the nearest in time.
    """

    streams: tuple[StreamSpec, ...]
    how: str = "inner"
    where: Predicate | None = None
    spread: int = 0
    asof: AsOf | None = None

    def __post_init__(self) -> None:
        if len(self.streams) < 2:
            raise QueryError(f"a join needs at least two streams; {len(self.streams)} given.")
        assert self.how in HOW, "`join_kind` has read it"
        if len(self.streams) > 2 and self.how != "inner":
            raise QueryError(
                f'`how` is "{self.how}" and there are {len(self.streams)} streams; which rows are unmatched is '
                "defined for two.",
                hint='take how="inner", or join two of them first and the result with the next (`as_stream`).',
            )
        if self.asof is not None:
            self._check_asof(self.asof)
        first = self.streams[0]
        if self.is_theta and self.how not in THETA_HOW:
            raise QueryError(
                f'`how` is "{self.how}", and the join has no equality; rows of the second stream are copied to every '
                "shard, and none of them knows whether a row has a match in another.",
                hint='exchange the streams and take how="left".'
                if self.how == "right"
                else 'take how="left" of each stream with the other.',
            )
        for other in self.streams[1:]:
            if len(other.key) != len(first.key):
                raise ColumnError(
                    f"stream `{other.name}` joins on {len(other.key)} columns, `{first.name}` on {len(first.key)}."
                )
            assert other.null_safe == first.null_safe, "an equality is null-safe for all its streams"
            for mine, theirs in zip(first.key, other.key, strict=True):
                a, b = first.schema.field(mine).type, other.schema.field(theirs).type
                if a != b:
                    raise ColumnError(
                        f"key `{mine}` of stream `{first.name}` is {a}, key `{theirs}` of `{other.name}` is {b}; "
                        "only values of one type can be compared for equality.",
                        hint="cast one of them before the join.",
                    )
        if any(isinstance(s.window, Interval) for s in self.streams):
            self._check_interval()
        if any(isinstance(s.window, Tumbling) for s in self.streams):
            assert len({s.window for s in self.streams}) == 1, "all streams have the pieces of time"
        taken: dict[str, str] = dict.fromkeys(first.key, first.name)
        for stream in self.streams:
            for column in stream.payload:
                if column in taken:
                    raise ColumnError(
                        f"column `{column}` stands in stream `{stream.name}` and in `{taken[column]}`; "
                        "the result could not tell them apart.",
                        hint=f'rename one: df.withColumnRenamed("{column}", "{stream.name}_{column}").',
                    )
                taken[column] = stream.name

    def _check_interval(self) -> None:
        if len(self.streams) > 2:
            raise QueryError(
                f"`between` bounds the times of two streams; {len(self.streams)} given.",
                hint="join two of them first, and the result with the next (`as_stream`), or give the streams windows.",
            )
        a, b = (s.window for s in self.streams)
        assert isinstance(a, Interval), "both streams have the interval"
        assert b == a.mirrored, "an interval is the same for both streams"

    @property
    def is_theta(self) -> bool:
        """Whether the join is one without equality."""
        return not self.streams[0].key

    def _check_asof(self, asof: AsOf) -> None:
        if len(self.streams) != 2:
            raise QueryError(f"an as-of join is one of two streams; {len(self.streams)} given.")
        if self.how not in ("left", "inner"):
            raise QueryError(
                f'`how` is "{self.how}"; an as-of join is "left" or "inner": each row of the first stream with its '
                "answer.",
                hint="exchange the streams to keep the rows of the other one.",
            )
        if self.where is not None:
            raise QueryError(
                "`where` is given to an as-of join; a condition would make another row the nearest.",
                hint="filter the DataFrames before the join, or its results.",
            )
        for stream in self.streams:
            if not isinstance(stream.window, Unbounded):
                raise WindowError(
                    f"stream `{stream.name}` has a window; in an as-of join `tolerance` bounds the distance in time.",
                    hint="leave `window` out, and give the join a `tolerance`.",
                )
        for column in asof.order_by:
            self.streams[1].check_order_by(column)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a result; semi and anti joins give the first stream's alone."""
        return columns_of(self.streams if self.pairs else self.streams[:1])

    @property
    def pairs(self) -> bool:
        """Whether results are combinations, not single rows."""
        return self.how not in ("semi", "anti")

    @property
    def preserved(self) -> tuple[int, ...]:
        """Streams of which it matters whether a row has matched."""
        return HOW[self.how]

    def called(self, i: int) -> dict[str, str]:
        """Columns of stream i by their names in a combination, where the key is called as in the first stream."""
        own = self.streams[i]
        return dict(zip(self.streams[0].key, own.key, strict=True)) | {c: c for c in own.payload}

    def own_condition(self, i: int) -> Predicate | None:
        """The part of `where` that a tuple of stream i decides by itself: without it the tuple matches nothing."""
        return None if self.where is None else self.where.decided_by(self.called(i).keys())

    def pads(self, i: int) -> bool:
        """Whether a row of stream i that leaves unmatched is a result."""
        return i in self.preserved and self.how != "semi"

    def describe(self) -> dict[str, object]:
        """Everything that a stored state depends on, as plain values: two queries may share a state iff equal."""
        return {
            "how": self.how,
            **({"where": self.where.text} if self.where is not None else {}),
            **({"spread": self.spread} if self.is_theta else {}),
            **({"asof": self.asof.describe()} if self.asof is not None else {}),
            "streams": [
                {
                    "name": s.name,
                    "columns": {f.name: str(f.type) for f in s.schema},
                    "time": s.time,
                    "key": list(s.key),
                    "window": s.window.length if isinstance(s.window, TimeWindow) else None,
                    "closed": s.window.closed if isinstance(s.window, TimeWindow) else None,
                    "delay": s.delay,
                    **({"interval": asdict(s.window)} if isinstance(s.window, Interval) else {}),
                    **({"tumbling": s.window.length} if isinstance(s.window, Tumbling) else {}),
                    **(
                        {"rows": s.window.rows, "per_key": s.window.per_key} if isinstance(s.window, RowsWindow) else {}
                    ),
                    **({"upstream_shards": s.upstream_shards} if s.upstream_shards else {}),
                    **({"order_by": s.order_by} if s.order_by is not None else {}),
                    **({"idle_after": s.idle_after} if s.idle_after is not None else {}),
                    **({"late_share": s.late_share} if s.late_share is not None else {}),
                    **({"idle_clock": s.idle_clock} if s.idle_clock is not None else {}),
                    **({"null_safe": list(s.null_safe)} if any(s.null_safe) else {}),
                    **({"compared": s.compared} if s.compared is not None else {}),
                    **({"constraints": [describe(c) for c in s.constraints]} if s.constraints else {}),
                }
                for s in self.streams
            ],
        }

    def digest(self) -> str:
        """A short name for `describe()`."""
        return digest_of(self.describe())


def digest_of(description: dict[str, object]) -> str:
    """A short name for the description of a query."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]
