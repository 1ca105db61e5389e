"""`wm.read_state`: the state in a checkpoint, read through Spark's state data source, also while the query runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from watersmeet.checkpoints.contents import Part, parts
from watersmeet.checkpoints.reopen import kind_of, reopen
from watersmeet.errors import QueryError, StateCorruptError, StateError, StateMismatchError
from watersmeet.model import sizes
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.spark.checkpoints import shard_contents as shard_reading
from watersmeet.spark.checkpoints.checkpoint_folder import lack
from watersmeet.spark.checkpoints.file_system import reached
from watersmeet.spark.checkpoints.result_folder import location
from watersmeet.spark.checkpoints.shard_contents import ShardReader
from watersmeet.spark.planning.arguments import require_session
from watersmeet.spark.runtime.spark_versions import reads_states, require_state_reader, state_source
from watersmeet.spark.streams import OperatorSpec
from watersmeet.state.durable.log import FORMAT, Header, MemoryStore

log = logging.getLogger("watersmeet")

#: Spark's name for our operators.
_OPERATOR = "transformWithStateInPandasExec"
_TIMES = ("oldest", "newest", "watermark")
_TITLES = ("operator", "stream", "shard", "tuples", "bytes", "closed_keys", "ranges", *_TIMES)


@dataclass(frozen=True, slots=True)
class Held:
    """The state of one stream (or of the groups) in one shard of an operator, and the size of its punctuation set.

    `closed_keys` are keys that the stream has closed one by one, `ranges` those it has closed as intervals. `watermark`
    is None before the stream's first row or heartbeat, and after its end; `ended` is True after its end.
    """

    operator: int
    kind: str
    stream: str
    shard: int
    tuples: int
    bytes: int
    oldest: datetime | None
    newest: datetime | None
    closed_keys: int
    ranges: int
    watermark: datetime | None
    ended: bool
    format: int

    def __repr__(self) -> str:
        where = f"shard {self.shard} of operator {self.operator} ({self.kind})"
        return f"<Held {self.stream}, {where}: {self.tuples:,} tuples, {sizes.formatted(self.bytes)}>"


@dataclass(frozen=True, slots=True)
class HeavyKey:
    """A key (as JSON) and how many tuples of a stream it holds."""

    operator: int
    stream: str
    shard: int
    key: str
    tuples: int


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a stream's part of the state between two batches, over all shards."""

    operator: int
    stream: str
    tuples_then: int
    tuples_now: int
    came: int
    left: int
    watermark_then: datetime | None
    watermark_now: datetime | None

    def __repr__(self) -> str:
        tuples = f"{self.tuples_then:,} tuples then, {self.tuples_now:,} now"
        return f"<Change {self.stream}, operator {self.operator}: {tuples}, {self.came:,} came, {self.left:,} left>"


@dataclass(frozen=True)
class Operator:
    """One stateful operator of the query: its number in the checkpoint, and the header of each of its shards."""

    id: int
    headers: dict[int, bytes]

    def __repr__(self) -> str:
        streams = ", ".join(s["name"] for s in self.sample.query["streams"])
        return f"<Operator {self.id}: {kind_of(self.sample)} of {streams}, {_shards(len(self.headers))}>"

    @cached_property
    def sample(self) -> Header:
        return Header.unpack(next(iter(self.headers.values())))

    @cached_property
    def layout(self) -> list[Part]:
        """The parts of its state, without rows."""
        return list(parts(reopen(replace(self.sample, segments=[]), MemoryStore())))


