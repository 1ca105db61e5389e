"""`wm.join`: from streams to one stateful operator and its DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.joins import Join, plan
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.grouping import Bucket
from watersmeet.model.queries import JoinQuery
from watersmeet.spark import conditions, operators
from watersmeet.spark import session as sessions
from watersmeet.spark.conditions import Condition
from watersmeet.spark.counters import METRICS
from watersmeet.spark.derived import as_stream
from watersmeet.spark.explain import Explanation, explain
from watersmeet.spark.grouping import Grouping, grouping
from watersmeet.spark.packing import PACKED_DDL, Packer, Signed
from watersmeet.spark.placement import shard_ids
from watersmeet.spark.processor import NOTE, ShardProcessor
from watersmeet.spark.punctuations import Sign, with_signs
from watersmeet.spark.streams import Stream, aligned, same_kind


@dataclass(frozen=True)
class Joined:
    """A join that is defined, not running: its DataFrames do the work when something reads them."""

    streams: tuple[Stream, ...]
    query: JoinQuery
    ids: tuple[int, ...]
    streaming: bool
    operator: Join
    on_violation: str = "drop"
    condition: Column | None = None  # by which Spark filters the results, where the operator cannot

    @cached_property
    def _packed(self) -> DataFrame:
        """Blobs of all streams."""
        parts = [part for i, source in enumerate(self.streams) for part in self._packed_stream(i, source)]
        return reduce(DataFrame.unionAll, parts)

    @cached_property
    def _rows(self) -> DataFrame:
        """Everything the operator says, one row each: results, late rows, punctuations, statistics."""
        return self._run(METRICS)

    def _run(self, metrics: str) -> DataFrame:
        processor = ShardProcessor(
            self.query, self.ids, ended=not self.streaming, join=self.operator, on_violation=self.on_violation
        )
        rows = operators.run(self._packed, processor, self._columns, metrics)
        return rows if self.condition is None else conditions.filtered(rows, self.condition)

    def _packed_stream(self, i: int, source: Stream) -> list[DataFrame]:
        """Blobs of a stream: of its own rows, and of the DataFrames that hold punctuations alone."""
        spec = self.query.streams[i]
        kinds = [source.df.schema[k].dataType.simpleString() for k in spec.key]
        numbered = list(enumerate(source.signs))
        own = [(n, sign) for n, sign in numbered if sign.df is None]
        if source.upstream is not None and source.upstream.key != spec.key:
            own = [(n, sign) for n, sign in own if sign.kind not in ("value", "range")]
        if source.upstream is not None and source.upstream.ids != self.ids:
            own = [(n, sign) for n, sign in own if sign.kind != "range"]
        unbounded = source.upstream is not None  # then a join says NULL for an end that is not there
        teller = None if source.upstream is None else F.get_json_object(NOTE, "$.shard")
        df = with_signs(source.df, own, spec.time, kinds, teller) if own else source.df
        parts = [df.mapInArrow(Packer(spec, i, self.ids, _signed(own, unbounded)), PACKED_DDL)]
        for n, sign in numbered:
            if sign.df is not None:
                df = with_signs(sign.df, [(n, sign)], spec.time, kinds)
                parts.append(df.mapInArrow(Packer(spec, i, self.ids, _signed([(n, sign)]), tuples=False), PACKED_DDL))
        return parts

    @property
    def _columns(self) -> list[StructField]:
        kinds = {f.name: f.dataType for s in self.streams for f in s.columns}
        return [StructField(name, kinds[name]) for name in self.query.schema.names]

    @property
    def names(self) -> list[str]:
        """Columns of `df`."""
        return list(self.query.schema.names)

    @property
    def df(self) -> DataFrame:
        """Results: the key columns, then each stream's other columns. Late rows are left out (and counted)."""
        return operators.results(self._rows, self.names)

    @property
    def tagged(self) -> DataFrame:
        """Results and late rows in one: `kind`, `stream`, the result's columns, `row` (JSON), `shard`, `shards`."""
        return operators.tagged(self._rows, self.names, len(self.ids))

    def group_by(self, *cols: str | Bucket) -> Grouping:
        """Group the results by columns and by `wm.bucket`s of time; `agg` then says what to compute of each group."""
        return grouping(self, cols)

    def as_stream(self, name: str | None = None, *, window: str | None = None) -> Stream:
        """The results as a stream for a further join, with event time `event_time` and the join's own promises.

        Finished keys close them in the further join as well, if that is on the same key. `window` is that of the
        results in the further join. A join of joins of windows is not the join of all streams at once: each result must
        fit the windows of both joins, whatever the order in which its parts came.
        """
        return as_stream(self, name, window)

    def explain(self) -> Explanation:
        """What will run, what is kept how long, and what happens to late rows; `str()` of it is the text."""
        return explain(self)


