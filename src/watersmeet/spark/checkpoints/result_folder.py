"""Folders to which a query writes its batches, marked with the id of the query.

A batch is a folder `batch=<number>`, which a further attempt at the batch replaces. Another query has batches with the
same numbers: it would replace some and leave others. So the folder holds the id of its query (the one in the
checkpoint's `metadata`) in a file of `_watersmeet`, a name that Spark leaves out when it reads the folder. A checkpoint
that continues another one has its id, and a line of names: one for each time that it was rescaled, evolved or copied.
The folder gets the last name with the first batch from there, and from then on takes no batch of a checkpoint without
it. All of it is read and written through Spark's file system, wherever the folder is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from watersmeet.errors import QueryError, StateCorruptError
from watersmeet.spark.checkpoints.file_system import FilePath, reached
from watersmeet.spark.planning.arguments import kind_of

MARK = "_watersmeet"
#: The file of a checkpoint with its line of names.
LINE = "line"


@dataclass(frozen=True)
class Folder:
    """A folder to which one query writes. `argument` is the name of the user's argument."""

    path: str
    argument: str
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    reads_once: ClassVar[bool] = True

    def check(self, spark: SparkSession, query: str | None, line: Sequence[str] = ()) -> bool:
        """Refuse a folder of another query, of an unknown one, or of one that continues `query` otherwise than `line`.

        True if it belongs to this one.
        """
        marks, batches = _contents(spark, self.path)
        writers, names = {mark.split()[0] for mark in marks}, {name for mark in marks for name in mark.split()[1:]}
        if writers - {query}:
            raise QueryError(
                f"`{self.argument}` {self.path} holds the batches of another query ({', '.join(sorted(writers))}); "
                "this one has batches of the same numbers, which would replace some of them and leave others.",
                hint="give a folder that is not there yet, or start with the checkpoint of the query that wrote it.",
            )
        if names - set(line):
            raise QueryError(
                f"`{self.argument}` {self.path} holds batches of another checkpoint that continues this one or comes "
                "from the same (it was rescaled, evolved or copied); this one has batches of the same numbers.",
                hint="go on with that checkpoint, or give a folder that is not there yet.",
            )
        if not writers and batches:
            raise QueryError(
                f"`{self.argument}` {self.path} holds batches, and no {MARK} that says which query wrote them; "
                "batches of the same numbers would replace some of them and leave others.",
                hint="give a folder that is not there yet.",
            )
        return bool(writers) and names.issuperset(line[-1:])

    def claim(self, spark: SparkSession, query: str, line: Sequence[str] = ()) -> None:
        """Make it the folder of `query`, before anything is written to it."""
        if not self.check(spark, query, line):
            rows = spark.range(0, 1, 1, 1).select(F.lit(" ".join([query, *line[-1:]])).alias("query"))
            rows.write.mode("append").text(f"{self.path}/{MARK}")
            self.check(spark, query, line)  # of two queries that claim it at once, each sees the other

    def write(self, rows: DataFrame, batch: int) -> None:
        writer = rows.write.format(self.format).options(**self.options).mode("overwrite")
        writer.save(f"{self.path}/batch={batch:06d}")


def location(value: Any, argument: str) -> str:
    """A folder as a text. URLs stay as they are."""
    text = str(value) if isinstance(value, str | Path) else ""
    if not text.strip():
        raise QueryError(
            f"`{argument}` is {repr(value) if value == '' else kind_of(value)}; it is a folder.",
            hint=f'{argument}="out/{argument}".',
        )
    if isinstance(value, Path) and re.match(r"[A-Za-z][\w+.-]+:/", text):
        raise QueryError(
            f"`{argument}` is the Path {text}, which has lost a slash of its URL.",
            hint=f'give it as a text: {argument}="{text.replace(":/", "://", 1)}".',
        )
    return text.rstrip("/") or "/"


def refuse_shared(folders: Mapping[str, str]) -> None:
    """Refuse two outputs, or an output and the checkpoint, in one folder."""
    taken: dict[str, str] = {}
    for argument, path in folders.items():
        plain = re.sub(r"^file:/+", "/", path)
        other = taken.setdefault(plain if "://" in plain else os.path.abspath(plain), argument)
        if other != argument:
            raise QueryError(
                f"`{argument}` and `{other}` are one folder, {path}; each would replace what the other writes.",
                hint=f"give each a folder of its own, e.g. {path}/{argument} and {path}/{other}.",
            )


def query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """The id of the query that a checkpoint is for; None if there is none yet."""
    folder = driver_path(spark, checkpoint)
    if folder is not None and not (folder / "metadata").exists():
        return None
    rows = read_text(spark, f"{literal(checkpoint)}/metadata")
    if not rows:
        return None
    try:
        return str(json.loads(rows[0][0])["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorruptError(
            f"`checkpoint` {checkpoint} is no checkpoint of a query: its `metadata` has no id.",
            hint="restore the checkpoint from a copy, or give another folder.",
        ) from error


def line_of(spark: SparkSession, checkpoint: str) -> list[str]:
    """The names that a checkpoint got when it was made of another one, and those of that one."""
    folder = driver_path(spark, checkpoint)
    if folder is None:
        return [row[0] for row in read_text(spark, f"{literal(checkpoint)}/{LINE}") or ()]
    return (folder / LINE).read_text().split() if (folder / LINE).exists() else []


def _contents(spark: SparkSession, path: str) -> tuple[set[str], bool]:
    """The marks of a folder, and whether it has batches.

    Spark warns of paths that do not exist, so files are listed where they can be; a client of Spark Connect cannot.
    """
    folder = driver_path(spark, path)
    if folder is None:
        found = {row[0] for row in read_text(spark, f"{literal(path)}/{MARK}/part-*") or ()}
        return found, _has(spark, f"{literal(path)}/batch=*")
    entries = list(folder.iterdir()) if folder.is_dir() else []
    marks = [file for entry in entries if entry.name == MARK for file in entry.iterdir()]
    texts = [file.read_text() for file in marks if file.name.startswith("part-")]
    return {line for text in texts for line in text.splitlines()}, any(e.name.startswith("batch=") for e in entries)


def driver_path(spark: SparkSession, path: str) -> FilePath | None:
    """The path as the driver reaches it; None for a client of Spark Connect, whose files are others."""
    return None if getattr(spark, "_jvm", None) is None else reached(spark, path)


def read_text(spark: SparkSession, path: str) -> list[Any] | None:
    """Lines of the files of a path; None if there are none."""
    try:
        return spark.read.text(path).collect()
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise


def _has(spark: SparkSession, path: str) -> bool:
    try:
        return bool(spark.read.text(path).columns)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise


def literal(path: str) -> str:
    """A path in which Spark sees no pattern."""
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)
