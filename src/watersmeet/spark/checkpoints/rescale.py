"""`wm.rescale_state`: a new checkpoint with another number of shards, from which a stopped query goes on.

Spark has no way to write state but to run a stateful query. So the old state is read, divided anew
(`checkpoints.redistribute`), and written, operator by operator, by a small query with one batch. The files of that
query become the state of the new checkpoint, under the number of the last complete batch. Offsets, commits and
sources are those of the old checkpoint: sources and sinks see the query go on. Each new checkpoint adds a random name
to the `line` of those that it comes from, by which folders of results tell it from others that come from the same.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from watersmeet.checkpoints.redistribute import needs_one_shard, redistribute
from watersmeet.checkpoints.reopen import query_of
from watersmeet.errors import QueryError, StateError, StateMismatchError
from watersmeet.spark import session as sessions
from watersmeet.spark.checkpoints import file_system as files
from watersmeet.spark.checkpoints.checkpoint_folder import lack
from watersmeet.spark.checkpoints.file_system import FilePath
from watersmeet.spark.checkpoints.result_folder import LINE, location
from watersmeet.spark.checkpoints.seed_results import SEED
from watersmeet.spark.checkpoints.shard_contents import named
from watersmeet.spark.checkpoints.state_reader import Operator, State, read_state
from watersmeet.spark.planning.arguments import require_session
from watersmeet.spark.runtime.lazy_processor import declare
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.state.durable.log import Store

_CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
#: Settings of the queries that write: whole snapshots; few (large) rows at a time, and one batch, whatever timers say.
WHOLE_SNAPSHOTS = {_CHANGELOGS: "false"}
_WRITING = {
    **WHOLE_SNAPSHOTS,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    sessions.EMPTY_BATCHES: "false",
}
_SEED = pa.schema([("shard", pa.int32()), ("id", pa.int64()), ("data", pa.binary())])
_SEED_DDL = "shard int, id bigint, data binary"
_HEADER = -1  # the id of a header among segments
#: Files of the checkpoint that the new one takes over as they are.
_TAKEN_OVER = ("metadata", "sources", SEED)
#: The order in which parts of the new checkpoint get their place, where that is not one step: Spark would run a batch
#: again that is in `offsets` and not in `commits`, the first one of a checkpoint without the state.
_PARTS = ("state", "sources", SEED, LINE, "commits", "offsets", "metadata")


def rescale_state(
    spark: SparkSession, checkpoint: str | Path, new: str | Path, *, shards: int, tasks: int | None = None
) -> State:
    """Write a new checkpoint with `shards` shards, from which the query of `checkpoint`, which has stopped, goes on.

    Results go on exactly: the next batch has the next number, reads on where the last one ended, and finds the same
    tuples. Start the query with ``wm.session(shards=…)`` and the new checkpoint. The old one is only read. The shards
    share `tasks` tasks, by default as many as ``wm.session`` would give them here; with the number of shards that the
    checkpoint has, only the tasks change.
    Operators that count the rows of a whole stream stay in one shard. Both may be on any file system that Spark reads
    and writes (``hdfs://``, ``s3a://``, …); over Spark Connect they are folders of this machine.
    """
    require_session(spark, "rescale_state")
    old, target = checkpoint_folder(spark, checkpoint, "checkpoint"), new_folder(spark, new, "new")
    if type(shards) is not int or shards < 1:
        raise QueryError(f"`shards` is {shards!r}; it is a whole number from 1 on.")
    if tasks is not None:
        sessions.check_tasks(tasks, shards)
    count = tasks or sessions.tasks_for(spark, shards)
    write_anew(spark, old, target, lambda state, _: NewState(state, shards, count))
    return read_state(spark, location(new, "new"))


def write_anew(
    spark: SparkSession, old: FilePath, target: FilePath, new_state: Callable[[State, BatchLog], NewState]
) -> None:
    """Write the state after the last batch of a checkpoint, as `new_state` divides it, as a new checkpoint."""
    sessions.check(spark)
    log = BatchLog(old)
    divided = new_state(read_state(spark, files.url(old), batch=log.committed), log)
    beside = target.parent if isinstance(target, Path) else None
    with scratch_beside(target) as scratch:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=beside) as disk:
            made = _Rewriting(divided, Path(disk), scratch, target, log).run()
        if BatchLog(old) != log:
            raise StateError(f"the query of {old} went on meanwhile.", hint="stop it first.")
        publish(made, target)


@contextmanager
def scratch_beside(target: FilePath) -> Iterator[FilePath]:
    """A folder on the file system of a checkpoint, for a while."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.parent / f".{target.name}-{uuid.uuid4().hex[:8]}"
    scratch.mkdir()
    try:
        yield scratch
    finally:
        files.remove(scratch)


def publish(made: FilePath, target: FilePath) -> None:
    """Give a complete checkpoint its place."""
    if files.moved_whole(made, target):
        return
    target.mkdir(exist_ok=True)
    for name in _PARTS:
        if not (made / name).exists():
            continue
        if (target / name).exists():
            raise StateError(
                f"{target} has got a part of another checkpoint meanwhile, its {name}.",
                hint="write one checkpoint into a folder at a time; give a folder that is not there yet.",
            )
        (made / name).rename(target / name)


def new_folder(spark: SparkSession, path: str | Path, argument: str) -> FilePath:
    """A folder for a new checkpoint; refuses one that has something in it."""
    target = checkpoint_folder(spark, path, argument)
    if target.exists() and any(True for _ in target.iterdir()):
        raise QueryError(
            f"`{argument}` {target} is there already, and not empty.", hint="give a folder that is not there yet."
        )
    return target


def checkpoint_folder(spark: SparkSession, path: str | Path, argument: str) -> FilePath:
    """The folder of a checkpoint; refuses one that this process does not reach."""
    folder = files.reached(spark, location(path, argument))
    if folder is None:
        raise QueryError(
            f"`{argument}` is {path}, and the session is one of Spark Connect: a client reaches the files of its own "
            "machine only, and a checkpoint is made of single files.",
            hint="do it in a session without Connect, or copy it to a disk that all workers see.",
        )
    return folder


class BatchLog:
    """The last batches of a checkpoint: which one is complete, and the one after it if it had begun."""

    def __init__(self, folder: FilePath) -> None:
        self.folder = folder
        self.offsets, self.commits = _numbers(folder / "offsets"), _numbers(folder / "commits")
        wrong = lack(folder)
        if wrong is not None:
            raise StateError(f"`checkpoint` {folder} {wrong.what}.", hint=wrong.hint)
        self.committed = self.commits[-1]
        self.begun = self.offsets[-1] if self.offsets[-1] > self.committed else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchLog) and (self.offsets, self.commits) == (other.offsets, other.commits)

    __hash__ = None  # type: ignore[assignment]


