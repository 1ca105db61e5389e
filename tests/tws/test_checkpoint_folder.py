"""A path that is no checkpoint is named for what it is, without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from watersmeet.spark.checkpoints.checkpoint_folder import lack
from watersmeet.spark.checkpoints.file_system import local
from watersmeet.spark.session import FILE_MANAGER, LOCAL_FILE_MANAGER, default_file_manager

RAN = ("metadata", "offsets/0", "commits/0")


@pytest.mark.parametrize(
    ("files", "what", "hint"),
    [
        ((), "is an empty folder", "give the checkpoint of a query that has run."),
        (("metadata", "offsets/0"), "has no complete batch", "give the checkpoint of a query that has run."),
        (RAN, "is of a query without state, so not of a join", "give the checkpoint of a join."),
        (
            ("batch=000000/part-0.parquet",),
            "holds rows that a query has written, and no checkpoint",
            "give the query's",
        ),
        (("_spark_metadata/0", "part-0.parquet"), "holds rows that a query has written", "give the query's"),
        (("a.txt", "b.txt"), "is no checkpoint (it holds a.txt, b.txt)", "give the query's checkpoint folder."),
        (tuple(f"mine/{file}" for file in RAN), "holds a checkpoint, and is none itself", "/mine."),
    ],
    ids=["empty", "not run", "without state", "results", "file sink", "other files", "a folder above"],
)
def test_what_a_folder_lacks(tmp_path: Path, files: Sequence[str], what: str, hint: str) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    found = lack(tmp_path)
    assert found is not None
    assert found.what.startswith(what)
    assert hint in found.hint


def test_what_is_no_folder_and_what_may_be_a_checkpoint(tmp_path: Path) -> None:
    missing, file = lack(tmp_path / "nowhere"), tmp_path / "file"
    file.touch()
    assert missing is not None
    assert missing.what == "does not exist"
    found = lack(file)
    assert found is not None
    assert found.what == "is a file; a checkpoint is a folder"
    for name in (*RAN, "state/0/_metadata/v2/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert lack(tmp_path) is None
    assert lack(local("s3://bucket/checkpoint")) is None, "nothing of it is seen from here"


@pytest.mark.parametrize("text", ["file:/a/b", "file:///a/b", "/a/b"])
def test_a_path_of_this_machine(text: str) -> None:
    assert local(text) == Path("/a/b")


class Session:
    """The settings of a session, and nothing else of it."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.conf = self

    def get(self, name: str, default: str | None) -> str | None:
        return self.settings.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.settings[name] = value

    def unset(self, name: str) -> None:
        del self.settings[name]


@pytest.mark.parametrize(
    ("manager", "checkpoint", "during"),
    [
        (LOCAL_FILE_MANAGER, "/tmp/c", LOCAL_FILE_MANAGER),
        (LOCAL_FILE_MANAGER, "file:///tmp/c", LOCAL_FILE_MANAGER),
        (LOCAL_FILE_MANAGER, "hdfs://host/c", None),
        ("mine", "hdfs://host/c", "mine"),
        ("mine", "/tmp/c", "mine"),
    ],
)
def test_the_local_file_manager_serves_local_checkpoints_only(
    manager: str, checkpoint: str, during: str | None
) -> None:
    session = Session(**{FILE_MANAGER: manager})
    with default_file_manager(session, checkpoint):  # type: ignore[arg-type]  # its settings are all that is looked at
        assert session.get(FILE_MANAGER, None) == during
    assert session.get(FILE_MANAGER, None) == manager
