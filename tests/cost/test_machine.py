"""Constants of a machine: fitted once, kept beside those of others, found again, overridden."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from watersmeet.cost import machine as machines
from watersmeet.cost.calibration import Load, calibrate, loads
from watersmeet.cost.machine import DEFAULT, Machine, constants_path, families, here, save
from watersmeet.cost.work import Constants
from watersmeet.optimizer.planner import make_plan
from watersmeet.workload.steady import Steady

FITTED = Machine(families={"hash": Constants(probed=3.0), "nested_loop": Constants(scanned=7.0)}, fitted=True)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "constants.json"
    monkeypatch.setenv(machines.VARIABLE, str(path))
    return path


def test_every_join_belongs_to_a_family_that_is_fitted() -> None:
    assert set(loads()) == set(families()) == set(DEFAULT.families)
    assert FITTED.of("windowed_hash").scanned == 7.0
    assert FITTED.of("pjoin").probed == 3.0
    assert FITTED.of("eager") == Constants(), "nobody fitted it"


def test_what_is_kept_is_found_again(file: Path) -> None:
    assert here() == DEFAULT
    assert not here().fitted
    assert save(FITTED) == file
    assert here() == FITTED
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({"elsewhere": kept[platform.node()]}))
    machines._read.cache_clear()
    assert here() == DEFAULT, "these are another machine's"
    save(FITTED)
    assert set(json.loads(file.read_text())) == {"elsewhere", platform.node()}
    assert list(file.parent.iterdir()) == [file]


def test_a_file_that_cannot_be_read_is_as_none(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.parent.mkdir()
    file.write_text("{")
    assert here() == DEFAULT
    assert "the constants of this machine cannot be read" in caplog.text
    machines._read.cache_clear()


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(machines.VARIABLE, "")
    assert constants_path() is None
    assert save(FITTED) is None
    assert here() == DEFAULT
    monkeypatch.delenv(machines.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert constants_path() == tmp_path / "watersmeet" / "constants.json"


def test_plans_are_priced_with_the_machine_they_are_for(file: Path) -> None:
    query = Steady((10, 10), (5.0, 5.0), (3, 3)).query
    before = make_plan(query)
    save(Machine(families={name: Constants(inserted=1e6) for name in families()}, fitted=True))
    assert make_plan(query).cpu > 100 * before.cpu
    assert make_plan(query, machine=DEFAULT) == before


def test_constants_come_from_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small load of each family; times are the machine's, so only their order of magnitude is known."""
    few = {
        name: [Load(runs[0].algorithm, Steady((200, 200), (2.0, 1.0), (50, 50)), 6)] for name, runs in loads().items()
    }
    monkeypatch.setattr("watersmeet.cost.calibration.loads", lambda quick: few)
    lines: list[str] = []
    found, quality = calibrate(quick=True, report=lines.append)
    assert found.fitted
    assert set(found.families) == set(families())
    for name, constants in found.families.items():
        assert min(constants.as_dict().values()) >= 0
        assert quality[name]["batches"] == 4
        assert 0.2 < quality[name]["mid"] < 5
    assert len(lines) == len(families())