def _numbers(folder: FilePath) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit()) if folder.is_dir() else []


class FolderStore:
    """A shard's durable state in a folder, a file for each segment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read_header(self) -> bytes | None:
        return self.read_segment(_HEADER)

    def write_header(self, data: bytes) -> None:
        (self.folder / str(_HEADER)).write_bytes(data)

    def read_segment(self, id: int) -> bytes | None:
        file = self.folder / str(id)
        return file.read_bytes() if file.exists() else None

    def write_segment(self, id: int, data: pa.Buffer) -> None:
        (self.folder / str(id)).write_bytes(data)

    def remove_segment(self, id: int) -> None:
        (self.folder / str(id)).unlink()

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """Header and segments with their ids."""
        for file in sorted(self.folder.iterdir(), key=lambda f: int(f.name)):
            yield int(file.name), file.read_bytes()


class NewState:
    """How the state of each operator is divided among its new shards, which share so many tasks."""

    def __init__(self, state: State, shards: int, tasks: int) -> None:
        self.state, self.shards, self.tasks = state, shards, tasks

    def ids(self, operator: Operator) -> tuple[int, ...]:
        """The ids of the operator's new shards."""
        count = 1 if needs_one_shard(query_of(operator.sample)) else self.shards
        return shard_ids(count, self.tasks)

    def write(self, operator: Operator, old: Sequence[Store], new: Sequence[Store]) -> None:
        """Write the state of the operator's old shards into the new ones."""
        redistribute(old, new, self.ids(operator), self._upstream_shards(operator))

    def _upstream_shards(self, operator: Operator) -> list[int]:
        """By stream, the number of shards that the join before it will have."""
        before = {o.id: o.sample.shards for o in self.state.operators}
        counts = {o.id: len(self.ids(o)) for o in self.state.operators}
        out = []
        for stream in operator.sample.query["streams"]:
            had = stream.get("upstream_shards", 0)
            could = {counts[id] for id, shards in before.items() if shards == had and id != operator.id}
            if had and len(could) != 1:
                raise StateMismatchError(
                    f"stream `{stream['name']}` comes from a join of {had} shards, and it does not show which one.",
                    hint="start from a new checkpoint.",
                )
            out.append(could.pop() if had else 0)
        return out