@dataclass(frozen=True)
class State:
    """The state of a query after a batch. Only headers are read in advance.

    Rows that have matched are kept as those that have not, until their window is over:

    >>> import tempfile
    >>> from watersmeet import testing
    >>> folder, clock = tempfile.TemporaryDirectory(), testing.Clock("2026-05-01T10:00")
    >>> auctions = testing.feed(spark, "item int, opened_at timestamp", [[(7, clock.now)]], f"{folder.name}/a")
    >>> bids = testing.feed(spark, "item int, bid_at timestamp", [[(7, clock.now), (8, clock.now)]], f"{folder.name}/b")
    >>> joined = wm.join(
    ...     wm.stream(auctions.stream(), time="opened_at", name="auctions"),
    ...     wm.stream(bids.stream(), time="bid_at", name="bids"),
    ...     on="item",
    ...     window="1 hour",
    ... )
    >>> output = testing.run(joined.df, f"{folder.name}/checkpoint")
    >>> state = wm.read_state(spark, f"{folder.name}/checkpoint")
    >>> state.batch, state.streams, state.operators
    (0, ('auctions', 'bids'), (<Operator 0: hash of auctions, bids, 2 shards>,))
    >>> state.rows("bids").select("item").orderBy("item").collect()
    [Row(item=7), Row(item=8)]
    >>> folder.cleanup()
    """

    spark: SparkSession
    checkpoint: str
    batch: int
    operators: tuple[Operator, ...]

    def __repr__(self) -> str:
        return f"<State after batch {self.batch} of {self.checkpoint}: {', '.join(map(repr, self.operators))}>"

    @cached_property
    def summary(self) -> tuple[Held, ...]:
        """The state of each stream, for every shard of every operator."""
        out = []
        for operator in self.operators:
            rows = self._collect(operator, shard_reading.summary, shard_reading.SUMMARY)
            kind = kind_of(operator.sample)
            for row in sorted(rows, key=lambda r: (r["part"], r["shard"])):
                values = {f.name: row[f.name] for f in fields(Held) if f.name in row}
                watermark = row["watermark"]
                values |= {name: moment(row[name]) for name in _TIMES}
                values |= {"operator": operator.id, "kind": kind, "ended": watermark >= AFTER_ALL, "format": FORMAT}
                out.append(Held(**values))
        return tuple(out)

    @property
    def streams(self) -> tuple[str, ...]:
        """The names that `rows` takes."""
        return tuple(part.name for operator in self.operators for part in operator.layout)

    def rows(self, stream: str, *, operator: int | None = None) -> DataFrame:
        """The tuples held of a stream, and the shard of each. Groups are shown as they would come out now."""
        found, part = self._part(stream, operator)
        schema = shard_reading.rows_schema(part.schema)
        read = partial(shard_reading.rows, part.name, schema)
        return self._read(found, read, from_arrow_schema(schema, prefer_timestamp_ntz=True))

    def keys(self, most: int = 10, *, stream: str | None = None) -> list[HeavyKey]:
        """The keys that hold most, over all streams or of one."""
        out = []
        for operator in self.operators:
            rows = self._collect(operator, partial(shard_reading.keys, most), shard_reading.KEYS)
            out += [HeavyKey(operator.id, r["stream"], r["shard"], r["key"], r["tuples"]) for r in rows]
        chosen = [k for k in out if stream is None or k.stream == stream]
        return sorted(chosen, key=lambda k: (-k.tuples, k.operator, k.stream, k.key))[:most]

    def changes(self, since: int, stream: str, *, operator: int | None = None) -> DataFrame:
        """Tuples that came to the state since the batch `since` (`change` is "came"), or left it ("left")."""
        now, then = self.rows(stream, operator=operator), self.at(since).rows(stream, operator=operator)
        both = [(now, then, "came"), (then, now, "left")]
        came, left = (a.exceptAll(b).select(F.lit(name).alias("change"), "*") for a, b, name in both)
        return came.unionByName(left)

    def difference(self, since: int) -> list[Change]:
        """The numbers of tuples that came to and left each stream's part of the state since the batch `since`."""
        before = self.at(since)
        out = []
        for operator in self.operators:
            for part in operator.layout:
                now, then = (_total(s.summary, operator.id, part.name) for s in (self, before))
                a, b = (s._texts(operator.id, part.name) for s in (self, before))
                came, left = a.exceptAll(b).count(), b.exceptAll(a).count()
                out.append(Change(operator.id, part.name, then[0], now[0], came, left, then[1], now[1]))
        return out

    def at(self, batch: int) -> State:
        """The state after another batch, as far back as Spark keeps it (``minBatchesToRetain``, 100 batches)."""
        return read_state(self.spark, self.checkpoint, batch=batch)

    def _texts(self, operator: int, stream: str) -> DataFrame:
        """Rows as JSON, which can be compared whatever their types."""
        found, part = self._part(stream, operator)
        return self._read(found, partial(shard_reading.texts, part.name), "row string")

    def _part(self, stream: str, operator: int | None) -> tuple[Operator, Part]:
        found = [
            (o, part) for o in self.operators for part in o.layout if part.name == stream and operator in (None, o.id)
        ]
        if not found:
            raise QueryError(f"the state has no stream `{stream}`.", hint=f"it has {', '.join(self.streams)}.")
        if len(found) > 1:
            raise QueryError(
                f"operators {', '.join(str(o.id) for o, _ in found)} all have a stream `{stream}`.",
                hint=f"say which one: operator={found[0][0].id}.",
            )
        return found[0]

    def _collect(self, operator: Operator, read: Callable[..., Any], schema: Any) -> list[dict[str, Any]]:
        """The rows of `read` for every shard; shards without segments are read here, not by Spark."""
        spark_schema = from_arrow_schema(schema)
        found = collected(lambda: self._read(operator, read, spark_schema), f"the state in `{self.checkpoint}`")
        out = [row.asDict(recursive=True) for row in found]
        for data in operator.headers.values():
            header = Header.unpack(data)
            if not header.segments:
                for table in read(header.index, reopen(header, MemoryStore())):
                    out += table.to_pylist()
        return out

    def _read(self, operator: Operator, read: Callable[..., Any], schema: Any) -> DataFrame:
        return self.segments(operator).mapInArrow(ShardReader(operator.headers, read), schema)

    def segments(self, operator: Operator) -> DataFrame:
        """The stored segments of an operator: `shard` (Spark's key of it), `id`, `data`."""
        df = _variable(self.spark, self.checkpoint, operator.id, "segments", self.batch)
        return df.select("key.shard", "user_map_key.id", "user_map_value.data")

    def __str__(self) -> str:
        lines = [f"batch {self.batch} of {self.checkpoint}"]
        table = [list(_TITLES)]
        for held in self.summary:
            cells = asdict(held) | {"operator": f"{held.operator} {held.kind}"}
            cells["watermark"] = "ended" if held.ended else held.watermark
            table.append(["" if cells[t] is None else str(cells[t]).removesuffix("+00:00") for t in _TITLES])
        widths = [max(len(row[n]) for row in table) for n in range(len(_TITLES))]
        for row in table:
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return "\n".join(lines)


