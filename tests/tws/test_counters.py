"""The reports of the shards, summed."""

from __future__ import annotations

import json

import pytest

import watersmeet as wm

pytestmark = pytest.mark.tws


def test_a_shard_may_say_less_than_another() -> None:
    """One that has no results spends no time on them; one may change its order."""
    shards = [
        {"shard": 7, "idle": 1, "results": 0, "order": [["a"]]},
        {"shard": 3, "idle": 1, "results": 2, "emit_us": 5, "order": [["b"]], "order_change": {"reason": "why not"}},
    ]
    for turn in (shards, shards[::-1]):
        counters = wm.counters({"observedMetrics": {"watersmeet": {"shards": [json.dumps(s) for s in turn]}}})
        assert {name: counters[name] for name in ("idle", "results", "emit_us")} == {
            "idle": 1,
            "results": 2,
            "emit_us": 5,
        }
        assert [s["shard"] for s in counters["shards"]] == [3, 7]
        assert "shard" not in counters
        assert counters["shards"][0]["order_change"] == {"reason": "why not"}
    assert wm.counters({"observedMetrics": {}}) == {}
