"""A dozen faults for real, and what the soak makes of them; the full run is `./run soak`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from soak import campaign, faults, report
from soak.trial import Trial

#: Kinds that need no new driver: those are in every test run.
QUICK = ("worker-at-random", "worker-state-written", "worker-in-compaction", "cache-torn")
#: With these each part of the system dies once, in an order that starts few drivers.
SOME = (
    "worker-cache-kept",
    "worker-results-half",
    "daemon-killed",
    "source-stopped",
    "driver-before-commit",
    "driver-source-ahead",
    "driver-state-written",
    "changelog-flipped",
    "disk-full",
    "rescale-killed",
    "second-driver",
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


@pytest.mark.spark
def test_a_few_faults(tmp_path: Path) -> None:
    done = campaign.run(tmp_path / "faults.jsonl", count=len(QUICK), seed=4, minutes=None, kinds=list(QUICK))
    assert {d["kind"]: d["outcome"] for d in done} == dict.fromkeys(QUICK, "exact")


@pytest.mark.more
def test_more_faults(tmp_path: Path) -> None:
    results = tmp_path / "faults.jsonl"
    done = campaign.run(results, count=len(SOME), seed=3, minutes=None, kinds=list(SOME))
    assert {d["kind"] for d in done} == set(SOME)
    bad = [d for d in done if d["outcome"] not in campaign.GOOD]
    assert not bad
    assert not (tmp_path / "kept").exists()
    assert sum(d["outcome"].endswith("exact") for d in done) >= len(SOME) - 3
    assert campaign.read(results) == done
    assert campaign.run(results, count=len(SOME), seed=3, minutes=None, kinds=list(SOME)) == [], "it goes on behind"
    table = report.fault_table(done)
    assert f"{len(SOME)} faults of {len(SOME)} kinds" in table
    assert "0 did not end as they should" in table


@pytest.mark.more
def test_what_is_lost_or_doubled_is_reported_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The soak itself: with a file of results taken away and one of late rows doubled, it says so."""

    def spoilt(trial: Trial) -> None:
        trial.must_finish()
        (parts, late) = (sorted((trial.folder / what).glob("batch=*/*.parquet")) for what in ("results", "late"))
        max(parts, key=lambda part: part.stat().st_size).unlink()
        largest = max(late, key=lambda part: part.stat().st_size)
        shutil.copy(largest, largest.with_name("again.parquet"))

    monkeypatch.setitem(faults.LOCAL, "spoilt", spoilt)
    (done,) = campaign.run(tmp_path / "faults.jsonl", count=1, seed=1, minutes=None, kinds=["spoilt"])
    assert "results lost" in done["outcome"]
    assert "late rows too many" in done["outcome"]
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept / "checkpoint" / "offsets").is_dir()
