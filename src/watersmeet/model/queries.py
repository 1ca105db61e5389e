"""What is asked for: streams, their windows and delays, and how they are joined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model.predicates import Predicate
from watersmeet.model.punctuations import Ordered, Promise
from watersmeet.model.windows import FOREVER, RowsWindow, TimeWindow, Window

#: What a distance between keys of a type is.
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


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One input: its columns, which of them are time and key, its window and its delay (microseconds).

    `order_by` breaks ties between tuples of one event time, before the bytes of the row do. A stream that has shown
    nothing while the others went on by more than `idle_after` counts as idle: its progress is then taken to be theirs
    (that of the one that is furthest) less `idle_after`. With `late_share` the delay is measured, so that about that
    share of the rows comes late; `delay` is 0 then.
    """

    name: str
    schema: pa.Schema
    time: str
    key: tuple[str, ...]
    window: Window
    delay: int = 0
    promises: tuple[Promise, ...] = ()
    tellers: int = 0  # shards of the join whose output this is: progress is then told by them, not seen
    order_by: str | None = None  # the column that breaks ties of times
    idle_after: int | None = None  # microseconds of the other streams' time in which it shows nothing
    late_share: float | None = None  # the share of rows that may be late

    def __post_init__(self) -> None:
        for column in (self.time, *self.key):
            if column not in self.schema.names:
                raise ColumnError(
                    f"stream `{self.name}` has no column `{column}`.", hint=f"it has {', '.join(self.schema.names)}."
                )
        if not self.key:
            raise ColumnError(f"stream `{self.name}` has no key column; a join needs at least one.")
        kind = self.schema.field(self.time).type
        if kind != pa.int64() and not (pt.is_timestamp(kind) and kind.unit == "us"):
            raise ColumnError(
                f"`time` of stream `{self.name}` is column `{self.time}` of type {kind}; "
                "an event time is a timestamp in microseconds, or a number of them.",
                hint=f"cast `{self.time}` to timestamp[us].",
            )
        if self.delay < 0:
            raise WindowError(
                f"`delay` of stream `{self.name}` is {self.delay} µs; a tuple cannot come before it happened.",
                hint='use "0 seconds" for a stream that is in order.',
            )
        if self.idle_after is not None and self.idle_after <= 0:
            raise WindowError(
                f"`idle_after` of stream `{self.name}` is {self.idle_after} µs; every stream is silent for a moment.",
                hint="give a time in which the stream would certainly have shown something, or leave it out.",
            )
        if self.late_share is not None and not 0 < self.late_share < 1:
            raise WindowError(
                f"`late_share` of stream `{self.name}` is {self.late_share!r}; it is the share of rows that may come "
                "late, between 0 and 1.",
                hint="use a small number such as 0.001; a `delay` that is given holds for all rows.",
            )
        if self.order_by is not None:
            self._check_order_by(self.order_by)
        for promise in self.promises:
            if isinstance(promise, Ordered):
                self._check_ordered(promise)

    def _check_order_by(self, column: str) -> None:
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

    def _check_ordered(self, promise: Ordered) -> None:
        if not self.has_ordered_key:
            kinds = ", ".join(str(self.schema.field(k).type) for k in self.key)
            raise ColumnError(
                f"`ordered` of stream `{self.name}` is about {', '.join(self.key)} ({kinds}); "
                "only one column of a type with an order can ascend.",
                hint="join on one column of numbers, texts or times, or leave the promise out.",
            )
        kind, slack = self.schema.field(self.key[0]).type, promise.slack
        distances = next((of for test, of in _SLACK if test(kind)), ())
        if slack != 0 and (type(slack) not in distances or slack < type(slack)(0)):
            raise QueryError(
                f"`slack` of `ordered` on stream `{self.name}` is {slack!r}, and its key is {kind}; a slack is a "
                "distance between values, not negative.",
                hint="a number for numbers, a timedelta for dates and timestamps; texts and bytes know none.",
            )

    @property
    def has_ordered_key(self) -> bool:
        """Whether ranges of keys can be spoken of: the key is one column of a type with an order."""
        return len(self.key) == 1 and has_order(self.schema.field(self.key[0]).type)

    @property
    def in_order(self) -> bool:
        """Whether no row may come behind the newest: a promise holds from its own time on, then."""
        return self.delay == 0 and self.late_share is None

    @property
    def timeless(self) -> bool:
        """Whether no row is ever late, so that time orders nothing: a promise holds from its batch on, then."""
        return self.delay >= FOREVER

    @property
    def payload(self) -> tuple[str, ...]:
        """Columns that only this stream contributes to a result."""
        return tuple(name for name in self.schema.names if name not in self.key)


