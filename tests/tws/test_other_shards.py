"""The reports of the slowest shards and the sums of the others say the same as all reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.model.counters import Counters
from watersmeet.spark.progress.counters import summed
from watersmeet.spark.progress.other_shards import listed_and_others, with_sums
from watersmeet.spark.progress.shard_statistics import merged
from watersmeet.spark.progress.summary import BatchSummary

pytestmark = pytest.mark.tws

NAMES = [name for name in Counters().as_dict() if name != "idle"]
counts = st.integers(0, 1 << 40)


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Any]:
    """The report of a shard of two streams, with all that a shard may or may not measure."""
    report: dict[str, Any] = dict(zip(NAMES, draw(st.tuples(*[counts] * len(NAMES))), strict=True))
    report |= {"idle": draw(st.integers(0, 2)), "worker_bytes": draw(counts), "watermarks": [7, 8], "join_us": 3}
    fields = ("rows_in", "late", "violations", "stored", "bytes", "closed", "keys")
    report["streams"] = [
        {"name": name, "seen": 5, "ranges": 1, "hot": [["x", 0.5]]} | {f: draw(counts) for f in fields} for name in "ab"
    ]
    rates = st.floats(0, 1e6)
    of_statistics = ("rate", "distinct", "window_tuples", "punctuation_rate", "set_size")
    report["statistics"] = [
        {f: draw(rates) for f in of_statistics} | {"row_bytes": 90.0} | draw(st.sampled_from([{}, {"stay": 3.5}]))
        for _ in "ab"
    ]
    report |= draw(st.sampled_from([{}, {"expected": [[3, 40], [5, 60]]}, {"scrambling": [2, 9]}]))
    return report | {"predicted": draw(st.sampled_from([{}, {"stored": 8}, {"stored": 9, "results": 4}]))}


def total(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """What the driver makes of the reports that are not listed (`bounded` does it in Spark)."""
    return {"shards": len(shards), "sums": [with_sums(shard)["sums"] for shard in shards]}


@settings(deadline=None)
@given(st.lists(reports(), min_size=2, max_size=6), st.data())
def test_counters_are_those_of_all_shards(found: list[dict[str, Any]], data: st.DataObject) -> None:
    shards = [report | {"shard": n} for n, report in enumerate(found)]
    listed = shards[: data.draw(st.integers(1, len(shards) - 1))]
    made = [*listed, total(shards[len(listed) :])]
    whole = summed(json.loads(json.dumps(made)))
    every = summed(shards)
    assert {n: whole[n] for n in NAMES} == {n: every[n] for n in NAMES}
    assert whole.get("predicted") == every.get("predicted")
    assert whole["shards"] == every["shards"][: len(listed)]
    summary, of_all = BatchSummary.of_shards(made), BatchSummary.of_shards(shards)
    assert summary is not None
    assert of_all is not None
    assert summary.shard_count == len(shards)
    assert summary.counters["join_us"] == 3 * len(shards)
    for i in (0, 1):
        for field in ("rows_in", "late", "stored", "keys"):
            assert sum(r["streams"][i][field] for r in summary.reports) == sum(r["streams"][i][field] for r in found)
        every_expected = all("expected" in r for r in found)
        assert all("expected" in r for r in summary.reports) == every_expected


@settings(deadline=None)
@given(st.lists(reports(), min_size=2, max_size=6))
def test_statistics_are_those_of_all_shards(found: list[dict[str, Any]]) -> None:
    from watersmeet.cost.parameters import Statistics

    shards = [report | {"shard": n} for n, report in enumerate(found)]
    listed, others = listed_and_others([shards[0], total(shards[1:])])
    assert others is not None
    for i in (0, 1):
        none = Statistics("ab"[i], rate=0.0)
        of_all = merged(none, [report["statistics"][i] for report in found])
        of_both = merged(none, [report["statistics"][i] for report in (*listed, others)])
        for field in ("rate", "distinct", "tuples", "punctuation_rate", "set_size", "row_bytes"):
            assert getattr(of_both, field) == pytest.approx(getattr(of_all, field), rel=1e-6, abs=1e-3)
        if of_all.stay is not None and of_both.stay is not None:
            assert of_both.stay == pytest.approx(of_all.stay, rel=1e-3)


def test_of_few_shards_all_are_listed() -> None:
    found = [{"shard": n, "rows_in": 1, "join_us": 4} for n in range(3)]
    assert listed_and_others([with_sums(report) for report in found]) == (found, None)
