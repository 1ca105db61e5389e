"""The picture of a plan says what the plan says, and nothing in it lies upon anything else."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest

from lab.joins.cost_settings import figures, query
from watersmeet.cost.machine import Machine
from watersmeet.cost.parameters import Parameters
from watersmeet.optimizer.picture import picture
from watersmeet.optimizer.planner import make_plan

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans priced alike, whatever the joins take on a machine."""
    monkeypatch.setattr("watersmeet.cost.machine.DEFAULT", Machine())


def texts(drawn: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(drawn).iter(f"{SVG}text")]


def boxes(drawn: str) -> list[tuple[float, float, float, float]]:
    found = ET.fromstring(drawn).iter(f"{SVG}rect")
    return [
        (float(r.get("x", 0)), float(r.get("y", 0)), *(float(r.get(k, 0)) for k in ("width", "height"))) for r in found
    ]


def test_two_streams() -> None:
    q = query(10, 60)
    p = figures(q, b={"delay": 30.0})
    assert texts(picture(make_plan(q, p, cores=2), p)) == [
        *("a", "1,000 rows/s, 2,500 keys", "kept 40 seconds", "about 40,000 tuples, by hash"),
        *("b", "1,000 rows/s, 15,000 keys", "kept 1 minute", "about 60,000 tuples, by hash"),
        *("hash", "2 shards", "7.2 MB, 0.2% of a core"),
        *("result", "about 4,667 rows/s"),
    ]


def test_what_punctuations_and_wishes_add() -> None:
    q = query(10.5, None)
    p = figures(q, a={"punctuation_rate": 5.0})
    p = replace(p, streams=(p.streams[0], replace(p.streams[1], distinct=100.0)))
    drawn = texts(picture(make_plan(q, p, algorithm="pwjoin"), p))
    assert "pwjoin (chosen by name)" in drawn
    assert "kept 10.5 seconds" in drawn
    assert "kept until a closes its key" in drawn
    silent = query(10, None)
    drawn = texts(picture(make_plan(silent, figures(silent)), figures(silent)))
    assert "kept until a ended" in drawn
    assert (
        drawn[-3] == "⚠ b has no window and a never closes keys, so its state grows without bound (estimated at 1 hour)"
    )


def test_the_strategy_of_buckets() -> None:
    q = query(10, 10)
    p = figures(q).indexed([10.0, 10.0])
    assert "invalidation: probe" in texts(picture(make_plan(q, p, algorithm="windowed_hash"), p))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_boxes_are_apart_and_inside(n: int) -> None:
    q = query(*[10] * n)
    p = figures(q)
    drawn = picture(make_plan(q, p), p)
    found = boxes(drawn)
    assert len(found) == n + 2
    for (x, y, w, h), (x2, y2, w2, h2) in combinations(found, 2):
        assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    root = ET.fromstring(drawn)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in found)
    assert len([path for path in root.iter(f"{SVG}path") if path.get("class") == "arrow"]) == n + 1
    assert (f"meet {', '.join('abcd'[:n])}" in texts(drawn)) == (n > 2)


def test_names_are_names_and_colours_follow_the_ground() -> None:
    q = query(10, 10)
    p = figures(q)
    odd = Parameters((replace(p.streams[0], name="<a & b>"), p.streams[1]), interval=1.0)
    drawn = picture(make_plan(q, p), odd)
    assert texts(drawn)[0] == "<a & b>"
    assert "prefers-color-scheme: dark" in drawn
    assert picture(make_plan(q, p), odd) == drawn
