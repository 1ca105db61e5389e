"""`wm.write`: one streaming query, several outputs, each batch computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import QueryError
from watersmeet.model import durations
from watersmeet.model.durations import Duration
from watersmeet.spark.checkpoints import result_folder as folders
from watersmeet.spark.checkpoints.checkpoint_folder import refuse_incomplete
from watersmeet.spark.checkpoints.planned_batch import (
    last_batch_begun,
    plan_clock_batch,
    plan_last_batch,
    refuse_begun,
    require_reach,
)
from watersmeet.spark.checkpoints.result_folder import Folder
from watersmeet.spark.checkpoints.seed_results import deliver_seed
from watersmeet.spark.checkpoints.state_reader import compare
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.joined import Joined
from watersmeet.spark.lake_tables import DeltaTable, IcebergTable
from watersmeet.spark.planning.arguments import kind_of, require_bool, require_join
from watersmeet.spark.planning.spark_words import refuses_in_sentences
from watersmeet.spark.progress.hot_key_tables import HotKeyTables, tables_for
from watersmeet.spark.runtime import output_columns as operators
from watersmeet.spark.runtime.query_errors import with_own_errors
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, LATE, MALFORMED, PUNCTUATION, RESULT, VIOLATION
from watersmeet.spark.session import bounded_run, default_file_manager
from watersmeet.spark.streams import ends as ends_after

#: A function of (rows, batch number), a folder for parquet files, or a table.
Writer = Callable[[DataFrame, int], Any] | Folder | DeltaTable | IcebergTable
Sink = Writer | str | Path
#: Columns of a message that could not be read as a row; see `pipelines.messages.dead_letters`.
_DEAD_LETTER = (
    "stream string, topic string, partition int, offset bigint, timestamp timestamp, key string, value string, "
    "reason string"
)


@refuses_in_sentences
def write(
    joined: Joined | Grouped,
    *,
    checkpoint: str | Path | None = None,
    results: Sink | None = None,
    late: Sink | None = None,
    violations: Sink | None = None,
    punctuations: Sink | None = None,
    trigger: Duration | dict[str, Any] | None = None,
    ends: bool = False,
    split_hot_keys: bool = True,
    checkpointLocation: str | Path | None = None,  # Spark's spelling
    outputMode: str | None = None,  # Spark's spelling
) -> StreamingQuery:
    """Start a query that sends results (or groups), late rows, violations and output punctuations to a sink each.

    Late and violating rows come as `stream`, `row` (JSON), `shard` and `kind` ("late", "violation"). Without a sink of
    their own, violations go with the late rows.

    A sink is a folder, a table or a function of ``(DataFrame, batch number)``. In a folder each batch is written as
    parquet under ``batch=<number>``, replacing what an interrupted attempt left; to a table (`wm.delta`, `wm.iceberg`)
    it is added as a transaction: both hold each batch exactly once. A function is called at least once; it may use the
    number of the batch to the same end. The batch is computed once, and kept while several sinks, or a function, read
    it. `trigger` is a duration ("10 seconds") or what ``DataStreamWriter.trigger`` takes, as a dictionary.
    `checkpointLocation` is Spark's name for `checkpoint`. `outputMode` may be given, and is what the join has anyway:
    "append", or "update" for groups with ``emit="update"``.

    With `ends` the run is the last one of the checkpoint: the call processes all input that is there (as the trigger
    `availableNow` does), and then returns the query of one more batch, after which all streams have ended: rows without
    a partner, groups and whatever else is final because nothing more will come. The checkpoint cannot be continued. A
    run that is interrupted is repeated with the same call.

    With `split_hot_keys` a key of which a few batches in a row have so many rows that its shard would do most of the
    work is split over the shards while the query runs, and merged again when it has cooled; the results are the same
    (see docs/operating.md). Without it, keys that the state has split are merged.

    A folder belongs to the query that wrote it, and a checkpoint to the query that it was made for. Another query (a
    changed one, or the same with a new checkpoint) is refused before anything is started or replaced. What the query
    raises later (``awaitTermination``, ``exception``) is an error of Watersmeet's if the cause is one, with Spark's as
    its ``__cause__``.
    """
    require_join(joined, "write")
    _check_mode(joined, outputMode)
    if checkpoint is not None and checkpointLocation is not None:
        raise QueryError(
            "`checkpoint` and `checkpointLocation` are both given; they name one folder.", hint="give one."
        )
    place = checkpointLocation if checkpoint is None else checkpoint
    given: dict[str, Sink | None] = {"results": results, "late": late, "violations": violations}
    given |= {"punctuations": punctuations}
    return start_writing(joined, None, given, place, trigger, ends=ends, split_hot_keys=split_hot_keys)


def start_writing(
    joined: Joined | Grouped,
    dead_letters: DataFrame | None,
    given: Mapping[str, Sink | None],
    checkpoint: str | Path | None,
    trigger: Duration | dict[str, Any] | None,
    *,
    ends: bool = False,
    split_hot_keys: bool = True,
) -> StreamingQuery:
    """`write` with sinks by name; `dead_letters` are messages of the same sources for the sink `malformed`."""
    require_join(joined, "write")
    if not joined.streaming:
        raise QueryError(
            "`write` starts a streaming query, and these streams are static DataFrames.",
            hint="use joined.df.write, or read the inputs with spark.readStream.",
        )
    sinks = {name: _sink(name, sink) for name, sink in given.items() if sink is not None}
    if not sinks:
        raise QueryError("`write` has no sink.", hint="give `results`, `late`, `violations` or `punctuations`.")
    pace = _trigger(trigger)
    require_bool(ends, "ends")
    require_bool(split_hot_keys, "split_hot_keys")
    if ends and pace not in ({}, {"availableNow": True}):
        raise QueryError(
            f"`ends` is true and `trigger` is {trigger!r}; a run that ends processes the input that is there.",
            hint='leave `trigger` out, or use trigger={"availableNow": True}.',
        )
    place = folders.location(checkpoint, "checkpoint")
    own = [sink for sink in sinks.values() if isinstance(sink, Folder)]
    tables = {name: sink.path for name, sink in sinks.items() if isinstance(sink, Folder | DeltaTable | IcebergTable)}
    folders.refuse_shared({"checkpoint": place} | tables)
    spark = (joined.joined if isinstance(joined, Grouped) else joined).streams[0].df.sparkSession
    known, headers = folders.query_id(spark, place), []
    if known is None:
        refuse_incomplete(folders.driver_path(spark, place))
    else:
        headers = compare(spark, place, joined._operators)
    hot_keys = tables_for(joined, headers, splits=split_hot_keys)
    for folder in own:
        folder.check(spark, known, folders.line_of(spark, place))
    if ends:
        require_reach(spark, place)
    else:
        refuse_begun(spark, place)
    deliver_seed(spark, place, _splitting(sinks, joined.names, place))
    if not ends:
        if _follows_clock(joined) and not pace.keys() & {"availableNow", "once"} and _stopped(spark, known):
            plan_clock_batch(spark, place)
        return _start(joined, dead_letters, sinks, place, pace, hot_keys)
    if not last_batch_begun(spark, place):  # one that was interrupted may be in the sinks: only it is run again
        _start(joined, dead_letters, sinks, place, {"availableNow": True}, hot_keys).awaitTermination()
        plan_last_batch(spark, place)
    assert joined.again is not None, "made by `join`"
    return _start(joined.again(ends_after), dead_letters, sinks, place, {"once": True}, hot_keys)


def _follows_clock(joined: Joined | Grouped) -> bool:
    return any(s.idle_clock is not None for query, _ in joined._operators for s in query.streams)


def _stopped(spark: SparkSession, query: str | None) -> bool:
    """Whether no run of the query goes on in this session; one that Spark would stop for the new one is stopped."""
    active = [run for run in spark.streams.active if run.id == query]
    if active and spark.conf.get("spark.sql.streaming.stopActiveRunOnRestart") != "true":
        return False
    for run in active:
        run.stop()
    return True


def _start(
    joined: Joined | Grouped,
    dead_letters: DataFrame | None,
    sinks: dict[str, Writer],
    place: str,
    trigger: dict[str, Any],
    hot_keys: HotKeyTables | None,
) -> StreamingQuery:
    rows = joined._rows
    if dead_letters is not None:
        marked = dead_letters.select(F.lit(MALFORMED).cast("byte").alias(KIND), F.to_json(F.struct("*")).alias(DETAIL))
        rows = rows.unionByName(marked, allowMissingColumns=True)
    split, spark = _splitting(sinks, joined.names, place, hot_keys), rows.sparkSession
    writer = rows.writeStream.foreachBatch(split).option("checkpointLocation", place)
    with default_file_manager(spark, place), bounded_run(spark, trigger):
        run = with_own_errors((writer.trigger(**trigger) if trigger else writer).start())
    if hot_keys is not None:
        hot_keys.run = run
    return run


def _check_mode(joined: Joined | Grouped, mode: str | None) -> None:
    """Refuse an output mode that the join does not have."""
    updates = isinstance(joined, Grouped) and joined.query.group_by.emit == "update"
    own = "update" if updates else "append"
    if mode is not None and (not isinstance(mode, str) or mode.lower() != own):
        why = "every batch yields the groups it changed" if updates else "a row or group that came out never changes"
        raise QueryError(
            f'`outputMode` is {mode!r}, and this query has "{own}": {why}.',
            hint='leave it out; groups come as updates with .agg(…, emit="update").',
        )


def _trigger(trigger: Duration | dict[str, Any] | None) -> dict[str, Any]:
    """The arguments of ``DataStreamWriter.trigger``; empty for Spark's default."""
    if trigger is None or isinstance(trigger, dict):
        return trigger or {}
    if not isinstance(trigger, Duration) or str(trigger).lower() in ("availablenow", "once"):
        raise QueryError(
            f"`trigger` is {trigger!r}; it is a duration with its unit, or a dictionary.",
            hint='trigger="10 seconds", or trigger={"availableNow": True}.',
        )
    return {"processingTime": f"{durations.parse(trigger, 'trigger') // 1000} milliseconds"}


