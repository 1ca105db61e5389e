"""`wm.rescale_state`: a new checkpoint with another number of shards, from which a stopped query goes on.

Spark has no way to write state but to run a stateful query. So the old state is read, divided anew
(`joins.redistributing`), and handed, operator by operator, to a small query whose only batch writes it; what that
leaves becomes the state of the new checkpoint under the number of the batch that was complete. Offsets, commits and
sources are those of the old checkpoint: sources and sinks see the query go on.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
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

from watersmeet.errors import QueryError, StateError, StateMismatchError
from watersmeet.joins.redistributing import needs_one_shard, redistribute
from watersmeet.joins.reopening import query_of
from watersmeet.spark import session as sessions
from watersmeet.spark.folding import declare
from watersmeet.spark.placement import shard_ids
from watersmeet.spark.shard_reading import named
from watersmeet.spark.state_reader import Operator, State, read_state

_PARTITIONS = "spark.sql.shuffle.partitions"
_CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
#: Settings of the query that writes: whole snapshots, and few (large) rows at a time.
_WRITING = {_CHANGELOGS: "false", "spark.sql.execution.arrow.maxRecordsPerBatch": "8"}
_SEED = pa.schema([("shard", pa.int32()), ("id", pa.int64()), ("data", pa.binary())])
_SEED_DDL = "shard int, id bigint, data binary"
_HEADER = -1  # the id of a header among segments
#: Files of the checkpoint that the new one takes over as they are.
_TAKEN_OVER = ("metadata", "sources")


def rescale_state(spark: SparkSession, checkpoint: str | Path, new: str | Path, *, shards: int) -> State:
    """Write a new checkpoint with `shards` shards, from which the query of `checkpoint`, which has stopped, goes on.

    Results go on exactly: the next batch has the next number, reads on where the last one ended, and finds what it
    would have found. Start the query with ``wm.session(shards=…)`` and the new checkpoint. The old one is only read.
    Operators that count the rows of a whole stream stay in one shard. Both are folders that this process and Spark's
    workers reach under the same name.
    """
    old, target = _folder(checkpoint, "checkpoint"), _folder(new, "new")
    if type(shards) is not int or shards < 1:
        raise QueryError(f"`shards` is {shards!r}; it is a whole number from 1 on.")
    if target.exists() and any(target.iterdir()):
        raise QueryError(
            f"`new` {target} is there already, and not empty.", hint="give a folder that is not there yet."
        )
    sessions.check(spark)
    log = _Log(old)
    state = read_state(spark, old, batch=log.committed)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as place:
        rescaling = _Rescaling(state, shards, Path(place), target, log)
        made = rescaling.run()
        if _Log(old) != log:
            raise StateError(f"the query of {old} went on meanwhile.", hint="stop it first.")
        made.rename(target)
    return read_state(spark, target)


def _folder(path: str | Path, argument: str) -> Path:
    text = str(path).removeprefix("file://") if not str(path).startswith("file:/") else "/" + str(path)[5:].lstrip("/")
    if "://" in text:
        raise QueryError(
            f"`{argument}` is {path}; a checkpoint is rescaled in a folder of this machine.",
            hint="copy it to a disk that all workers see, rescale it, and copy the new one back.",
        )
    return Path(text).absolute()


class _Log:
    """The last batches of a checkpoint: which one is complete, and the one after it if it had begun."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.offsets, self.commits = _numbers(folder / "offsets"), _numbers(folder / "commits")
        if not self.commits:
            raise StateError(
                f"`checkpoint` {folder} has no complete batch.", hint="give the checkpoint of a query that has run."
            )
        self.committed = self.commits[-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Log) and (self.offsets, self.commits) == (other.offsets, other.commits)

    __hash__ = None  # type: ignore[assignment]


def _numbers(folder: Path) -> list[int]:
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