def _follows_clock(operator: Operator) -> bool:
    """Whether the shards have timers, by which Spark calls them in batches without rows."""
    return any(s.get("idle_clock") is not None for s in operator.sample.query["streams"])


@dataclass
class _Rewriting:
    new_state: NewState
    disk: Path  # of the driver
    scratch: FilePath  # on the file system of the new checkpoint
    target: FilePath
    log: BatchLog

    @property
    def state(self) -> State:
        return self.new_state.state

    def run(self) -> FilePath:
        """The new checkpoint, complete, in a folder of its own."""
        made = self.scratch / "checkpoint"
        made.mkdir()
        unique_ids = {}
        for operator in self.state.operators:
            seed = self._divide(operator)
            unique_ids[operator.id] = self._write_state(operator, seed, made)
        self._copy_log(made, unique_ids)
        return made

    def _divide(self, operator: Operator) -> FilePath:
        """The operator's state for its new shards, as files from which a query can read it."""
        home = self.disk / f"operator-{operator.id}"
        headers = operator.sample
        old = {shard: FolderStore(home / "old" / str(shard)) for shard in headers.ids}
        for shard, data in operator.headers.items():
            old[shard].write_header(data)
        segments = self.state.segments(operator).toLocalIterator()
        for row in segments:
            old[row["shard"]].write_segment(row["id"], row["data"])
        ids = self.new_state.ids(operator)
        new = [FolderStore(home / "new" / str(id)) for id in ids]
        self.new_state.write(operator, [old[shard] for shard in headers.ids], new)
        shutil.rmtree(home / "old")
        seed = self.scratch / f"seed-{operator.id}"
        seed.mkdir()
        for id, store in zip(ids, new, strict=True):
            file = home / f"{id}.parquet"
            _write_seed(file, id, store)
            files.upload(file, seed / file.name)
        shutil.rmtree(home / "new")
        return seed

    def _write_state(self, operator: Operator, seed: FilePath, made: FilePath) -> list[Any]:
        """Let Spark write the state of an operator; gives the unique ids of its files."""
        temporary = self.scratch / f"written-{operator.id}"
        spark, clock = self.state.spark, _follows_clock(operator)
        mode = "ProcessingTime" if clock else "None"
        with changed_settings(spark, _WRITING | {sessions.PARTITIONS: str(self.new_state.tasks)}):
            rows = spark.readStream.schema(_SEED_DDL).parquet(files.url(seed)).mapInArrow(_same, _SEED_DDL)
            written = rows.groupBy("shard").transformWithStateInPandas(
                Seeding(timers=clock), outputStructType="shard int", outputMode="Append", timeMode=mode
            )
            writer = written.writeStream.format("noop").option("checkpointLocation", files.url(temporary))
            with sessions.default_file_manager(spark, files.url(temporary)):
                query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            except PySparkException as error:
                raise named(error, f"the new state of operator {operator.id}") from error
            finally:
                query.stop()
        adopt_state(temporary / "state" / "0", operator.id, made, self.target, self.log.committed + 1)
        commit = json.loads((temporary / "commits" / "0").read_text().splitlines()[-1])
        ids: list[Any] = commit["stateUniqueIds"]["0"]
        return ids

    def _copy_log(self, made: FilePath, unique_ids: dict[int, list[Any]]) -> None:
        """Offsets of the last batches with the new number of tasks; commits with the names of the new state."""
        for name in _TAKEN_OVER:
            source = self.log.folder / name
            if source.exists():
                files.copy(source, made / name)
        line = self.log.folder / LINE
        earlier = line.read_text() if line.exists() else ""
        (made / LINE).write_text(f"{earlier}{uuid.uuid4().hex}\n")
        last = self.log.committed
        for folder in ("offsets", "commits"):
            (made / folder).mkdir()
        for number in (n for n in self.log.offsets if n >= last - 1):
            lines = (self.log.folder / "offsets" / str(number)).read_text().split("\n")
            metadata = json.loads(lines[1])
            metadata["conf"][sessions.PARTITIONS] = str(self.new_state.tasks)
            lines[1] = json.dumps(metadata, separators=(",", ":"))
            (made / "offsets" / str(number)).write_text("\n".join(lines))
        for number in (n for n in self.log.commits if n >= last - 1):
            lines = (self.log.folder / "commits" / str(number)).read_text().split("\n")
            if number == last:
                commit = json.loads(lines[1])
                commit["stateUniqueIds"] = {str(id): names for id, names in unique_ids.items()}
                lines[1] = json.dumps(commit, separators=(",", ":"))
            (made / "commits" / str(number)).write_text("\n".join(lines))


