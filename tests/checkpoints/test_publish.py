"""A new checkpoint gets its place in one step, or its parts in an order from which no query starts too early."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.errors import StateError
from watersmeet.spark.checkpoints.rescale import publish

PARTS = ["commits", "line", "metadata", "offsets", "seed", "sources", "state"]


def made(folder: Path) -> Path:
    for name in PARTS:
        (folder / "made" / name).mkdir(parents=True)
    return folder / "made"


def renamed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names, rename = [], Path.rename

    def noted(self: Path, target: Path) -> Path:
        done = rename(self, target)
        names.append(self.name)
        return done

    monkeypatch.setattr(Path, "rename", noted)
    return names


@pytest.mark.parametrize("there", [False, True])
def test_one_rename_where_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    checkpoint, target = made(tmp_path), tmp_path / "target"
    if there:
        target.mkdir()
    names = renamed(monkeypatch)
    publish(checkpoint, target)
    assert names == ["made"]
    assert sorted(f.name for f in target.iterdir()) == PARTS


def test_otherwise_offsets_come_after_state_and_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs a batch again that has offsets and no commit, the first one on empty state."""
    checkpoint, target = made(tmp_path), tmp_path / "target"
    target.mkdir()
    (target / "lost+found").touch()
    names = renamed(monkeypatch)
    publish(checkpoint, target)
    assert names == ["state", "sources", "seed", "line", "commits", "offsets", "metadata"]


def test_of_two_that_get_one_place_the_second_is_refused(tmp_path: Path) -> None:
    checkpoint, target = made(tmp_path), tmp_path / "target"
    (target / "state").mkdir(parents=True)
    with pytest.raises(StateError, match=f"{target} has got a part of another checkpoint meanwhile, its state"):
        publish(checkpoint, target)
    assert not (target / "metadata").exists()
