"""`wm.bootstrap`: a new checkpoint whose state comes from tables; a query goes on from it in the middle of its streams.

Spark has no way to write state but to run a stateful query. So the operators of the query run one batch over the
tables, in a folder beside the new checkpoint. State and commit of that batch become batch 0 of the checkpoint. Its
entry in the offset log says of every source of the query that nothing of it was read: the query goes on with batch 1,
and each source starts where its own options say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, TimestampNTZType

from watersmeet.errors import ColumnError, QueryError, StateMismatchError, suggestion
from watersmeet.spark import session as sessions
from watersmeet.spark.checkpoints import file_system as files
from watersmeet.spark.checkpoints.file_system import FilePath
from watersmeet.spark.checkpoints.query_plan import count_sources, stateful_node
from watersmeet.spark.checkpoints.rescale import (
    WHOLE_SNAPSHOTS,
    adopt_state,
    changed_settings,
    new_folder,
    publish,
    scratch_beside,
)
from watersmeet.spark.checkpoints.result_folder import location
from watersmeet.spark.checkpoints.seed_results import ROWS, SEED
from watersmeet.spark.checkpoints.state_reader import State, read_state
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.joined import Joined
from watersmeet.spark.planning.arguments import kind_of, require_join
from watersmeet.spark.progress.counters import counters
from watersmeet.spark.runtime import output_columns as operators
from watersmeet.spark.runtime.query_errors import with_own_errors
from watersmeet.spark.runtime.row_kinds import KIND, STATS
from watersmeet.spark.streams import Origin, Stream

#: The rows of a stream and, if it has punctuations in DataFrames of their own, those of each.
Table = DataFrame | Sequence[DataFrame]
#: An event time; a text is read as Spark casts it.
Moment = datetime | str


@dataclass(frozen=True)
class Bootstrapped:
    """The new checkpoint: its `counters`, its `state`, the `results` of the seed among itself; `str()` says it."""

    checkpoint: str
    counters: dict[str, Any] = field(repr=False)
    emit: str
    names: tuple[str, ...] = field(repr=False)
    spark: SparkSession = field(repr=False)

    @cached_property
    def state(self) -> State:
        """The state after the seed, which is batch 0."""
        return read_state(self.spark, self.checkpoint, batch=0)

    @property
    def results(self) -> DataFrame:
        """The results of the seed among itself, as long as the checkpoint has them."""
        if self.emit == "none":
            raise QueryError('the results of the seed were not kept: `emit` was "none".', hint='use emit="all".')
        return operators.results(self.spark.read.parquet(f"{self.checkpoint}/{SEED}/{ROWS}"), self.names)

    def __str__(self) -> str:
        count = {
            name: f"{self.counters.get(name, 0):,}" for name in ("rows_in", "results", "late", "violations", "stored")
        }
        broken = (
            f", {count['violations']} violate punctuations or constraints" if self.counters.get("violations") else ""
        )
        kept = "delivered by wm.write as batch 0" if self.emit == "all" else "not kept"
        return (
            f"{self.checkpoint} is seeded, and continues with batch 1.\n"
            f"{count['rows_in']} rows came, {count['late']} of them late{broken}; {count['stored']} are stored.\n"
            f"{count['results']} results among them: {kept}."
        )


def bootstrap(
    joined: Joined | Grouped,
    checkpoint: str | Path,
    tables: Mapping[str, Table],
    *,
    as_of: Moment | Mapping[str, Moment] | None = None,
    emit: str = "all",
) -> Bootstrapped:
    """Write a checkpoint with the state that `joined` has after the rows of `tables`; the query goes on from there.

    `tables` has a static DataFrame for each stream by its name (in `wm.sql`, the name of the argument), with the
    columns of the DataFrame that the stream was made of; further ones are left out. Where the stream has punctuations
    in DataFrames of their own (``wm.when(df=…)``), it is a tuple of the rows and of the punctuations in their order;
    those that are left out are empty. `filter`, punctuations and constraints hold for the tables as for the stream.

    The query starts with batch 1, and its sources at the position that their options give (Kafka's `startingOffsets`,
    Delta's `startingVersion`, the files that are there). With `as_of`, an event time (a datetime, or a text that Spark
    casts) or one for each stream, the seed takes the rows before it, and the watermarks stand at it: rows of the
    streams that are older were in the table and are late, all others are on time. So the position needs to be early
    enough only. Without it the tables are an ordinary batch, and the position alone decides that no row comes twice.

    Seed and live rows together have the results of the same join over all of them. With emit="all" those of the seed
    among itself are kept in the checkpoint, and `wm.write` delivers them as batch 0 before the query starts; with
    "none" they are left out.

    The tables are read once, in one batch, by way of files beside the checkpoint. Neither joins with window="auto" (a
    table has no order of arrival) nor streams whose DataFrame keeps state of its own (an aggregation, say) can be
    seeded, and delay="auto" needs an `as_of`. A run that fails leaves no checkpoint.
    """
    require_join(joined, "bootstrap")
    if not joined.streaming:
        raise QueryError(
            "`joined` is of static DataFrames; a state is continued by a streaming query.",
            hint="read the inputs with spark.readStream.",
        )
    if emit not in ("all", "none"):
        raise QueryError(f'`emit` is {emit!r}; results of the seed among itself come ("all") or not ("none").')
    spark = (joined.joined if isinstance(joined, Grouped) else joined).streams[0].df.sparkSession
    if getattr(spark, "_jvm", None) is None:
        raise QueryError(
            "`bootstrap` is called over Spark Connect: a client has no JVM that tells the sources of a query.",
            hint="do it in a session without Connect; the query itself may run over Connect.",
        )
    target = new_folder(spark, checkpoint, "checkpoint")
    seeds = _seeds(spark, joined, tables, as_of)
    with scratch_beside(target) as scratch:
        seeding = _Seeding(spark, joined, seeds, emit, scratch, target)
        counted = seeding.run()
        publish(seeding.made, target)
    return Bootstrapped(location(checkpoint, "checkpoint"), counted, emit, tuple(joined.names), spark)


@dataclass(frozen=True)
class _Seed:
    """What takes the place of a stream: its DataFrames, and the event time to which they reach."""

    origin: Origin
    dfs: tuple[DataFrame, ...]
    until: int | None


@dataclass
class _Seeding:
    spark: SparkSession
    joined: Joined | Grouped
    seeds: dict[str, _Seed]
    emit: str
    scratch: FilePath
    target: FilePath
    folders: dict[str, list[FilePath]] = field(default_factory=dict)  # files of the tables, by stream

    @property
    def made(self) -> FilePath:
        """The new checkpoint, until it gets its place."""
        return self.scratch / "checkpoint"

    def run(self) -> dict[str, Any]:
        """Write the new checkpoint; returns the counters of the seed."""
        assert self.joined.again is not None, "made by `join`"
        for number, (name, seed) in enumerate(self.seeds.items()):
            self.folders[name] = self._written(number, seed)
        seeded = self.joined.again(self._seeded)
        self._compare(seeded)
        self.made.mkdir()
        written = self.scratch / "written"
        counted = self._run(seeded, written)
        for operator in (written / "state").iterdir():
            if operator.name.isdigit():
                adopt_state(operator, int(operator.name), self.made, self.target, 1)
        for log in ("offsets", "commits"):
            (self.made / log).mkdir()
        head = (written / "offsets" / "0").read_text().split("\n")[:2]
        unread = ["-"] * count_sources(self.joined._rows)
        (self.made / "offsets" / "0").write_text("\n".join([*head, *unread]))
        for name in ("commits/0", "metadata"):
            files.copy(written / name, self.made / name)
        return counted

    def _written(self, number: int, seed: _Seed) -> list[FilePath]:
        """The tables of a stream as files: Spark makes a batch of what a source has, and a table is none."""
        folders = [self.scratch / f"table-{number}-{n}" for n in range(len(seed.dfs))]
        for df, folder in zip(seed.dfs, folders, strict=True):
            df.write.parquet(files.url(folder))
        return folders

    def _seeded(self, name: str, s: Stream) -> Stream:
        """The stream over its tables."""
        seed = self.seeds[name]
        folders = zip(seed.dfs, self.folders[name], strict=True)
        rows, *apart = (self.spark.readStream.schema(df.schema).parquet(files.url(at)) for df, at in folders)
        try:
            made = seed.origin.make(rows, apart)
        except (AnalysisException, QueryError) as error:
            raise QueryError(
                f"stream `{name}` cannot be made of its table: {str(error).splitlines()[0]}",
                hint="write `filter`, conditions and columns of punctuations as texts, or with F.col(…): a column of "
                "the stream's DataFrame (df.x) is not one of the table.",
            ) from error
        return replace(made, until=seed.until)

    def _compare(self, seeded: Joined | Grouped) -> None:
        """Refuse a seed whose state would not be that of the query."""
        ours, theirs = ([(query.digest(), ids) for query, ids in j._operators] for j in (seeded, self.joined))
        if ours != theirs:
            raise StateMismatchError(
                "the join over the tables is another one than that over the streams.",
                hint="use the settings of the session with which `joined` was made (spark.sql.shuffle.partitions).",
            )

    def _run(self, seeded: Joined | Grouped, written: FilePath) -> dict[str, Any]:
        """Run the seed as one batch."""
        now, place = {"availableNow": True}, files.url(written)
        rows = files.url(self.made / SEED / ROWS)
        writer = seeded._rows.where(F.col(KIND) != STATS).writeStream.option("checkpointLocation", place)
        if self.emit == "all":
            writer = writer.foreachBatch(lambda batch, _: batch.write.mode("overwrite").parquet(rows))
        else:
            writer = writer.format("noop")
        with (
            changed_settings(self.spark, WHOLE_SNAPSHOTS),
            sessions.default_file_manager(self.spark, place),
            sessions.bounded_run(self.spark, now),
        ):
            query = with_own_errors(writer.trigger(**now).start())
        try:
            query.awaitTermination()
        finally:
            query.stop()
        progress = [p for p in query.recentProgress if p.batchId == 0]
        assert (written / "commits" / "0").exists(), "the tables have files, so there is a batch"
        assert not (written / "commits" / "1").exists(), "all files come in one batch"
        return counters(progress[-1])


def _seeds(
    spark: SparkSession,
    joined: Joined | Grouped,
    tables: Mapping[str, Table],
    as_of: Moment | Mapping[str, Moment] | None,
) -> dict[str, _Seed]:
    """What takes the place of each stream; refuses what cannot."""
    streams = _streams(joined)
    _require_names(tables, "tables", streams, "a table")
    if isinstance(as_of, Mapping):
        _require_names(as_of, "as_of", streams, "an event time")
    out = {}
    for name, s in streams.items():
        assert s.origin is not None, "made by `stream`"
        moment = as_of[name] if isinstance(as_of, Mapping) else as_of
        if moment is None and s.late_share is not None:
            raise QueryError(
                f'stream `{name}` has delay="auto", and there is no `as_of`; a delay is measured by the order in which '
                "rows come, and a table has none.",
                hint="give `as_of`, the event time to which the tables reach, or a `delay`.",
            )
        for df in (s.origin.df, *s.origin.punctuations):
            node = stateful_node(df)
            if node is not None:
                raise QueryError(
                    f"the DataFrame of stream `{name}` keeps state of its own ({node}), which no table fills.",
                    hint="join before that, or continue the results of a join with joined.as_stream(…).",
                )
        until = None if moment is None else _micros(spark, moment, s.time_type)
        dfs = _fitting(spark, tables[name], name, s.origin)
        out[name] = _Seed(s.origin, tuple(df if until is None else _before(df, s.time, until) for df in dfs), until)
    return out


def _streams(joined: Joined | Grouped) -> dict[str, Stream]:
    """The streams of a join, and of those before it, by name."""
    plain = joined.joined if isinstance(joined, Grouped) else joined
    if "wo_join" in plain.algorithms:
        raise QueryError(
            '`joined` has window="auto"; what it keeps follows from the order in which rows come, which tables do not '
            "have.",
            hint="give the streams windows, or start the query from earlier positions of its sources.",
        )
    found: dict[str, Stream] = {}

    def collect(name: str, s: Stream) -> Stream:
        if found.setdefault(name, s).origin is not s.origin:
            raise QueryError(
                f"two streams are called `{name}`; `tables` could not tell them apart.", hint="set `name`."
            )
        return s

    assert joined.again is not None, "made by `join`"
    joined.again(collect)
    return found


def _require_names(given: Any, argument: str, streams: Mapping[str, Stream], what: str) -> None:
    if not isinstance(given, Mapping):
        raise QueryError(
            f"`{argument}` is {kind_of(given)}; it is a dictionary with {what} for each stream.",
            hint=f'{argument}={{"{next(iter(streams))}": …}}.',
        )
    for name in given:
        if name not in streams:
            hint = suggestion(str(name), list(streams), "the streams are")
            raise QueryError(f"`{argument}` has {what} for `{name}`, which is no stream of the join.", hint=hint)
    for name in streams:
        if name not in given:
            hint = "give an empty one if it has no rows yet: spark.createDataFrame([], df.schema)."
            raise QueryError(
                f"`{argument}` has no {what.split(' ', 1)[1]} for stream `{name}`.",
                hint=hint if argument == "tables" else f'give one for each stream, or one for all: {argument}="…".',
            )


def _fitting(spark: SparkSession, table: Table, name: str, origin: Origin) -> list[DataFrame]:
    """The rows of a stream and its punctuations, with the columns that they have in the stream."""
    given: list[Any] = list(table) if isinstance(table, list | tuple) else [table]
    models = [origin.df, *origin.punctuations]
    if not given or len(given) > len(models):
        apart = len(models) - 1
        raise QueryError(
            f"`tables` has {len(given)} DataFrames for stream `{name}`, which has {apart or 'no'} "
            f"DataFrame{'' if apart == 1 else 's'} of punctuations alone.",
            hint="give the rows, or a tuple of the rows and of the punctuations in the order of `punctuation`.",
        )
    for df in given:
        if not isinstance(df, DataFrame) or df.isStreaming:
            what = "a streaming DataFrame" if isinstance(df, DataFrame) else kind_of(df)
            raise QueryError(
                f"`tables` has {what} for stream `{name}`; a table is a static DataFrame.",
                hint=f'{{"{name}": spark.read.parquet("…")}}.',
            )
    given += [spark.createDataFrame([], model.schema) for model in models[len(given) :]]
    return [_with_columns(df, model, name) for df, model in zip(given, models, strict=True)]


def _with_columns(table: DataFrame, model: DataFrame, name: str) -> DataFrame:
    kinds = {f.name: f.dataType.simpleString() for f in table.schema}
    for wanted in model.schema:
        kind = wanted.dataType.simpleString()
        if wanted.name not in kinds:
            raise ColumnError(
                f"the table of stream `{name}` has no column `{wanted.name}`.",
                hint=suggestion(wanted.name, table.columns, "its columns are"),
            )
        if kinds[wanted.name] != kind:
            raise ColumnError(
                f"column `{wanted.name}` is {kinds[wanted.name]} in the table of stream `{name}`, and {kind} in the "
                "stream.",
                hint=f'cast it: table.withColumn("{wanted.name}", F.col("{wanted.name}").cast("{kind}")).',
            )
    return table.select(*(operators.quoted(f.name) for f in model.schema))


def _micros(spark: SparkSession, moment: Any, kind: DataType) -> int:
    """An event time in microseconds."""
    if isinstance(moment, datetime):
        local = isinstance(kind, TimestampNTZType)
        if (moment.tzinfo is None) != local:
            has = "has no time zone" if moment.tzinfo is None else "has a time zone"
            raise QueryError(
                f"`as_of` {has} ({moment.isoformat()}), and event times are {kind.simpleString()}.",
                hint="leave it out." if local else "e.g. datetime(2026, 5, 1, tzinfo=UTC), or a text.",
            )
        since = (moment.replace(tzinfo=UTC) if local else moment) - datetime.fromtimestamp(0, UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if isinstance(moment, str):
        found = spark.range(1).select(F.lit(moment).try_cast(kind).alias("at")).toArrow().column("at")
        if found[0].is_valid:
            return int(found.cast(pa.int64())[0].as_py())
    raise QueryError(
        f"`as_of` is {repr(moment) if isinstance(moment, str) else kind_of(moment)}; it is an event time.",
        hint='as_of="2026-05-01 00:00:00", a datetime, or a dictionary with one for each stream.',
    )


def _before(df: DataFrame, time: str, until: int) -> DataFrame:
    """The rows before an event time, and those without one."""
    at = operators.quoted(time)
    return df.where(at.isNull() | (at < _literal(until, df.schema[time].dataType)))


def _literal(micros: int, kind: DataType) -> Column:
    if isinstance(kind, TimestampNTZType):
        return F.lit((datetime(1970, 1, 1) + timedelta(microseconds=micros)).isoformat(" ")).cast(kind)
    return F.timestamp_micros(F.lit(micros))