def adopt_state(written: FilePath, id: int, made: FilePath, target: FilePath, version: int) -> None:
    """Make the state that a first batch has `written` that of operator `id` in the checkpoint `made`, as `version`.

    A snapshot is complete: it needs no earlier version. Hadoop's checksums of local files depend on file names, so
    they stay behind; without them Hadoop checks nothing. Spark's own checksums come along. The checkpoint's place will
    be `target`, of which Spark stores absolute paths.
    """
    folder = made / "state" / str(id)
    _move_state(written, folder, version)
    (described,) = (folder / "_metadata" / "v2").iterdir()
    lines = described.read_text().split("\n")
    metadata = json.loads(lines[1])
    metadata["operatorInfo"]["operatorId"] = id
    for store in metadata["stateStoreInfo"]:
        names = [path.rpartition(f"/state/{written.name}/")[2] for path in store["stateSchemaFilePaths"]]
        store["stateSchemaFilePaths"] = [files.url(target / "state" / str(id) / name) for name in names]
    described.write_text("\n".join([lines[0], json.dumps(metadata, separators=(",", ":")), *lines[2:]]))


def _move_state(written: FilePath, folder: FilePath, version: int) -> None:
    """Move the files of a state's first version, snapshots under the number of another one."""
    folder.mkdir(parents=True)
    for entry in list(written.iterdir()):
        if entry.is_dir():
            _move_state(entry, folder / entry.name, version)
        elif not entry.name.startswith(".") and ".changelog" not in entry.name:
            first, _, rest = entry.name.partition("_")
            entry.rename(folder / (f"{version}_{rest}" if first == "1" and rest else entry.name))


def _write_seed(file: Path, shard: int, store: FolderStore) -> None:
    """A shard's header and segments as a table, one row group each: they are large."""
    with pq.ParquetWriter(file, _SEED, compression="none") as writer:
        for id, data in store.parts():
            writer.write_table(pa.table([[shard], [id], [data]], schema=_SEED))


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class Seeding(StatefulProcessor):
    """Writes header and segments of a shard into the state, as they are; `timers` call it in the next batch."""

    def __init__(self, *, timers: bool) -> None:
        self.timers = timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.header, self.segments = declare(handle)

    def handleInputRows(  # type: ignore[override]  # Spark's name; frames only
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            for id, data in zip(frame["id"], frame["data"], strict=True):
                if id == _HEADER:
                    self.header.update((bytes(data),))
                else:
                    self.segments.updateValue((int(id),), (bytes(data),))
        if self.timers:
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        yield pd.DataFrame({"shard": pd.Series([key[0]], dtype="int32")})

    def close(self) -> None:
        return


@contextmanager
def changed_settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """Change settings of the session for a while; running queries keep theirs."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            if was is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, was)
