"""`joined.as_stream()`: the output of a join as the input of a further one, with its punctuations.

Results are tuples with the event time of their newest part. A finished key is a punctuation; it takes effect after the
rows of its batch. A range that a shard has finished is about that shard's keys, so it goes to the same shard of the
further join, and only where that joins on the same key. The watermark comes from heartbeats alone: the lowest among all
shards of a batch. Late and violating rows pass through.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from watersmeet.errors import ColumnError
from watersmeet.model.windows import RowsWindow
from watersmeet.spark.planning.arguments import require_text
from watersmeet.spark.progress.counters import METRICS
from watersmeet.spark.punctuations import PunctuationRule
from watersmeet.spark.runtime import output_columns as operators
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, PUNCTUATION, RESULT, STATS
from watersmeet.spark.streams import Change, Stream, Upstream

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined

TIME = "event_time"


def as_stream(joined: Joined, name: str | None, window: int | RowsWindow | None, time: str = TIME) -> Stream:
    """See `Joined.as_stream`; a duration is in microseconds."""
    if name is not None:
        require_text(name, "name", "what the stream is called")
    query = joined.query
    taken = next((name for name in query.schema.names if name.lower() == time), None)
    inherited = any(s.upstream is not None and s.time == taken for s in joined.streams)  # becomes that of the result
    if taken is not None and not inherited:
        raise ColumnError(
            f"`as_stream` adds the column `{time}`, and the results have one already.",
            hint=f'rename it before the join: df.withColumnRenamed("{taken}", "…").',
        )
    own = "_".join(s.name for s in joined.streams)
    rows = joined._run(f"{METRICS}_{name or own}").where(F.col(KIND) != STATS)
    timed = query.streams if query.asof is None else query.streams[:1]  # the time of an as-of result is its left row's
    times = [operators.quoted(s.time) for s in timed if s.time in query.schema.names]
    now = F.greatest(*times) if len(times) > 1 else times[0]
    kept = [operators.quoted(c) for c in rows.columns if c != time]
    df = rows.select(*kept, F.when(F.col(KIND) == RESULT, now).alias(time))
    again = partial(_again, joined, name, window, time)
    upstream = Upstream(query.streams[0].key, joined.ids, own, joined._operators, joined.algorithms, again)
    hidden = (KIND, DETAIL, *joined.hidden)
    about: dict[str, Any] = {"hidden": hidden, "upstream": upstream, "ends": joined.streaming and joined.ended}
    return Stream(df, name or None, time, window, 0, _rules(joined), **about)


def _again(joined: Joined, name: str | None, window: int | RowsWindow | None, time: str, change: Change) -> Stream:
    assert joined.again is not None, "made by `join`"
    return as_stream(joined.again(change), name, window, time)


def _rules(joined: Joined) -> tuple[PunctuationRule, ...]:
    first = joined.query.streams[0]
    fields = {f.name: f.dataType for f in joined._columns}
    kinds = [fields[k] for k in first.key]
    out = []
    if first.key and all(map(_is_readable, kinds)):
        parts = tuple(_value(f"key[{n}]", kind) for n, kind in enumerate(kinds))
        out.append(PunctuationRule("value", _is_punctuation_with("key"), parts, about=first.key))
    if first.key and first.has_ordered_key and _is_readable(kinds[0]):
        low, high, below = (_value(f"range.{end}", kinds[0]) for end in ("low", "high", "below"))
        until = _field("range.below").isNotNull()
        out.append(PunctuationRule("range", _is_punctuation_with("range") & ~until, (low, high), about=first.key))
        out.append(
            PunctuationRule(
                "range", _is_punctuation_with("range") & until, (low, below), high_closed=False, about=first.key
            )
        )
    beat = _field("heartbeat").cast("bigint")
    return (
        *out,
        PunctuationRule("heartbeat", _is_punctuation_with("heartbeat"), (beat,)),
        PunctuationRule("end", _is_punctuation_with("end")),
    )


def _is_readable(kind: DataType) -> bool:
    """Whether Spark reads values of a type from JSON unchanged. Keys of other types are not closed, which is safe."""
    if isinstance(kind, ArrayType):
        return _is_readable(kind.elementType)
    if isinstance(kind, StructType):
        return all(_is_readable(f.dataType) for f in kind.fields)
    whole = BinaryType | BooleanType | DateType | NumericType | StringType | TimestampType | TimestampNTZType
    return isinstance(kind, whole)


def _value(path: str, kind: DataType) -> Column:
    """A value of the key as a punctuation has it: lists and structs as JSON, bytes in base64."""
    text = _field(path)
    if isinstance(kind, ArrayType | StructType):
        return F.from_json(text, kind)
    return F.unbase64(text) if isinstance(kind, BinaryType) else text


def _field(path: str) -> Column:
    """A field of a punctuation, as text; NULL if the punctuation does not have it."""
    return F.get_json_object(DETAIL, f"$.row.{path}")


def _is_punctuation_with(path: str) -> Column:
    return (F.col(KIND) == PUNCTUATION) & _field(path).isNotNull()