def _splitting(
    sinks: dict[str, Writer], names: list[str], checkpoint: str, hot_keys: HotKeyTables | None = None
) -> Callable[[DataFrame, int], None]:
    """The function for `foreachBatch`: each sink gets its part. The query claims its folders before the first batch."""
    unclaimed = [sink for sink in sinks.values() if isinstance(sink, Folder)]
    identified = any(isinstance(sink, Folder | DeltaTable | IcebergTable) for sink in sinks.values())
    alone = len(sinks) == 1 and all(_reads_once(sink) for sink in sinks.values())
    query: list[str] = []

    def deliver(batch: DataFrame, number: int) -> None:
        for name, sink in sinks.items():
            rows = _part(name, batch, names, violations="violations" in sinks)
            _deliver(sink, rows, number, f"{query[0]}/{name}")

    def split(batch: DataFrame, number: int) -> None:
        if hot_keys is not None:
            hot_keys.before(batch, number)
        if not query:
            query.append((folders.query_id(batch.sparkSession, checkpoint) or "") if identified else "")
        while unclaimed:
            unclaimed[-1].claim(batch.sparkSession, query[0], folders.line_of(batch.sparkSession, checkpoint))
            unclaimed.pop()
        if alone:
            deliver(batch, number)
            return
        batch.persist()
        try:
            batch.count()  # all of it, even if sinks read a part: a partition that is not computed writes no state
            deliver(batch, number)
        finally:
            batch.unpersist()

    return split


