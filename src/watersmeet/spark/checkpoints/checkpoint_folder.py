"""Reasons why a folder is no checkpoint with state, found without reading state."""

from __future__ import annotations

from typing import NamedTuple

from watersmeet.errors import StateMismatchError
from watersmeet.spark.checkpoints.file_system import FilePath

#: Folders that a checkpoint has from its first batch on.
_LOGS = ("offsets", "commits")


class Lack(NamedTuple):
    """What is wrong with a path that is given as a checkpoint, and what to give instead."""

    what: str
    hint: str


def lack(folder: FilePath | None) -> Lack | None:
    """What a folder lacks to be the checkpoint of a query with state; None if it lacks nothing or is out of reach."""
    if folder is None:
        return None
    if not folder.exists():
        return Lack("does not exist", "give the folder that was given as checkpoint location.")
    if not folder.is_dir():
        return Lack("is a file; a checkpoint is a folder", "give the folder that was given as checkpoint location.")
    if any((folder / log).is_dir() for log in _LOGS):
        commits = folder / "commits"
        if not (commits.is_dir() and any(file.name.isdigit() for file in commits.iterdir())):
            return Lack("has no complete batch", "give the checkpoint of a query that has run.")
        if not (folder / "state").is_dir():
            return Lack("is of a query without state, so not of a join", "give the checkpoint of a join.")
        return None
    names = sorted(entry.name for entry in folder.iterdir())
    inside = next((name for name in names if any((folder / name / log).is_dir() for log in _LOGS)), None)
    if inside is not None:
        return Lack("holds a checkpoint, and is none itself", f"give {folder / inside}.")
    if not names:
        return Lack("is an empty folder", "give the checkpoint of a query that has run.")
    if any(name.startswith("batch=") or name.endswith(".parquet") or name == "_spark_metadata" for name in names):
        return Lack("holds rows that a query has written, and no checkpoint", "give the query's checkpoint folder.")
    return Lack(f"is no checkpoint (it holds {', '.join(names[:3])})", "give the query's checkpoint folder.")


def refuse_incomplete(folder: FilePath | None) -> None:
    """Refuse a checkpoint that has state and no `metadata`, the first file of a query and the last of a rewrite."""
    if folder is None or (folder / "metadata").exists() or not (folder / "state").is_dir():
        return
    raise StateMismatchError(
        f"`checkpoint` {folder} is incomplete: it has state and no metadata. What seeded, rescaled, evolved or copied "
        "it was interrupted.",
        hint="remove the folder and do it again; what it was made from is unchanged.",
    )
