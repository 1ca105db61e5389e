"""What is asked for: streams, their windows and delays, and how they are joined."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model.punctuations import Promise
from watersmeet.model.windows import RowsWindow, TimeWindow, Window


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """One input: its columns, which of them are time and key, its window and its delay (microseconds)."""

    name: str
    schema: pa.Schema
    time: str
    key: tuple[str, ...]
    window: Window
    delay: int = 0
    promises: tuple[Promise, ...] = ()
    tellers: int = 0  # shards of the join whose output this is: progress is then told by them, not seen
    order_by: str | None = None  # the column that breaks ties of times where rows are counted

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

        if self.order_by is not None and self.order_by not in self.schema.names:
            raise ColumnError(
                f"stream `{self.name}` has no column `{self.order_by}` to be ordered by.",
                hint=f"it has {', '.join(self.schema.names)}.",
            )
        if self.order_by is not None and pt.is_nested(self.schema.field(self.order_by).type):
            raise ColumnError(
                f"`order_by` of stream `{self.name}` is column `{self.order_by}` of type "
                f"{self.schema.field(self.order_by).type}; only single values have an order.",
                hint="take a number, a text or a time.",
            )

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


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """Streams that meet on a common key. The result's columns are the key, then each stream's payload."""

    streams: tuple[StreamSpec, ...]
    how: str = "inner"

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
        first = self.streams[0]
        fields = [first.schema.field(k) for k in first.key]
        fields += [s.schema.field(c) for s in (self.streams if self.pairs else self.streams[:1]) for c in s.payload]
        return pa.schema(fields)

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
                    **({"order_by": s.order_by} if s.order_by is not None else {}),
                    **({"tellers": s.tellers} if s.tellers else {}),
                    **({"promises": [repr(p) for p in s.promises]} if s.promises else {}),
                }
                for s in self.streams
            ],
        }

    def digest(self) -> str:
        """A short name for `describe()`."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:32]