@dataclass
class _Rescaling:
    state: State
    shards: int
    place: Path
    target: Path
    log: _Log

    def run(self) -> Path:
        """The new checkpoint, complete, in a folder of its own."""
        made = self.place / "checkpoint"
        made.mkdir()
        counts = {o.id: 1 if needs_one_shard(query_of(o.sample)) else self.shards for o in self.state.operators}
        unique_ids = {}
        for operator in self.state.operators:
            seed = self._divide(operator, counts)
            unique_ids[operator.id] = self._write_state(operator, seed, made)
        self._copy_log(made, unique_ids)
        return made

    def _divide(self, operator: Operator, counts: dict[int, int]) -> Path:
        """The operator's state for its new shards, as files from which a query can read it."""
        home = self.place / f"operator-{operator.id}"
        headers = operator.sample
        old = {shard: FolderStore(home / "old" / str(shard)) for shard in headers.ids}
        for shard, data in operator.headers.items():
            old[shard].write_header(data)
        segments = self.state.segments(operator).toLocalIterator()
        for row in segments:
            old[row["shard"]].write_segment(row["id"], row["data"])
        count = counts[operator.id]
        ids = shard_ids(count, self.shards)
        new = [FolderStore(home / "new" / str(id)) for id in ids]
        redistribute([old[shard] for shard in headers.ids], new, ids, self._tellers(operator, counts))
        shutil.rmtree(home / "old")
        seed = home / "seed"
        seed.mkdir()
        for id, store in zip(ids, new, strict=True):
            _write_seed(seed / f"{id}.parquet", id, store)
        shutil.rmtree(home / "new")
        return seed

    def _tellers(self, operator: Operator, counts: dict[int, int]) -> list[int]:
        """By stream, the number of shards that the join before it will have."""
        before = {o.id: o.sample.shards for o in self.state.operators}
        out = []
        for stream in operator.sample.query["streams"]:
            had = stream.get("tellers", 0)
            could = {counts[id] for id, shards in before.items() if shards == had and id != operator.id}
            if had and len(could) != 1:
                raise StateMismatchError(
                    f"stream `{stream['name']}` comes from a join of {had} shards, and it does not show which one.",
                    hint="start from a new checkpoint.",
                )
            out.append(could.pop() if had else 0)
        return out

    def _write_state(self, operator: Operator, seed: Path, made: Path) -> list[Any]:
        """Have Spark write the state of an operator; gives the names under which it is found."""
        temporary = self.place / f"written-{operator.id}"
        spark = self.state.spark
        with _settings(spark, _WRITING | {_PARTITIONS: str(self.shards)}):
            rows = spark.readStream.schema(_SEED_DDL).parquet(str(seed)).mapInArrow(_same, _SEED_DDL)
            written = rows.groupBy("shard").transformWithStateInPandas(
                Seeding(), outputStructType="shard int", outputMode="Append", timeMode="None"
            )
            writer = written.writeStream.format("noop").option("checkpointLocation", str(temporary))
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            except PySparkException as error:
                raise named(error, f"the new state of operator {operator.id}") from error
            finally:
                query.stop()
        self._place(temporary / "state" / "0", operator.id, made)
        commit = json.loads((temporary / "commits" / "0").read_text().splitlines()[-1])
        ids: list[Any] = commit["stateUniqueIds"]["0"]
        return ids

    def _place(self, written: Path, id: int, made: Path) -> None:
        """Make the state that a first batch has written that of operator `id` after the last batch.

        A snapshot stands for itself, whatever was before it. Checksums that Hadoop keeps of local files go by name and
        would be missed or wrong; without them it checks nothing, and Spark's own stay.
        """
        folder, version = made / "state" / str(id), self.log.committed + 1
        shutil.copytree(written, folder, ignore=shutil.ignore_patterns(".*", "*.changelog*"))
        for file in folder.glob("*/1_*"):
            file.rename(file.with_name(f"{version}{file.name[1:]}"))
        (described,) = (folder / "_metadata" / "v2").iterdir()
        lines = described.read_text().split("\n")
        said = json.loads(lines[1])
        said["operatorInfo"]["operatorId"] = id
        for store in said["stateStoreInfo"]:
            names = [path.rpartition("/state/0/")[2] for path in store["stateSchemaFilePaths"]]
            store["stateSchemaFilePaths"] = [(self.target / "state" / str(id) / name).as_uri() for name in names]
        described.write_text("\n".join([lines[0], json.dumps(said, separators=(",", ":")), *lines[2:]]))

    def _copy_log(self, made: Path, unique_ids: dict[int, list[Any]]) -> None:
        """Offsets of the last batches with the new number of partitions; commits with the names of the new state."""
        for name in _TAKEN_OVER:
            source = self.log.folder / name
            if source.is_dir():
                shutil.copytree(source, made / name)
            elif source.exists():
                shutil.copy2(source, made / name)
        last = self.log.committed
        for folder in ("offsets", "commits"):
            (made / folder).mkdir()
        for number in (n for n in self.log.offsets if n >= last - 1):
            lines = (self.log.folder / "offsets" / str(number)).read_text().split("\n")
            metadata = json.loads(lines[1])
            metadata["conf"][_PARTITIONS] = str(self.shards)
            lines[1] = json.dumps(metadata, separators=(",", ":"))
            (made / "offsets" / str(number)).write_text("\n".join(lines))
        for number in (n for n in self.log.commits if n >= last - 1):
            lines = (self.log.folder / "commits" / str(number)).read_text().split("\n")
            if number == last:
                commit = json.loads(lines[1])
                commit["stateUniqueIds"] = {str(id): names for id, names in unique_ids.items()}
                lines[1] = json.dumps(commit, separators=(",", ":"))
            (made / "commits" / str(number)).write_text("\n".join(lines))


def _write_seed(file: Path, shard: int, store: FolderStore) -> None:
    """A shard's header and segments as a table, one row group each: they are large."""
    with pq.ParquetWriter(file, _SEED, compression="none") as writer:
        for id, data in store.parts():
            writer.write_table(pa.table([[shard], [id], [data]], schema=_SEED))


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


class Seeding(StatefulProcessor):
    """Writes header and segments of a shard into the state, as they are."""

    def init(self, handle: StatefulProcessorHandle) -> None:
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
        yield pd.DataFrame({"shard": pd.Series([key[0]], dtype="int32")})

    def close(self) -> None:
        return


@contextmanager
def _settings(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    """The session with other settings for a while; queries that run have their own."""
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