#: Kinds of joins, and the streams whose rows are heard of one by one: unmatched, or (semi) at their first match.
HOW: dict[str, tuple[int, ...]] = {
    "inner": (),
    "left": (0,),
    "right": (1,),
    "full": (0, 1),
    "semi": (0,),
    "anti": (0,),
}


def columns_of(streams: Sequence[StreamSpec]) -> pa.Schema:
    """Columns of a combination of tuples of these streams: the key (that of the first), then each one's payload."""
    fields = [streams[0].schema.field(k) for k in streams[0].key]
    return pa.schema(fields + [s.schema.field(c) for s in streams for c in s.payload])


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """Streams that meet on a common key. The result's columns are the key, then each stream's payload.

    `where` must hold for a combination to be one: a row all of whose combinations fail it is unmatched.
    """

    streams: tuple[StreamSpec, ...]
    how: str = "inner"
    where: Predicate | None = None

    def __post_init__(self) -> None:
        if len(self.streams) < 2:
            raise QueryError(f"a join needs at least two streams; {len(self.streams)} given.")
        if self.how not in HOW:
            raise QueryError(f'`how` is "{self.how}"; a join is one of {", ".join(HOW)}.')
        if len(self.streams) > 2 and self.how != "inner":
            raise QueryError(
                f'`how` is "{self.how}" and there are {len(self.streams)} streams; which rows are unmatched is '
                "defined for two.",
                hint='take how="inner", or join two of them first and the result with the next (`as_stream`).',
            )
        first = self.streams[0]
        for other in self.streams[1:]:
            if len(other.key) != len(first.key):
                raise ColumnError(
                    f"stream `{other.name}` joins on {len(other.key)} columns, `{first.name}` on {len(first.key)}."
                )
            for mine, theirs in zip(first.key, other.key, strict=True):
                a, b = first.schema.field(mine).type, other.schema.field(theirs).type
                if a != b:
                    raise ColumnError(
                        f"key `{mine}` of stream `{first.name}` is {a}, key `{theirs}` of `{other.name}` is {b}; "
                        "only values of one type can be compared for equality.",
                        hint="cast one of them before the join.",
                    )
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

    @property
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

    def pads(self, i: int) -> bool:
        """Whether a row of stream i that leaves unmatched is a result."""
        return i in self.preserved and self.how != "semi"

    def describe(self) -> dict[str, object]:
        """Everything that a stored state depends on, as plain values: two queries may share a state iff equal."""
        return {
            "how": self.how,
            **({"where": self.where.text} if self.where is not None else {}),
            "streams": [
                {
                    "name": s.name,
                    "columns": {f.name: str(f.type) for f in s.schema},
                    "time": s.time,
                    "key": list(s.key),
                    "window": s.window.length if isinstance(s.window, TimeWindow) else None,
                    "closed": s.window.closed if isinstance(s.window, TimeWindow) else None,
                    "delay": s.delay,
                    **(
                        {"rows": s.window.rows, "per key": s.window.per_key} if isinstance(s.window, RowsWindow) else {}
                    ),
                    **({"tellers": s.tellers} if s.tellers else {}),
                    **({"order_by": s.order_by} if s.order_by is not None else {}),
                    **({"idle_after": s.idle_after} if s.idle_after is not None else {}),
                    **({"late_share": s.late_share} if s.late_share is not None else {}),
                    **({"promises": [repr(p) for p in s.promises]} if s.promises else {}),
                }
                for s in self.streams
            ],
        }

    def digest(self) -> str:
        """A short name for `describe()`."""
        return digest_of(self.describe())


def digest_of(description: dict[str, object]) -> str:
    """A short name for what a query says of itself."""
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]
