"""`wm.stream`: a DataFrame with its time, window and delay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    NullType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.durations import Duration
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import (
    Interval,
    RowsWindow,
    TimeWindow,
    Tumbling,
    Unbounded,
    Window,
    format_length,
    format_window,
)
from watersmeet.spark.planning.arguments import NoDataFrame, kind_of, require_dataframe, require_text
from watersmeet.spark.planning.columns import RESERVED, expression, require
from watersmeet.spark.planning.columns import kind_of as type_of
from watersmeet.spark.planning.key_punctuations import checked
from watersmeet.spark.planning.spark_words import refuses_in_sentences
from watersmeet.spark.punctuations import ColumnConstraint, Expression, Punctuation, PunctuationRule
from watersmeet.spark.runtime.spark_versions import arrow_type

AUTO = "auto"
#: The share of rows that may come late where the delay is measured and no share is given.
LATE_SHARE = 0.001
#: Column that is true for rows that are tuples of the join; the others show the stream's times only.
TAKES_PART = RESERVED + "takes part"


#: What the state of an operator belongs to: the query, and the ids of its shards.
OperatorSpec = tuple[JoinQuery, tuple[int, ...]]


@dataclass(frozen=True)
class Upstream:
    """The join whose output a stream is: its key, the ids of its shards, its name, and all operators up to it."""

    key: tuple[str, ...]
    ids: tuple[int, ...]
    name: str = ""
    operators: tuple[OperatorSpec, ...] = ()
    algorithms: tuple[str, ...] = ()  # of these operators
    again: Callable[[Change], Stream] | None = field(default=None, repr=False, compare=False)  # over changed streams


@dataclass(frozen=True)
class Origin:
    """What a stream was made of: its DataFrame, those of punctuations alone, and how it is made of others."""

    df: DataFrame
    punctuations: tuple[DataFrame, ...]
    make: Callable[[DataFrame, Sequence[DataFrame]], Stream]


@dataclass(frozen=True)
class Stream(NoDataFrame):
    """One input of a join: a DataFrame with its event times, its window, its delay and its punctuations.

    `stream` makes it and `join` reads it. It can be looked at:

    >>> bids = spark.sql("SELECT 7 AS item, TIMESTAMP '2026-05-01 10:05:00' AS bid_at, 12.5 AS price")
    >>> wm.stream(bids, time="bid_at", window="1 hour", delay="5 seconds", punctuation=wm.unique("item"), name="bids")
    <Stream bids: time bid_at, window 1 hour, delay 5 seconds, punctuations unique>
    """

    df: DataFrame
    name: Any  # a text; None if it was given none and is not joined yet
    time: str
    window: int | RowsWindow | Interval | Tumbling | None  # microseconds, so many rows, or what the join gives
    delay: int
    rules: tuple[PunctuationRule, ...] = ()
    constraints: tuple[ColumnConstraint, ...] = ()
    hidden: tuple[str, ...] = ()  # columns of `df` that are not part of tuples
    upstream: Upstream | None = None
    order_by: str | None = None
    idle_after: int | None = None
    idle_clock: int | None = None
    late_share: float | None = None  # None: the delay is given, not measured
    compared: tuple[str, ...] = ()  # columns that are a key of the stream elsewhere in the same join
    cautions: tuple[str, ...] = ()  # texts about punctuations that the operator does not use
    ends: bool = False  # whether nothing follows the next batch
    takes_part: str | None = None  # the column that is true for rows that are joined; others move the watermark only
    until: int | None = None  # event time to which the next batch has all rows: it brings a heartbeat of it
    origin: Origin | None = field(default=None, repr=False, compare=False)

    def spec(self, key: tuple[str, ...], *, closed: bool, compared: str | None = None) -> StreamSpec:
        """The engine's specification of this stream, joined on `key`; without one, `compared` is what it closes."""
        window: Window
        if isinstance(self.window, RowsWindow | Interval | Tumbling):
            window = self.window
        else:
            window = Unbounded() if self.window is None else TimeWindow(self.window, closed)
        schema = pa.schema([pa.field(f.name, self._arrow_type(f.name, f.dataType)) for f in self.columns])
        about = tuple(k.constraint for k in self.constraints)
        upstream_shards = 0 if self.upstream is None else len(self.upstream.ids)
        fields = (self.name, schema, self.time, key, window, self.delay, about, upstream_shards)
        spec = StreamSpec(*fields, compared=compared)
        if any(s.kind == "range" for s in self.rules) and self.upstream is None and not spec.has_ordered_key:
            kinds = ", ".join(str(schema.field(k).type) for k in key)
            raise ColumnError(
                f"`punctuation` of stream `{self.name}` closes ranges of {', '.join(key)} ({kinds}); a range is one of "
                "values of one column, of a type with an order.",
                hint='close single values, wm.when("…", on=…), or join on one column of numbers, texts or times.',
            )
        spec = replace(spec, order_by=self.order_by, late_share=self.late_share)
        return replace(spec, idle_after=self.idle_after, idle_clock=self.idle_clock)

    def __repr__(self) -> str:
        delay = "measured" if self.late_share is not None else format_length(self.delay)
        facts = [f"time {self.time}", f"window {format_window(self.given_window or Unbounded())}", f"delay {delay}"]
        kinds = [*(type(k.constraint).__name__.lower() for k in self.constraints), *(rule.kind for rule in self.rules)]
        facts += [f"punctuations {', '.join(dict.fromkeys(kinds))}"] if kinds else []
        return f"<Stream {self.name}: {', '.join(facts)}>"

    @property
    def closes(self) -> bool:
        """Whether the stream has punctuations or constraints that close keys or end it."""
        return bool(self.constraints) or any(rule.kind not in ("heartbeat", "empty") for rule in self.rules)

    @property
    def time_type(self) -> DataType:
        return self.df.schema[self.time].dataType

    @property
    def columns(self) -> list[StructField]:
        return [f for f in self.df.schema if f.name not in self.hidden]

    def _arrow_type(self, column: str, kind: DataType) -> pa.DataType:
        try:
            return arrow_type(kind)
        except PySparkTypeError as error:
            raise ColumnError(
                f"column `{column}` of stream `{self.name}` is {kind.simpleString()}, "
                "which PySpark does not hand to Python.",
                hint=f'leave it out with df.drop("{column}"), or cast it (an interval of months to int, say).',
            ) from error

    @property
    def given_window(self) -> Window | None:
        """The window that the stream was given, or None."""
        if self.window is None or isinstance(self.window, RowsWindow | Interval | Tumbling):
            return self.window
        return TimeWindow(self.window)

    def with_window(self, window: Window | None) -> Stream:
        """The same stream with another window, or none."""
        if window is None or isinstance(window, RowsWindow):
            return replace(self, window=window)
        return replace(self, window=window.length if isinstance(window, TimeWindow) else None)

    def again(self, change: Change, name: str) -> Stream:
        """The stream as `change` makes it; of a stream of results, the streams that the join before it reads."""
        if self.upstream is None:
            return change(name, self)
        assert self.upstream.again is not None, "made by `as_stream`"
        return self.upstream.again(change)

    def with_df(self, df: DataFrame) -> Stream:
        return replace(self, df=df)


