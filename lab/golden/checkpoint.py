"""A golden checkpoint of a real query: `python -m lab.golden.checkpoint`, once per state format, when that is final.

`checkpoint-<format>.tar.gz` holds the whole checkpoint of a streaming query after some batches, and `checkpoint.json`
the rows of all batches. Their source has numbers of batches as offsets: the checkpoint of a file source would contain
absolute names of files.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import watersmeet as wm
from lab import ROOT
from watersmeet.spark.runtime.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from watersmeet.state.durable import log

FOLDER = ROOT / "tests" / "golden"
INPUT = FOLDER / "checkpoint.json"
WRITTEN, BATCHES, ROWS = 5, 8, 30
START = datetime(2026, 1, 1, tzinfo=UTC)
DDL = {s: f"k bigint, {s}_ts timestamp, {s}_n bigint, {s}_over boolean" for s in "ab"}
#: Replaces the checkpoint's path in the archive.
HERE = "file:CHECKPOINT"
#: Windows and delay in seconds; stream b closes keys.
WINDOWS, DELAY = {"a": 20, "b": 12}, 2

Rows = list[list[Any]]  # key, seconds since START, number, whether it closes the key


def made_up() -> dict[str, list[Rows]]:
    """Both streams, batch by batch: keys of which some are closed by b, disorder, late rows, NULL keys."""
    chance = Random(1)
    out: dict[str, list[Rows]] = {"a": [], "b": []}
    for batch in range(BATCHES):
        for s, batches in out.items():
            rows: Rows = []
            for n in range(ROWS):
                at = batch * 5 + chance.random() * 5 - (9 if chance.random() < 0.04 and batch else 0)
                key = None if chance.random() < 0.05 else int(max(0, at)) // 2 + chance.randrange(6)
                rows.append([key, round(at, 3), batch * ROWS + n, False])
            if s == "b":
                rows += [[k, batch * 5 - 9.0, None, True] for k in (batch * 2 - 9, batch * 2 - 8) if k >= 0]
            batches.append(rows)
    return out


@dataclass(frozen=True)
class Numbered(InputPartition):
    batch: int


@dataclass
class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One batch of the stored rows per micro-batch, up to `until`."""

    stream: str
    until: int

    def initialOffset(self) -> dict[str, int]:
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(1)  # the rows of one batch

    def prepareForTriggerAvailableNow(self) -> None:
        return

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        step = self.until if isinstance(limit, ReadAllAvailable) else 1
        return {"batch": min(start["batch"] + step, self.until)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Numbered]:
        return [Numbered(batch) for batch in range(start["batch"], end["batch"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, Numbered), "a partition is a batch"
        for key, at, number, over in json.loads(INPUT.read_text())[self.stream][partition.batch]:
            yield key, START + timedelta(seconds=at), number, over


class GoldenSource(DataSource):
    """The format `golden`; options `stream` and `until`."""

    @classmethod
    def name(cls) -> str:
        return "golden"

    def schema(self) -> str:
        return DDL[self.options["stream"]]

    def streamReader(self, schema: object) -> Reader:
        return Reader(self.options["stream"], int(self.options["until"]))


def joined(spark: SparkSession, until: int) -> wm.Joined:
    """The query of the golden checkpoint: a full join with punctuations."""
    spark.dataSource.register(GoldenSource)
    streams = []
    for s in "ab":
        df = spark.readStream.format("golden").option("stream", s).option("until", until).load()
        closes = wm.when(f"{s}_over", on="k")
        times = {"window": f"{WINDOWS[s]} seconds", "delay": f"{DELAY} seconds"}
        streams.append(wm.stream(df, time=f"{s}_ts", punctuation=closes, name=s, **times))
    return wm.join(*streams, on="k", how="full")


def run(spark: SparkSession, until: int, checkpoint: Path) -> list[tuple[Any, ...]]:
    """The results of all batches before `until` that the checkpoint does not contain."""
    out: list[tuple[Any, ...]] = []

    def take(rows: DataFrame, _: int) -> None:
        out.extend(tuple(row) for row in rows.select("k", "a_n", "b_n").collect())

    writer = joined(spark, until).df.writeStream.foreachBatch(take).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return out


def main() -> None:
    target = FOLDER / f"checkpoint-{log.FORMAT}.tar.gz"
    assert not target.exists(), "a golden checkpoint is never written anew"
    INPUT.write_text(json.dumps(made_up()))
    folder = Path(tempfile.mkdtemp())
    spark = wm.session(master="local[2]", shards=2, spark_log_level="ERROR")
    run(spark, WRITTEN, folder / "checkpoint")
    spark.stop()
    pack(folder / "checkpoint", target)
    shutil.rmtree(folder)


def pack(checkpoint: Path, target: Path) -> None:
    """The checkpoint as an archive that can be unpacked anywhere."""
    _moved(checkpoint, f"file:{checkpoint}", HERE)
    with tarfile.open(target, "w:gz") as archive:
        archive.add(checkpoint, "checkpoint", filter=_anonymous)


def unpack(format: int, folder: Path) -> Path:
    """The golden checkpoint of a format, unpacked in `folder`."""
    with tarfile.open(FOLDER / f"checkpoint-{format}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        archive.extractall(folder)
    _moved(folder / "checkpoint", HERE, f"file:{folder / 'checkpoint'}")
    return folder / "checkpoint"


def _moved(checkpoint: Path, before: str, after: str) -> None:
    """Correct the checkpoint's path in the operator's metadata: Spark keeps the absolute name of the schema's file."""
    for file in checkpoint.glob("state/*/_metadata/v2/*"):
        if not file.name.startswith(".") and before in file.read_text():
            file.write_text(file.read_text().replace(before, after))
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member without owner and time."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = int(START.timestamp())
    return member


if __name__ == "__main__":
    main()
