"""Single files on every file system that Spark reaches.

Spark's readers and writers handle tables; a checkpoint consists of files with fixed names. Files of this machine are
`pathlib.Path`s. Those of other file systems (``hdfs://``, ``s3a://``, ``abfss://``) are `HadoopPath`s with the same
methods, through the Hadoop client in the driver's JVM, which Spark itself uses, with the session's settings. This is
the only module that calls it. A client of Spark Connect has no JVM: there, files of other machines are out of reach.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from watersmeet.errors import QueryError

_URL = re.compile(r"[A-Za-z][\w+.-]+:/")


class FilePath(Protocol):
    """The methods of `pathlib.Path` that checkpoints need."""

    @property
    def name(self) -> str: ...
    @property
    def parent(self) -> Self: ...
    def __truediv__(self, name: str) -> Self: ...
    def exists(self) -> bool: ...
    def is_dir(self) -> bool: ...
    def iterdir(self) -> Iterator[Self]: ...
    def read_bytes(self) -> bytes: ...
    def write_bytes(self, data: bytes) -> int: ...
    def read_text(self) -> str: ...
    def write_text(self, data: str) -> int: ...
    def mkdir(self, *, parents: bool = ..., exist_ok: bool = ...) -> None: ...
    def rename(self, target: Self) -> Any: ...


@dataclass(frozen=True)
class HadoopPath:
    """A path on a file system of Hadoop's: `path` is qualified, `system` its file system, `jvm` the driver's."""

    jvm: Any
    system: Any
    path: Any

    def __str__(self) -> str:
        return str(self.path.toString())

    @property
    def name(self) -> str:
        return str(self.path.getName())

    @property
    def parent(self) -> HadoopPath:
        return HadoopPath(self.jvm, self.system, self.path.getParent())

    def __truediv__(self, name: str) -> HadoopPath:
        return HadoopPath(self.jvm, self.system, self.jvm.org.apache.hadoop.fs.Path(self.path, name))

    def exists(self) -> bool:
        return bool(self.system.exists(self.path))

    def is_dir(self) -> bool:
        return self.exists() and bool(self.system.getFileStatus(self.path).isDirectory())

    def iterdir(self) -> Iterator[HadoopPath]:
        for status in self.system.listStatus(self.path):
            yield HadoopPath(self.jvm, self.system, status.getPath())

    def read_bytes(self) -> bytes:
        stream = self.system.open(self.path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write_bytes(self, data: bytes) -> int:
        stream = self.system.create(self.path, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        return len(data)

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_text(self, data: str) -> int:
        return self.write_bytes(data.encode())

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the folder and all above it; one that is there is left as it is."""
        self.system.mkdirs(self.path)

    def rename(self, target: HadoopPath) -> None:
        if not self.system.rename(self.path, target.path):
            raise OSError(f"{self} was not renamed to {target}")


def local(text: str) -> Path | None:
    """The path on this machine; None for other file systems (s3://…, hdfs://…)."""
    if text.startswith("file:/"):
        return Path("/" + text[5:].lstrip("/"))
    return None if _URL.match(text) else Path(text).absolute()


def reached(spark: SparkSession, text: str) -> FilePath | None:
    """The path of a text, which may be a URL; None if only Spark reaches it, over Spark Connect.

    Without a scheme it is on the session's default file system, as it is for Spark.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None or text.startswith("file:/"):
        return local(text)
    path = jvm.org.apache.hadoop.fs.Path(text)
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        system = path.getFileSystem(settings)
    except Py4JJavaError as error:
        raise QueryError(
            f"Spark has no file system for {text}: {error.java_exception.getMessage()}.",
            hint="add its package to the session (spark.jars.packages), with the version of Spark's own Hadoop.",
        ) from None
    return local(text) if system.getScheme() == "file" else HadoopPath(jvm, system, system.makeQualified(path))


def url(path: FilePath) -> str:
    """The path as Spark takes it, whatever its default file system is."""
    return f"file://{path}" if isinstance(path, Path) else str(path)


def upload(file: Path, to: FilePath) -> None:
    """Move a file of this machine's disk."""
    if isinstance(to, HadoopPath):
        source = to.jvm.org.apache.hadoop.fs.Path(f"file://{file}")
        to.system.copyFromLocalFile(True, True, source, to.path)
    elif isinstance(to, Path):
        shutil.move(file, to)


def copy(source: FilePath, to: FilePath) -> None:
    """Copy a file, or a folder with all in it, from any file system to any other. Hidden files are left out."""
    if not source.is_dir():
        to.write_bytes(source.read_bytes())
        return
    to.mkdir(parents=True)
    for entry in source.iterdir():
        if not entry.name.startswith("."):
            copy(entry, to / entry.name)


def moved_whole(source: FilePath, to: FilePath) -> bool:
    """Give a folder its place in one step; False if that is not possible: object stores rename file by file."""
    try:
        if isinstance(to, HadoopPath):
            if to.system.getScheme() != "hdfs":
                return False
            if to.exists():
                to.system.delete(to.path, False)  # refuses one that is not empty
        source.rename(to)
    except (OSError, Py4JJavaError):
        return False
    return True


def move_new(source: FilePath, to: FilePath) -> None:
    """Give a file its place; an OSError if another one is there."""
    if isinstance(source, Path) and isinstance(to, Path):
        try:
            os.link(source, to)  # a rename would replace it
        finally:
            source.unlink()
    elif to.exists():
        raise FileExistsError(str(to))
    else:
        source.rename(to)


def remove(folder: FilePath) -> None:
    """Remove a folder with all in it, if it is there."""
    if isinstance(folder, HadoopPath):
        folder.system.delete(folder.path, True)
    elif isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