def read_state(spark: SparkSession, checkpoint: str | Path, *, batch: int | None = None) -> State:
    """The state of a query, from its checkpoint: read-only, and while the query runs.

    ``print(wm.read_state(spark, "checkpoint"))`` shows what every shard holds; `summary` is the same as records, `rows`
    gives the tuples of a stream as a DataFrame, `keys` the keys that hold most, `difference` and `changes` what
    happened since an earlier batch. `batch` is the number of a batch, by default the last one that is complete.
    """
    require_session(spark, "read_state")
    require_state_reader(spark)
    path = location(checkpoint, "checkpoint")
    if batch is not None and type(batch) is not int:
        raise QueryError(f"`batch` is {batch!r}; it is the number of a batch.")
    try:
        found = collected(lambda: spark.read.format("state-metadata").load(path), f"`checkpoint` {path}")
    except StateError:
        _refuse_folder(spark, path)
        raise
    ids, last = _own(spark, found, path)
    chosen = last if batch is None else batch
    if not 0 <= chosen <= last:
        raise StateError(
            f"`batch` is {chosen}; the last complete batch of {path} is {last}.", hint="give an earlier one, or none."
        )
    return State(spark, path, chosen, tuple(_operator(spark, path, id, chosen) for id in ids))


def compare(spark: SparkSession, checkpoint: str, operators: Sequence[OperatorSpec]) -> list[Header]:
    """Refuse a checkpoint whose state is not that of these operators. One header of each is read, and returned.

    A checkpoint without a complete batch holds no state, and an operator that no row has reached has no header. There
    may be further operators: those of a join whose DataFrame was made a stream. State that Spark cannot read is left
    to the query, which reads it again and raises the error.
    """
    if not reads_states(spark):
        return []
    what = f"`checkpoint` {checkpoint}"
    try:
        found = collected(lambda: spark.read.format("state-metadata").load(checkpoint), what)
        if min((row["maxBatchId"] for row in found), default=-1) < 0:
            return []
        ids, last = _own(spark, found, checkpoint)
        readers = [partial(_first_header, spark, checkpoint, id, last) for id in ids]
        held = [Header.unpack(row["data"]) for read in readers for row in collected(read, what)]
    except StateError as error:
        if type(error) is not StateError:
            raise
        log.warning("the checkpoint was not compared with the query: %s", error)
        return []
    headers = list(held)
    for header in held:
        header.refuse_ended()
    unread = len(ids) - len(held)
    others = []
    for query, shards in operators:
        same = next((h for h in held if (h.digest, h.ids) == (query.digest(), list(shards))), None)
        held.remove(same) if same is not None else others.append((query, shards))
    for query, shards in others:
        if not held and unread:
            return headers
        if not held:
            raise StateMismatchError(
                f"{what} belongs to another query: it has the state of {len(ids)} of our operators, and the query has "
                f"{len(operators)}.",
                hint="undo the change, or start from a new checkpoint, with new folders for what is written.",
            )
        streams = [s.name for s in query.streams]
        near = next((h for h in held if [s["name"] for s in h.query["streams"]] == streams), held[0])
        near.check(query, near.shard, len(shards), shards)
    return headers


