"""A standalone cluster of two workers and three executors on loopback: executors are killed and replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.processes import wait_for
from soak import campaign
from soak.campaign import Planned
from soak.machine import Machine

pytestmark = pytest.mark.more


def test_executors_are_killed_and_replaced(tmp_path: Path) -> None:
    with Machine(tmp_path / "machine", clustered=True) as machine:
        assert wait_for("three executors", lambda: len(machine.executors()) == 3, 60)
        before = {p.pid for p in machine.executors()}
        outcome = campaign.one(Planned(0, "executor-state-written", "full"), 5, machine, tmp_path, tmp_path / "kept")
        assert outcome["outcome"] == "exact", outcome
        assert wait_for("a replacement", lambda: len(machine.executors()) == 3, 60)
        assert {p.pid for p in machine.executors()} != before
