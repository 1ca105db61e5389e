"""The link between two namespaces limits what passes; a machine that does not allow it is named in words."""

from __future__ import annotations

import os
import subprocess

import pytest

from lab import network
from lab.network import Link, NoNamespacesError


def namespaces() -> set[str]:
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in found.splitlines()}


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network.shutil, "which", lambda tool: None if tool == "tc" else f"/sbin/{tool}")
    with pytest.raises(NoNamespacesError, match=r"^`tc` is missing \(Debian: apt-get install iproute2\)$"), Link():
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_bandwidth_and_delay_are_those_that_were_set() -> None:
    try:
        with Link() as link:
            names = set(link.names)
            link.limit(None, 0)
            free, _ = link.measured(2_000_000)
            link.limit(80, 0)
            limited, _ = link.measured(2_000_000)
            link.limit(None, 0.005)
            _, trip = link.measured(1_000)
            assert names <= namespaces()
    except NoNamespacesError as reason:
        pytest.skip(f"this machine does not allow namespaces: {reason}")
    assert limited < 100 < free
    assert trip >= 10
    assert not names & namespaces()