#: From a stream that a join was made of, and its name there, to the one that takes its place.
Change = Callable[[str, Stream], Stream]


def ends(name: str, s: Stream) -> Stream:
    """The same stream when nothing follows its next batch: a `Change`."""
    return replace(s, ends=True)


@refuses_in_sentences
def stream(
    df: DataFrame,
    *,
    time: str,
    window: Duration | RowsWindow | None = None,
    delay: Duration = "0 seconds",
    late_share: float | None = None,
    idle_after: Duration | None = None,
    idle_clock: Duration | None = None,
    filter: Expression | None = None,
    order_by: str | None = None,
    punctuation: Punctuation | Sequence[Punctuation] | None = None,
    name: str | None = None,
) -> Stream:
    """A stream to be joined: rows of `df`, streaming or static, with event times in column `time`.

    A tuple is in the `window` at an instant if it is at most that much older; with `wm.rows(n)` if it is one of the
    last n. Tuples may come up to `delay` behind the newest one seen (the threshold of `withWatermark`); those that come
    later still are not joined, but counted and handed to the late output. With delay="auto" the delay follows the
    measured disorder, so that about `late_share` of the rows (0.001 if it is not given) come late. What was
    measured outlives a restart; until a delay is measured, no row is late.

    With `idle_after` an idle stream stops holding the others back. Time is event time here, too, so that a batch that
    is run again gives the same: while nothing comes (no row, punctuation or heartbeat), and the highest watermark of
    the other streams that have not ended has grown by more than `idle_after` since the last batch in which something
    came (since its own first watermark, if nothing ever did), the stream's watermark is taken to be that one less
    `idle_after`. A watermark never goes back: rows that come later and are older are late, as ever. Batches in which a
    stream was idle are counted (`idle`).

    `idle_clock` is for streams whose event times follow the clock: while nothing comes for that long, by the timestamps
    that Spark writes into its offset log for each batch, the watermark follows the clock, at a distance of `idle_clock`
    and the delay. Batches run without rows then, so unmatched rows, groups and punctuations come out although all
    sources are silent. A batch that is run again has the same timestamp, and gives the same.

    Rows for which `filter` (SQL or a Column) is false or NULL are neither tuples nor punctuations. Their event times
    count for the watermark, so a stream of which few rows are kept does not hold the others back, as it does when the
    DataFrame itself is filtered.

    `order_by` is a column that breaks ties of event time, ascending, NULLs first, before the bytes of the row do: of
    equal values of a `wm.unique` column the first stays.

    `punctuation` is where the stream's punctuations ("no more bids for auction 180") and constraints come from:
    `wm.unique`, `wm.clustered`, `wm.ordered`, `wm.when`, `wm.heartbeat`, `wm.end`, or several of these in a list. They
    only ever shorten what the window would keep. `name` stands in messages, plans and the late output, and belongs to
    the query that a checkpoint is for; a stream without one is called by its number in the join: stream1, stream2, ….
    """
    arguments = {key: value for key, value in locals().items() if key not in ("df", "punctuation")}
    require_dataframe(df)
    if name is not None:
        require_text(name, "name", "what the stream is called")
    called = stream_label(name)
    _refuse_names(df, called)
    time = require(df, time, "time", called)
    kind = df.schema[time].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise ColumnError(
            f"`time` of {called} is column `{time}` of type {kind.simpleString()}; an event time is a timestamp.",
            hint=f'convert it first: df.withColumn("{time}", F.to_timestamp("{time}")) or F.timestamp_seconds(…).',
        )
    measured = isinstance(delay, str) and delay == AUTO
    if late_share is not None and not measured:
        raise WindowError(
            f'`late_share` of {called} is given, and `delay` is "{delay}"; a delay that is given holds.',
            hint='use delay="auto" to have it measured, or leave `late_share` out.',
        )
    if late_share is not None and (isinstance(late_share, bool) or not isinstance(late_share, int | float)):
        raise WindowError(
            f"`late_share` of {called} is {kind_of(late_share)}; it is the share of rows that may come late.",
            hint="use a small number such as 0.001.",
        )
    if measured and late_share is None:
        late_share = LATE_SHARE
    lag = 0 if measured else durations.parse(delay, "delay")
    if lag < 0:
        raise WindowError(
            f"`delay` of {called} is {durations.formatted(lag)}; a tuple cannot come before it happened.",
            hint='use "0 seconds" for a stream that is in order.',
        )
    patience = None if idle_after is None else durations.parse(idle_after, "idle_after")
    behind_clock = None if idle_clock is None else durations.parse(idle_clock, "idle_clock")
    if behind_clock is not None and isinstance(kind, TimestampNTZType):
        raise ColumnError(
            f"`idle_clock` of {called} is given, and its `time` `{time}` is timestamp_ntz; a clock shows instants, "
            "and only a time zone could compare them with local times.",
            hint=f'cast it where you know its zone, e.g. df.withColumn("{time}", F.col("{time}").cast("timestamp")).',
        )
    if order_by is not None:
        order_by = require(df, order_by, "order_by", called)
    single = () if punctuation is None else (punctuation,)
    sources = punctuation if isinstance(punctuation, list | tuple) else single
    for source in sources:
        if not isinstance(source, ColumnConstraint | PunctuationRule):
            raise QueryError(
                f"`punctuation` of {called} is {kind_of(source)}.",
                hint='use wm.unique("…"), wm.clustered("…"), wm.ordered("…"), wm.when("…", on="…"), or a list of them.',
            )
    rules = tuple(checked(s, df, time, called) for s in sources if isinstance(s, PunctuationRule))
    apart = tuple(rule.df for rule in rules if rule.df is not None)
    origin = Origin(df, apart, lambda other, others: stream(other, punctuation=_over(sources, others), **arguments))
    hidden: tuple[str, ...] = ()
    if filter is not None:
        df, rules = _filtered(df, filter, rules, called)
        hidden = (TAKES_PART,)
    for rule in rules:
        if rule.kind == "heartbeat":
            _check_heartbeat(rule, df, time, called)
    constraints = tuple(
        replace(s, column=require(df, s.column, "punctuation", called))
        for s in sources
        if isinstance(s, ColumnConstraint)
    )
    made = Stream(df, name, time, parse_window(window), lag, rules, constraints, hidden, order_by=order_by)
    made = replace(made, idle_after=patience, idle_clock=behind_clock, late_share=late_share, origin=origin)
    return made if filter is None else replace(made, takes_part=TAKES_PART)


