"""`wm.read_state`: what a checkpoint holds, read through Spark's state data source while the query may go on."""

from __future__ import annotations

import json
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

from watersmeet.errors import QueryError, StateCorruptError, StateError, StateMismatchError
from watersmeet.joins.inventory import Part, parts
from watersmeet.joins.reopening import kind_of, reopen
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.spark import shard_reading
from watersmeet.spark.shard_reading import ShardReader
from watersmeet.state.log import FORMAT, Header, MemoryStore

#: How Spark calls the operator that all of ours are.
_OPERATOR = "transformWithStateInPandasExec"
_TIMES = ("oldest", "newest", "progress")
_TITLES = ("operator", "stream", "shard", "tuples", "bytes", "closings", "ranges", *_TIMES)


@dataclass(frozen=True, slots=True)
class Held:
    """What one shard of an operator holds of one stream (or of its groups), and what it knows of the stream.

    `closings` are keys that the stream has closed one by one, `ranges` those it has closed as intervals. `progress` is
    None before the stream has shown anything; when it has ended, `ended` says so.
    """

    operator: int
    kind: str
    stream: str
    shard: int
    tuples: int
    bytes: int
    oldest: datetime | None
    newest: datetime | None
    closings: int
    ranges: int
    progress: datetime | None
    ended: bool
    format: int


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
    progress_then: datetime | None
    progress_now: datetime | None


@dataclass(frozen=True)
class Operator:
    """One stateful operator of the query: its number in the checkpoint, and the header of each of its shards."""

    id: int
    headers: dict[int, bytes]

    @cached_property
    def sample(self) -> Header:
        return Header.unpack(next(iter(self.headers.values())))

    @cached_property
    def layout(self) -> list[Part]:
        """The parts of its state, without rows."""
        return list(parts(reopen(replace(self.sample, segments=[]), MemoryStore())))


@dataclass(frozen=True)
class State:
    """The state of a query after a batch. Nothing is read but headers before it is asked for."""

    spark: SparkSession
    checkpoint: str
    batch: int
    operators: tuple[Operator, ...]

    @cached_property
    def summary(self) -> tuple[Held, ...]:
        """What every shard of every operator holds of each stream."""
        out = []
        for operator in self.operators:
            rows = self._ask(operator, shard_reading.summary, shard_reading.SUMMARY)
            kind = kind_of(operator.sample)
            for row in sorted(rows, key=lambda r: (r["part"], r["shard"])):
                told = {f.name: row[f.name] for f in fields(Held) if f.name in row}
                progress = row["progress"]
                told |= {name: moment(row[name]) for name in _TIMES}
                told |= {"operator": operator.id, "kind": kind, "ended": progress >= AFTER_ALL, "format": FORMAT}
                out.append(Held(**told))
        return tuple(out)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of what can be asked for with `rows`."""
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
            rows = self._ask(operator, partial(shard_reading.keys, most), shard_reading.KEYS)
            out += [HeavyKey(operator.id, r["stream"], r["shard"], r["key"], r["tuples"]) for r in rows]
        chosen = [k for k in out if stream is None or k.stream == stream]
        return sorted(chosen, key=lambda k: (-k.tuples, k.operator, k.stream, k.key))[:most]

    def changes(self, since: int, stream: str, *, operator: int | None = None) -> DataFrame:
        """Tuples that the state has and had not after the batch `since` (`change` is "came"), or had ("left")."""
        now, then = self.rows(stream, operator=operator), self.at(since).rows(stream, operator=operator)
        both = [(now, then, "came"), (then, now, "left")]
        came, left = (a.exceptAll(b).select(F.lit(name).alias("change"), "*") for a, b, name in both)
        return came.unionByName(left)

    def difference(self, since: int) -> list[Change]:
        """What came to every stream's part of the state, and what left it, since the batch `since`."""
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

    def _ask(self, operator: Operator, read: Callable[..., Any], schema: Any) -> list[dict[str, Any]]:
        """What is to be told of every shard; those that hold no segment are asked here."""
        spark_schema = from_arrow_schema(schema)
        found = collected(lambda: self._read(operator, read, spark_schema), f"the state in `{self.checkpoint}`")
        out = [row.asDict(recursive=True) for row in found]
        for shard, data in operator.headers.items():
            header = Header.unpack(data)
            if not header.segments:
                for table in read(shard, reopen(header, MemoryStore())):
                    out += table.to_pylist()
        return out

    def _read(self, operator: Operator, read: Callable[..., Any], schema: Any) -> DataFrame:
        return self.segments(operator).mapInArrow(ShardReader(operator.headers, read), schema)

    def segments(self, operator: Operator) -> DataFrame:
        """What an operator has stored, as it is: `shard`, `id`, `data`."""
        df = _variable(self.spark, self.checkpoint, operator.id, "segments", self.batch)
        return df.select("key.shard", "user_map_key.id", "user_map_value.data")

    def __str__(self) -> str:
        lines = [f"batch {self.batch} of {self.checkpoint}"]
        table = [list(_TITLES)]
        for held in self.summary:
            cells = asdict(held) | {"operator": f"{held.operator} {held.kind}"}
            cells["progress"] = "ended" if held.ended else held.progress
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
    path = str(checkpoint)
    found = collected(lambda: spark.read.format("state-metadata").load(path), f"`checkpoint` {path}")
    ids = sorted({row["operatorId"] for row in found if _is_ours(row["operatorName"], row["operatorProperties"])})
    if not ids:
        held = ", ".join(sorted({row["operatorName"] for row in found})) or "none"
        raise StateMismatchError(
            f"`checkpoint` {path} holds no state of ours; its stateful operators are: {held}.",
            hint="give the checkpoint of a query that was started with Watersmeet.",
        )
    last = min(row["maxBatchId"] for row in found)
    chosen = last if batch is None else batch
    if not 0 <= chosen <= last:
        raise StateError(
            f"`batch` is {chosen}; the last complete batch of {path} is {last}.", hint="give an earlier one, or none."
        )
    return State(spark, path, chosen, tuple(_operator(spark, path, id, chosen) for id in ids))