def _reads_once(sink: Writer) -> bool:
    """Whether a sink reads all rows, in one action. Tables may look at rows before they write, or skip a batch."""
    return bool(getattr(sink, "reads_once", False))


def _part(sink: str, batch: DataFrame, names: list[str], *, violations: bool) -> DataFrame:
    """The rows of a sink. Violations are among the late rows unless they have a sink of their own."""
    kind = F.when(F.col(KIND) == LATE, "late").otherwise("violation").alias("kind")
    if sink == "malformed":
        letter = F.from_json(F.col(DETAIL), _DEAD_LETTER).alias("letter")
        return batch.where(F.col(KIND) == MALFORMED).select(letter).select("letter.*")
    kinds, columns = {
        "results": ((RESULT,), [operators.quoted(name) for name in names]),
        "late": ((LATE,) if violations else (LATE, VIOLATION), [*operators.about(), kind]),
        "violations": ((VIOLATION,), [*operators.about(), kind]),
        "punctuations": ((PUNCTUATION,), [*operators.about()]),
    }[sink]
    return batch.where(F.col(KIND).isin(*kinds)).select(*columns)


def _deliver(sink: Writer, rows: DataFrame, batch: int, writer: str) -> None:
    if isinstance(sink, Folder):
        sink.write(rows, batch)
    elif isinstance(sink, DeltaTable | IcebergTable):
        sink.write(rows, batch, writer)
    else:
        sink(rows, batch)


def _sink(name: str, sink: Sink) -> Writer:
    if isinstance(sink, str | Path):
        return Folder(folders.location(sink, name), name)
    if not isinstance(sink, Folder | DeltaTable | IcebergTable) and not callable(sink):
        raise QueryError(
            f"`{name}` is {kind_of(sink)}; a sink is a folder, a table, or a function of (DataFrame, batch number).",
            hint=f'{name}="out/{name}", wm.delta("out/{name}"), or {name}=lambda df, batch: ….',
        )
    return sink