def _over(sources: Sequence[Punctuation], dfs: Sequence[DataFrame]) -> list[Punctuation]:
    """The punctuations with these DataFrames in place of their own ones."""
    given, out = iter(dfs), []
    for s in sources:
        if isinstance(s, PunctuationRule) and s.df is not None:
            s = replace(s, df=next(given))
        out.append(s)
    return out


def rows(n: int, per_key: bool = False) -> RowsWindow:
    """A window of rows, for `window=` of `wm.stream`: the last n rows of the stream, or of the row's own join key.

    Rows without a key count, too, where the whole stream is counted; that needs all of them in one place, so the join
    has one shard then. `order_by` decides ties of event time, then the bytes of the row. Which rows are the
    last n at an instant is known when the stream has come past it: results wait until then.

    >>> rows(5, per_key=True)
    RowsWindow(rows=5, per_key=True)
    """
    return RowsWindow(n, per_key)


def parse_window(window: Duration | RowsWindow | None) -> int | RowsWindow | None:
    """A window as the user gives it: microseconds, or rows."""
    if window is None or isinstance(window, RowsWindow):
        return window
    if not isinstance(window, Duration):
        if not isinstance(window, int | float):
            raise durations.bare(window, "window")
        number = int(window)
        raise WindowError(
            f"`window` is {window!r}; it is a duration with its unit, wm.rows(n), or None.",
            hint=f'"{number} seconds" or timedelta(seconds={number}), or wm.rows({number}) for so many rows.',
        )
    if window == AUTO:
        raise WindowError(
            '`window` of a stream is "auto"; without windows all streams of a join go by the order of their keys.',
            hint='wm.join(…, window="auto"), and no `window` for its streams.',
        )
    return TimeWindow(durations.parse(window, "window")).length  # TimeWindow refuses a negative one


