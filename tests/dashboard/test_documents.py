"""docs/monitoring.md names every field of an event and no other; docs/grafana.json asks for metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab.dashboard.run_events import run
from watersmeet.dashboard.prometheus import FAMILIES

DOCS = Path(__file__).parents[2] / "docs"
MONITORING = (DOCS / "monitoring.md").read_text()


def documented(section: str) -> set[str]:
    body = MONITORING.partition(f"\n### `{section}`")[2].partition("\n#")[0]
    return set(re.findall(r"^\| `(\w+)` \|", body, re.M))


@pytest.mark.parametrize("kind", ["plan", "started", "batch", "ended"])
def test_every_field_is_documented(kind: str) -> None:
    """That real events have these fields is tested with Spark; see tests/spark/test_monitor.py."""
    event = next(e for e in run() if e["kind"] == kind)
    assert documented(kind) == set(event) - {"kind"}


def test_every_field_of_a_stream_is_documented() -> None:
    assert documented("streams") == set(run()[2]["streams"][0])


def test_the_panels_ask_for_what_there_is() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    requested = {
        name for p in board["panels"] for t in p["targets"] for name in re.findall(r"watersmeet_\w+", t["expr"])
    }
    assert requested <= set(FAMILIES)
    assert len(requested) >= 12
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"]["uid"] == "${DS_PROMETHEUS}"
        assert all(t["expr"].count("(") == t["expr"].count(")") for t in panel["targets"])


def test_no_two_panels_overlap() -> None:
    places = [p["gridPos"] for p in json.loads((DOCS / "grafana.json").read_text())["panels"]]
    cells = [(p["x"] + i, p["y"] + j) for p in places for i in range(p["w"]) for j in range(p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_alerts_ask_for_what_there_is() -> None:
    assert set(re.findall(r"watersmeet_\w+[a-z]", MONITORING)) <= set(FAMILIES)