def join(
    *streams: Stream,
    on: str | Sequence[str],
    how: str = "inner",
    where: Condition | None = None,
    algorithm: str = "auto",
    on_violation: str = "drop",
    allow_unbounded: bool = False,
    closed: bool = True,
    shards: int | None = None,
    **options: Any,
) -> Joined:
    """Join two streams on equal values of `on`, within their windows.

    A pair (a, b) is a result iff the keys are equal and, at the time of the newer one, the older is in its own
    stream's window: b at most b's window older than a, or a at most a's window older than b. The result is that of
    a batch join over all rows that did not come late. `closed=False` leaves out the edge of the window itself.

    `where` is a condition that a pair must fulfil as well, over the columns of both streams (the key is called as in
    the first): a pair for which it is false or NULL is none, and a row without any other is unmatched. Comparisons and
    arithmetic (``"price >= reserve * 2 AND bidder <> seller"``) are evaluated inside the operator, as Spark would in
    ANSI mode. Any other SQL, or a Column, filters the results of an inner join, and is refused for the other kinds.

    `shards` divides the keys (default: Spark's number of shuffle partitions); it is fixed for the life of a
    checkpoint.
    """
    if len(streams) != 2:
        raise QueryError(f"`join` takes two streams; {len(streams)} given.", hint="join the others in a further join.")
    for s in streams:
        if not isinstance(s, Stream):
            raise QueryError(
                f"`join` takes streams; got {type(s).__name__}.", hint='wrap it: wm.stream(df, time="…", window="…").'
            )
    if on_violation not in ("drop", "error"):
        raise QueryError(f'`on_violation` is "{on_violation}"; it is "drop" or "error".')
    names = [s.name for s in streams]
    if len(set(names)) < len(names):
        raise QueryError(
            f"two streams are called `{names[0]}`; messages could not tell them apart.", hint="set `name`."
        )
    key = (on,) if isinstance(on, str) else tuple(on)
    if not key:
        raise QueryError("`on` names no column; a join needs at least one key.")
    streaming = same_kind(streams)
    streams = aligned(streams, key)
    spark = streams[0].df.sparkSession
    specs = tuple(s.spec(key, closed=closed) for s in streams)
    query = JoinQuery(specs, how)  # says what is wrong with the streams before `where` is looked at
    own, condition = conditions.predicate(where, streams, specs, how)
    query = replace(query, where=own)
    if spark.conf.get("spark.sql.caseSensitive") != "true":
        _refuse_look_alikes(query)
    if streaming:
        sessions.check(spark)
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    count = shards or partitions
    if count < 1:
        raise QueryError(f"`shards` is {count}; there is at least one.")
    if algorithm == "auto":
        plain = how == "inner" and not any(s.signs or s.known for s in streams)
        algorithm = "hash" if plain else "pwjoin"
    operator = plan(query, algorithm, **options)
    if not allow_unbounded:
        _refuse_unbounded(streams, algorithm, listens=isinstance(operator, PWJoin))
    joined = Joined(streams, query, shard_ids(count, partitions), streaming, operator, on_violation, condition)
    if condition is not None:
        conditions.check(condition, joined._columns, spark)
    return joined


def _refuse_look_alikes(query: JoinQuery) -> None:
    """Refuse names that Spark would take for one."""
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


def _refuse_unbounded(streams: tuple[Stream, ...], algorithm: str, *, listens: bool) -> None:
    for s, other in (streams, streams[::-1]):
        if s.length is None and not (listens and (other.signs or other.known)):
            why = f"`{other.name}` no punctuation" if listens else f'"{algorithm}" does not listen to punctuations'
            raise WindowError(
                f"stream `{s.name}` has no window, and {why} that would close its keys; "
                "its tuples would be kept for ever.",
                hint='give it one: wm.stream(df, time="…", window="10 minutes"), or say allow_unbounded=True.',
            )


def _signed(signs: Sequence[tuple[int, Sign]], unbounded: bool = False) -> tuple[Signed, ...]:
    return tuple(Signed(n, s.kind, s.low_closed, s.high_closed, s.needs(unbounded)) for n, s in signs)
