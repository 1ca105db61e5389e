"""One more batch of a query that has processed its input: an entry in the offset log, which Spark runs as left over.

Spark plans a batch by writing the positions of its sources into the offset log, and runs it again after a failure. A
copy of the last entry is a batch without rows. Spark itself writes no two equal entries, because each has the time of
its batch; so a copy shows that the last batch was begun.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from watersmeet.errors import QueryError, StateMismatchError
from watersmeet.spark.checkpoints.file_system import FilePath, reached


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
    folder = require_reach(spark, checkpoint)
    planned, done = (_numbers(folder / log) for log in ("offsets", "commits"))
    if not planned or max(planned) not in done:
        return
    offsets, number = folder / "offsets", max(planned) + 1
    made = offsets / f".{number}.new"
    made.write_bytes((offsets / str(number - 1)).read_bytes())
    made.rename(offsets / str(number))


def _numbers(log: FilePath) -> set[int]:
    return {int(file.name) for file in log.iterdir() if file.name.isdigit()} if log.is_dir() else set()
