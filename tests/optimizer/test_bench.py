"""The benchmark of the optimiser over a few loads, once: it runs, and plans are good by counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import optimizer, optimizer_report
from benchmarks.plans import judge
from watersmeet.cost.machine import DEFAULT

pytestmark = pytest.mark.more


def test_a_few_loads(tmp_path: Path) -> None:
    assert len(optimizer.loads()) >= 60
    results = {"loads": {}}
    for name, streams in list(optimizer.loads().items())[::17]:
        *_, found = judge(streams, DEFAULT, 1)
        results["loads"][name] = found
        assert found["results_agree"]
        assert optimizer_report.ratio(found, "counters", "work") <= 1.5, name
        assert optimizer_report.errors(found, "tuples") == pytest.approx(1, abs=0.3), name
        assert optimizer_report.errors(found, "bytes") == pytest.approx(1, abs=0.3), name
    text = optimizer_report.markdown(results)
    assert f"{len(results['loads'])} loads." in text
    assert text.count("\n| 2 streams") + text.count("\n| 3 streams") >= 2
    optimizer_report.draw(results, tmp_path / "optimizer.svg")
    assert (tmp_path / "optimizer.svg").read_text().count("<svg") == 1
