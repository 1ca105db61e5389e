"""A dozen faults for real, and what the soak makes of them; the full run is `./run soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak import campaign, faults, report

#: Kinds in which each part of the system dies once, in an order that starts few drivers.
DOZEN = (
    "worker-at-random",
    "worker-state-written",
    "worker-cache-kept",
    "worker-in-compaction",
    "worker-results-half",
    "daemon-killed",
    "cache-torn",
    "source-stopped",
    "driver-before-commit",
    "driver-state-written",
    "changelog-flipped",
    "disk-full",
)


def test_the_plan_is_the_seeds() -> None:
    some = [next(iter(campaign.plan(seed, campaign.KINDS))) for seed in (1, 1, 2)]
    assert some[0] == some[1]
    plans = [[p for p, _ in zip(campaign.plan(seed, campaign.KINDS), range(64), strict=False)] for seed in (1, 2)]
    assert plans[0] != plans[1]
    assert {p.kind for p in plans[0]} == set(campaign.KINDS), "each kind comes once in a round"
    assert len(campaign.KINDS) >= 10


def test_every_kind_says_what_it_does() -> None:
    assert all(faults.about(kind) for kind in campaign.KINDS)


@pytest.mark.more
def test_a_dozen_faults(tmp_path: Path) -> None:
    results = tmp_path / "faults.jsonl"
    done = campaign.run(results, count=len(DOZEN), seed=3, minutes=None, kinds=list(DOZEN))
    assert {d["kind"] for d in done} == set(DOZEN)
    bad = [d for d in done if d["outcome"] not in campaign.GOOD]
    assert not bad
    assert sum(d["outcome"].endswith("exact") for d in done) >= 10
    assert campaign.read(results) == done
    assert campaign.run(results, count=len(DOZEN), seed=3, minutes=None, kinds=list(DOZEN)) == [], "it goes on behind"
    table = report.fault_table(done)
    assert f"{len(DOZEN)} faults of {len(DOZEN)} kinds" in table
    assert "0 did not end as they should" in table
