"""One more batch of a query that has processed its input: an entry in the offset log, which Spark runs as left over.

Spark plans a batch by writing the positions of its sources into the offset log, and runs it again after a failure. An
entry with the positions of the last one is a batch without rows. Spark itself writes no two equal entries, because each
has the time of its batch; so a copy of the last entry marks the last batch of a checkpoint (`ends=True`).

A query that follows the clock needs such a batch when it is started again: before the first batch of a run Spark does
not see that shards have timers, and waits for rows. That batch has the time of the last one, so no watermark moves in
it, and rows that came while the query was down are on time in the next one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from pyspark.sql import SparkSession

from watersmeet.errors import QueryError, StateMismatchError
from watersmeet.spark.checkpoints.file_system import FilePath, move_new, reached


def require_reach(spark: SparkSession, checkpoint: str) -> FilePath:
    """The folder of a checkpoint; refuses one whose files cannot be written from here."""
    folder = reached(spark, checkpoint)
    if folder is None:
        raise QueryError(
            f"`ends` is true and `checkpoint` is {checkpoint}, which a client of Spark Connect does not reach; the "
            "last batch is planned by an entry in its offset log.",
            hint="run it in a session of its own (wm.session()), or end the streams by punctuations: wm.end(…).",
        )
    return folder


def last_batch_begun(spark: SparkSession, checkpoint: str) -> bool:
    """Whether the last batch is planned and not complete: its rows may be in the sinks already."""
    folder = reached(spark, checkpoint)
    if folder is None:
        return False
    planned, done = (_numbers(folder / log) for log in ("offsets", "commits"))
    number = max(planned, default=0)
    if number in done or not {number - 1, number} <= planned:
        return False
    entry, before = ((folder / "offsets" / str(n)).read_bytes() for n in (number, number - 1))
    return entry == before


def refuse_begun(spark: SparkSession, checkpoint: str) -> None:
    """Refuse a checkpoint whose last batch was begun: without `ends` it would run again as another batch."""
    if last_batch_begun(spark, checkpoint):
        raise StateMismatchError(
            f"the query of checkpoint {checkpoint} was interrupted in its last batch, after which its streams end "
            "(ends=True); the sinks may have rows of that batch.",
            hint="call wm.write with ends=True again; it completes that batch.",
        )


def plan_last_batch(spark: SparkSession, checkpoint: str) -> None:
    """Plan a batch without rows after the last one; nothing if no batch has run, or one is planned already."""
    _plan(require_reach(spark, checkpoint), lambda entry: entry)


def plan_clock_batch(spark: SparkSession, checkpoint: str) -> None:
    """The same a millisecond later, where the checkpoint is within reach and every source has been read."""
    folder = reached(spark, checkpoint)
    if folder is not None:
        with suppress(FileExistsError):  # another driver has planned one: Spark refuses one of the two
            _plan(folder, _a_moment_later)


def _a_moment_later(entry: bytes) -> bytes | None:
    version, metadata, *positions = entry.decode().split("\n")
    if "-" in positions:
        return None
    later = json.loads(metadata)
    later["batchTimestampMs"] += 1
    return "\n".join([version, json.dumps(later, separators=(",", ":")), *positions]).encode()


def _plan(folder: FilePath, changed: Callable[[bytes], bytes | None]) -> None:
    planned, done = (_numbers(folder / log) for log in ("offsets", "commits"))
    if not planned or max(planned) not in done:
        return
    offsets, number = folder / "offsets", max(planned) + 1
    entry = changed((offsets / str(number - 1)).read_bytes())
    if entry is None:
        return
    made = offsets / f".{number}.new"
    made.write_bytes(entry)
    move_new(made, offsets / str(number))


def _numbers(log: FilePath) -> set[int]:
    return {int(file.name) for file in log.iterdir() if file.name.isdigit()} if log.is_dir() else set()