def _is_ours(operator: str, properties: str) -> bool:
    """Whether a stateful operator keeps what `folding.declare` says."""
    if operator != _OPERATOR:
        return False
    names = [variable["stateName"] for variable in json.loads(properties).get("stateVariables", [])]
    return sorted(names) == ["header", "segments"]


def _operator(spark: SparkSession, path: str, id: int, batch: int) -> Operator:
    """The headers of an operator."""
    rows = collected(
        lambda: _variable(spark, path, id, "header", batch).select("key.shard", "value.data"),
        f"batch {batch} of `checkpoint` {path}",
    )
    headers = {row["shard"]: bytes(row["data"]) for row in sorted(rows, key=lambda r: r["shard"])}
    for data in headers.values():
        Header.unpack(data)  # says what is wrong with it
    if not headers:
        raise StateCorruptError(
            f"operator {id} of `checkpoint` {path} has no state in batch {batch}.", hint="give a later batch."
        )
    return Operator(id, headers)


def _variable(spark: SparkSession, path: str, operator: int, name: str, batch: int) -> DataFrame:
    reader = spark.read.format("statestore").option("path", path).option("batchId", batch)
    return reader.option("operatorId", operator).option("stateVarName", name).load()


def collected(read: Callable[[], DataFrame], what: str) -> Sequence[Any]:
    """Rows of a DataFrame that is yet to be made; what goes wrong is told as an error of ours."""
    try:
        return read().collect()
    except PySparkException as error:
        raise shard_reading.named(error, what) from error


def moment(micros: int | None) -> datetime | None:
    """An event time as a date; None for one before or after all."""
    if micros is None or not BEFORE_ALL < micros < AFTER_ALL:
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None


def _total(summary: Sequence[Held], operator: int, stream: str) -> tuple[int, datetime | None]:
    mine = [h for h in summary if (h.operator, h.stream) == (operator, stream)]
    return sum(h.tuples for h in mine), next((h.progress for h in mine), None)
