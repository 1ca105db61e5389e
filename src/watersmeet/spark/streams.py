"""`wm.stream`: a DataFrame with its time, window and delay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, TimestampNTZType, TimestampType

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.spark.punctuations import Known, Punctuation, Sign, promises

_numbers = count(1)

AUTO = "auto"
#: The share of rows that may come late where the delay is measured and nobody says how many.
LATE_SHARE = 0.001


@dataclass(frozen=True)
class Upstream:
    """The join whose output a stream is: its key, and the ids of its shards."""

    key: tuple[str, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Stream:
    """One input of a join. Made by `stream`, read by `join`."""

    df: DataFrame
    name: str
    time: str
    window: int | RowsWindow | None  # microseconds, or so many rows
    delay: int
    signs: tuple[Sign, ...] = ()
    known: tuple[Known, ...] = ()
    hidden: tuple[str, ...] = ()  # columns that are not the tuples'
    upstream: Upstream | None = None
    order_by: str | None = None
    idle_after: int | None = None
    late_share: float | None = None  # the delay is measured

    def spec(self, key: tuple[str, ...], *, closed: bool) -> StreamSpec:
        """What the engine needs to know of this stream when it is joined on `key`."""
        window: Window
        if isinstance(self.window, RowsWindow):
            window = self.window
        else:
            window = Unbounded() if self.window is None else TimeWindow(self.window, closed)
        schema = pa.schema([pa.field(f.name, self._arrow_type(f.name, f.dataType)) for f in self.columns])
        about = promises(self.known, key, self.name)
        tellers = 0 if self.upstream is None else len(self.upstream.ids)
        spec = StreamSpec(self.name, schema, self.time, key, window, self.delay, about, tellers)
        if any(s.kind == "range" for s in self.signs) and self.upstream is None and not spec.has_ordered_key:
            kinds = ", ".join(str(schema.field(k).type) for k in key)
            raise ColumnError(
                f"`punctuation` of stream `{self.name}` closes ranges of {', '.join(key)} ({kinds}); a range is one of "
                "values of one column, of a type with an order.",
                hint='close single values, wm.when("…", on=…), or join on one column of numbers, texts or times.',
            )
        return replace(spec, order_by=self.order_by, idle_after=self.idle_after, late_share=self.late_share)

    @property
    def columns(self) -> list[StructField]:
        return [f for f in self.df.schema if f.name not in self.hidden]

    def _arrow_type(self, column: str, kind: DataType) -> pa.DataType:
        try:
            return to_arrow_type(kind, timezone="UTC")
        except PySparkTypeError as error:
            raise ColumnError(
                f"column `{column}` of stream `{self.name}` is {kind.simpleString()}, "
                "which PySpark does not hand to Python.",
                hint=f'leave it out with df.drop("{column}"), or cast it (an interval of months to int, say).',
            ) from error

    @property
    def given_window(self) -> Window | None:
        """The window that the stream was given, if it was."""
        if self.window is None or isinstance(self.window, RowsWindow):
            return self.window
        return TimeWindow(self.window)

    def with_window(self, window: Window | None) -> Stream:
        """The same stream with another window, or none."""
        if window is None or isinstance(window, RowsWindow):
            return replace(self, window=window)
        return replace(self, window=window.length if isinstance(window, TimeWindow) else None)

    def with_df(self, df: DataFrame) -> Stream:
        return replace(self, df=df)


def stream(
    df: DataFrame,
    *,
    time: str,
    window: str | RowsWindow | None = None,
    delay: str = "0 seconds",
    late_share: float | None = None,
    idle_after: str | None = None,
    order_by: str | None = None,
    punctuation: Punctuation | Sequence[Punctuation] | None = None,
    name: str | None = None,
) -> Stream:
    """A stream to be joined: rows of `df`, streaming or static, with event times in column `time`.

    A tuple is in the `window` at an instant if it is at most that much older; with `wm.rows(n)` if it is one of the
    last n. Tuples may come up to `delay` behind
    the newest one seen; those that come later still are not joined, but counted and handed to the late output. With
    delay="auto" the delay follows the measured disorder, so that about `late_share` of the rows (0.001 if it is not
    given) come late. What was measured outlives a restart; until it says something, no row is late.

    With `idle_after` a stream that falls silent stops holding the others back. Time is event time here, too, so that a
    batch that is run again comes to the same: while nothing comes (no row, punctuation or heartbeat), and the progress
    of the furthest other stream that has not ended has grown by more than `idle_after` since the last batch in which
    something came (since its own first progress, if nothing ever did), the stream's progress is taken to be that one's
    less `idle_after`. Progress never goes back: what comes later and is older is late, as ever. Batches in which a
    stream was idle are counted (`idle`).

    `order_by` is a column that breaks ties of event time, ascending, NULLs first, before the bytes of the row do: of
    equal values of a `wm.unique` column the first stays.

    `punctuation` says where the stream's promises come from ("no more bids for auction 180"): `wm.unique`,
    `wm.clustered`, `wm.ordered`, `wm.when`, `wm.heartbeat`, `wm.end`, or several of these in a list. They only ever
    shorten what the window would keep. `name` stands in messages, plans and the late output (default: stream1, …).
    """
    name = name or f"stream{next(_numbers)}"
    _refuse_names(df, name)
    _require_column(df, time, "time", name)
    kind = df.schema[time].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise ColumnError(
            f"`time` of stream `{name}` is column `{time}` of type {kind.simpleString()}; "
            "an event time is a timestamp.",
            hint=f'convert it first: df.withColumn("{time}", F.to_timestamp("{time}")) or F.timestamp_seconds(…).',
        )
    if late_share is not None and delay != AUTO:
        raise WindowError(
            f'`late_share` of stream `{name}` is given, and `delay` is "{delay}"; a delay that is given holds.',
            hint='say delay="auto" to have it measured, or leave `late_share` out.',
        )
    if delay == AUTO and late_share is None:
        late_share = LATE_SHARE
    lag = 0 if delay == AUTO else durations.parse(delay, "delay")
    if lag < 0:
        raise WindowError(
            f'`delay` of stream `{name}` is "{delay}"; a tuple cannot come before it happened.',
            hint='use "0 seconds" for a stream that is in order.',
        )
    patience = None if idle_after is None else durations.parse(idle_after, "idle_after")
    if order_by is not None:
        _require_column(df, order_by, "order_by", name)
    sources = () if punctuation is None else (punctuation,) if isinstance(punctuation, Known | Sign) else punctuation
    for source in sources:
        if not isinstance(source, Known | Sign):
            raise QueryError(
                f"`punctuation` of stream `{name}` is a {type(source).__name__}.",
                hint='use wm.unique("…"), wm.clustered("…"), wm.ordered("…"), wm.when("…", on="…"), or a list of them.',
            )
        if isinstance(source, Sign) and source.df is not None:
            _require_column(source.df, time, "time", f"{name}, its punctuations")
        if isinstance(source, Known):
            _require_column(df, source.column, "punctuation", name)
    signs = tuple(s for s in sources if isinstance(s, Sign))
    known = tuple(s for s in sources if isinstance(s, Known))
    made = Stream(df, name, time, parse_window(window), lag, signs, known, order_by=order_by, idle_after=patience)
    return replace(made, late_share=late_share)


def rows(n: int, per_key: bool = False) -> RowsWindow:
    """A window of rows, for `window=` of `wm.stream`: the last n rows of the stream, or of the row's own join key.

    Rows without a key count, too, where the whole stream is counted; that needs all of them in one place, so the join
    has one shard then. Ties of event time are broken by `order_by`, then by the bytes of the row. Which rows are the
    last n at an instant is known when the stream has come past it: results wait until then.
    """
    return RowsWindow(n, per_key)


def parse_window(window: str | RowsWindow | None) -> int | RowsWindow | None:
    """A window as the user gives it: microseconds, or rows."""
    if window is None or isinstance(window, RowsWindow):
        return window
    if not isinstance(window, str):
        raise WindowError(
            f"`window` is {window!r}; it is a duration, wm.rows(n), or None.",
            hint=f'"10 seconds", or wm.rows({window}) for so many rows.',
        )
    return TimeWindow(durations.parse(window, "window")).length  # which says what is wrong with a negative one


def _refuse_names(df: DataFrame, stream: str) -> None:
    for n, column in enumerate(df.columns):
        if column in df.columns[:n]:
            raise ColumnError(
                f"stream `{stream}` has two columns called `{column}`; nothing could tell them apart.",
                hint="leave one out, or rename it, before the stream is made.",
            )
        if "." in column or "`" in column:
            raise ColumnError(
                f"column `{column}` of stream `{stream}` has a dot or a backtick in its name; PySpark does not hand "
                "such columns to Python.",
                hint=f'rename it: df.withColumnRenamed("{column}", "{column.replace(".", "_").replace("`", "_")}").',
            )


def _require_column(df: DataFrame, column: str, argument: str, name: str) -> None:
    if column not in df.columns:
        from difflib import get_close_matches

        near = get_close_matches(column, df.columns, 1)
        raise ColumnError(
            f"`{argument}` names column `{column}`, which stream `{name}` does not have.",
            hint=f"did you mean `{near[0]}`?" if near else f"its columns are {', '.join(df.columns)}.",
        )


def aligned(streams: tuple[Stream, ...], keys: Sequence[tuple[str, ...]]) -> tuple[Stream, ...]:
    """The streams with key columns of one type each: integers and floats are widened, the rest must be equal."""
    for s, key in zip(streams, keys, strict=True):
        for column in key:
            _require_column(s.df, column, "on", s.name)
            _refuse_incomparable(s, column)
    out = list(streams)
    for place in zip(*keys, strict=True):
        kinds = [s.df.schema[column].dataType for s, column in zip(out, place, strict=True)]
        if len(set(kinds)) > 1:
            target = _common(kinds, place, out)
            out = [s.with_df(s.df.withColumn(c, s.df[c].cast(target))) for s, c in zip(out, place, strict=True)]
    return tuple(out)


def _common(kinds: list[DataType], columns: tuple[str, ...], streams: list[Stream]) -> DataType:
    names = {k.simpleString() for k in kinds}
    for family in (("tinyint", "smallint", "int", "bigint"), ("float", "double")):
        if names <= set(family):
            widest = max(names, key=family.index)
            return next(k for k in kinds if k.simpleString() == widest)
    by_stream = ", ".join(f"{k.simpleString()} in `{s.name}`" for k, s in zip(kinds, streams, strict=True))
    column = columns[0]
    raise ColumnError(
        f"`on` column `{column}` is {by_stream}; values of these types cannot be compared as they are.",
        hint=f'cast one side, e.g. df.withColumn("{column}", F.col("{column}").cast("bigint")).',
    )


def _refuse_incomparable(s: Stream, column: str) -> None:
    kind = s.df.schema[column].dataType
    text = kind.simpleString()
    if isinstance(kind, StringType) and getattr(kind, "collation", "UTF8_BINARY") != "UTF8_BINARY":
        raise ColumnError(
            f"`on` column `{column}` of stream `{s.name}` has collation {kind.collation}; "
            "keys are compared byte by byte.",
            hint=f'collate(df.{column}, "UTF8_BINARY"), or join on lower(df.{column}).',
        )
    if any(word in text for word in ("map<", "variant", "geometry", "geography")) or text == "interval":
        raise ColumnError(
            f"`on` column `{column}` of stream `{s.name}` is {text}; "
            "values of that type cannot be compared for equality.",
            hint="join on a column of a comparable type.",
        )


def same_kind(streams: tuple[Stream, ...]) -> bool:
    """True if all are streaming, False if all are static; a mixture is refused."""
    kinds = {s.df.isStreaming for s in streams}
    if len(kinds) > 1:
        static = ", ".join(f"`{s.name}`" for s in streams if not s.df.isStreaming)
        raise QueryError(
            f"{static} is a static DataFrame and others are streaming; a static side has no event-time progress.",
            hint="join a static table with Spark's own df.join (it needs no state), or read it as a stream.",
        )
    return kinds.pop()