def _first_header(spark: SparkSession, path: str, operator: int, batch: int) -> DataFrame:
    """Any header of an operator; Spark reads one shard after the other until it has one."""
    return _variable(spark, path, operator, "header", batch).select("value.data").limit(1)


def _own(spark: SparkSession, found: Sequence[Any], path: str) -> tuple[list[int], int]:
    """The ids of our operators among the stateful ones of a checkpoint, and the last complete batch."""
    ids = sorted({row["operatorId"] for row in found if _is_ours(row["operatorName"], row["operatorProperties"])})
    if not ids:
        _refuse_folder(spark, path)
        held = ", ".join(sorted({row["operatorName"] for row in found})) or "none"
        raise StateMismatchError(
            f"`checkpoint` {path} holds no state of ours; its stateful operators are: {held}.",
            hint="give the checkpoint of a query that was started with Watersmeet.",
        )
    return ids, min(row["maxBatchId"] for row in found)


def _refuse_folder(spark: SparkSession, path: str) -> None:
    """Raise an error if the folder is no checkpoint. Called only after Spark has found no state."""
    wrong = lack(reached(spark, path))
    if wrong is not None:
        raise StateError(f"`checkpoint` {path} {wrong.what}.", hint=wrong.hint)


def _is_ours(operator: str, properties: str) -> bool:
    """Whether a stateful operator has the state variables of `lazy_processor.declare`, beside Spark's own timers."""
    if operator != _OPERATOR:
        return False
    names = [variable["stateName"] for variable in json.loads(properties).get("stateVariables", [])]
    return sorted(name for name in names if not name.startswith("$")) == ["header", "segments"]


def _operator(spark: SparkSession, path: str, id: int, batch: int) -> Operator:
    """The headers of an operator."""
    rows = collected(
        lambda: _variable(spark, path, id, "header", batch).select("key.shard", "value.data"),
        f"batch {batch} of `checkpoint` {path}",
    )
    headers = {row["shard"]: bytes(row["data"]) for row in sorted(rows, key=lambda r: r["shard"])}
    for data in headers.values():
        Header.unpack(data)  # raises an error if it is corrupt
    if not headers:
        raise StateCorruptError(
            f"operator {id} of `checkpoint` {path} has no state in batch {batch}.", hint="give a later batch."
        )
    return Operator(id, headers)


def _variable(spark: SparkSession, path: str, operator: int, name: str, batch: int) -> DataFrame:
    reader = state_source(spark).option("path", path).option("batchId", batch)
    return reader.option("operatorId", operator).option("stateVarName", name).load()


def collected(read: Callable[[], DataFrame], what: str) -> Sequence[Any]:
    """Rows of a DataFrame that `read` makes; errors of Spark are raised as our own."""
    try:
        return read().collect()
    except PySparkException as error:
        raise shard_reading.named(error, what) from error


def moment(micros: int | None) -> datetime | None:
    """An event time as a date; None for BEFORE_ALL and AFTER_ALL."""
    if micros is None or not BEFORE_ALL < micros < AFTER_ALL:
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _shards(count: int) -> str:
    return f"{count} shard{'s' if count != 1 else ''}"


def _total(summary: Sequence[Held], operator: int, stream: str) -> tuple[int, datetime | None]:
    mine = [h for h in summary if (h.operator, h.stream) == (operator, stream)]
    return sum(h.tuples for h in mine), next((h.watermark for h in mine), None)