def stream_label(name: str | None) -> str:
    """A stream as messages name it."""
    return "the stream" if name is None else f"stream `{name}`"


def named(streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """The streams, each with a name: its own, that of the join it comes from, or one with its number."""
    taken = {s.name for s in streams}
    out = []
    for number, s in enumerate(streams, 1):
        name = s.name
        if name is None:
            name = s.upstream.name if s.upstream is not None else f"stream{number}"
            if name in taken and s.upstream is not None:
                name = f"{name}_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
        out.append(replace(s, name=name))
    return tuple(out)


def _refuse_names(df: DataFrame, stream: str) -> None:
    for n, column in enumerate(df.columns):
        if column in df.columns[:n]:
            raise ColumnError(
                f"{stream} has two columns called `{column}`; nothing could tell them apart.",
                hint="leave one out, or rename it, before the stream is made.",
            )
        if column.lower().startswith(RESERVED):
            raise ColumnError(
                f"column `{column}` of {stream} begins with `{RESERVED}`, as columns that operators add do.",
                hint=f'rename it: df.withColumnRenamed("{column}", "{column[len(RESERVED) :] or "…"}").',
            )
        if "." in column or "`" in column:
            raise ColumnError(
                f"column `{column}` of {stream} has a dot or a backtick in its name; PySpark does not hand "
                "such columns to Python.",
                hint=f'rename it: df.withColumnRenamed("{column}", "{column.replace(".", "_").replace("`", "_")}").',
            )


def _filtered(
    df: DataFrame, filter: Expression, rules: tuple[PunctuationRule, ...], stream: str
) -> tuple[DataFrame, tuple[PunctuationRule, ...]]:
    """The rows with a mark of those for which `filter` is true, and punctuations among these only."""
    if not isinstance(filter, str | Column):
        raise QueryError(
            f"`filter` of {stream} is {kind_of(filter)}; it is a condition on its rows.",
            hint="write it in SQL, e.g. filter=\"country = 'NL'\", or as a Column.",
        )
    kind = type_of(df, filter, "`filter`", stream)
    if not isinstance(kind, BooleanType | NullType):
        raise QueryError(
            f"`filter` of {stream} is {kind.simpleString()}; rows for which it is true are kept.",
            hint="write a comparison, e.g. filter=\"status = 'open'\".",
        )
    passes = F.coalesce(expression(filter).cast("boolean"), F.lit(False))
    of_kept = (replace(rule, condition=expression(rule.condition) & passes) for rule in rules)
    own = (one if rule.df is None else rule for rule, one in zip(rules, of_kept, strict=True))
    return df.select("*", passes.alias(TAKES_PART)), tuple(own)


def _check_heartbeat(rule: PunctuationRule, df: DataFrame, time: str, name: str) -> None:
    """Refuse heartbeats whose times are of another type than those of the rows, with which they are compared."""
    own, kind = df if rule.df is None else rule.df, df.schema[time].dataType
    for column in rule.columns:
        other = own.schema[column].dataType if isinstance(column, str) and column in own.columns else kind
        if other != kind and isinstance(other, TimestampType | TimestampNTZType):
            raise ColumnError(
                f"`time` of `heartbeat` names column `{column}` of the punctuations of {name}, of type "
                f"{other.simpleString()}, and `{time}` of its rows is {kind.simpleString()}; the one would be turned "
                "into the other by the session's time zone.",
                hint=f'cast it where you know its zone, e.g. F.col("{column}").cast("{kind.simpleString()}").',
            )
