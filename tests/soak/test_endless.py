"""The endless run: its streams, what is predicted of the state, and what counts as flat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from soak import endless, endless_chart, report
from soak import endless_source as source
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.punctuations import BatchPunctuations, Punctuation, Range
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow

ROWS = 200


def spec(name: str) -> StreamSpec:
    schema = pa.schema([(f"{name}_ts", pa.int64()), ("k", pa.int64())])
    window, delay = TimeWindow(endless.WINDOW * source.SECOND), endless.DELAY * source.SECOND
    idle = endless.IDLE_AFTER * source.SECOND if name == "b" else None
    return StreamSpec(name, schema, f"{name}_ts", ("k",), window, delay, idle_after=idle)


def batch(name: str, n: int) -> Batch:
    rows, own = source.made(name, n, ROWS), spec(name)
    if not rows.keys.size:
        return Batch.of(no_rows(own.schema), own.time)
    punctuations = [Punctuation(Range(0, rows.bound - 1), n * source.SECOND - source.DISORDER)] if rows.bound else []
    columns = pa.record_batch([pa.array(rows.times), pa.array(rows.keys)], schema=own.schema)
    return Batch.of(
        columns,
        own.time,
        punctuations=BatchPunctuations.of(punctuations, pa.schema([("k", pa.int64())])) if punctuations else None,
    )


def test_what_is_predicted_is_what_the_join_holds() -> None:
    """Through bursts, the pause, the hot key, a silent stream and its return."""
    join, held = PWJoin().start(JoinQuery((spec("a"), spec("b")))), []
    for n in range(source.CYCLE + 8):
        assert sum(t.num_rows for t in join.step([batch("a", n), batch("b", n)])) >= 0
        assert join.counters.stored == endless.predicted(n, ROWS), n
        assert join.counters.late == join.counters.violations == 0
        assert join.counters.closed_keys <= join.counters.stored, "of keys that are gone a range is remembered, no more"
        held.append(join.counters.stored)
    assert max(held[50:60]) > 2 * held[25], "while b is silent, a waits for it"
    assert held[-1] < 1.2 * held[25], "and goes when b is back"


def test_partitions_make_the_batch() -> None:
    parts = [source.made("a", 40, ROWS, part) for part in range(source.PARTS)]
    whole = source.made("a", 40, ROWS)
    assert np.array_equal(np.concatenate([p.keys for p in parts]), whole.keys)
    assert source.HOT_KEY in source.made("a", 40, 20_000).keys
    assert not source.made("b", 55, ROWS).keys.size


def samples(grows: float) -> list[dict[str, float]]:
    figures = dict.fromkeys(endless.WATCHED, 100.0)
    common = {"rows_in": 10, "ms": 5, "state": 100.0}
    return [{**figures, **common, "at": n, "batch": n, "jvm_mb": 100 + grows * n} for n in range(90)]


@pytest.mark.parametrize(("grows", "flagged"), [(0.0, []), (1.0, ["jvm_mb × 1.208"])])
def test_growth_is_found(grows: float, flagged: list[str]) -> None:
    growth = endless.growth(samples(grows))
    assert set(growth) == set(endless.WATCHED)
    assert endless.flat({"growth": growth}) == flagged


def test_the_report_draws_it(tmp_path: Path) -> None:
    outcome = {"minutes": 1, "samples": samples(0), "predicted": [{"batch": 3, "state": 5, "predicted": 5}]}
    text = report.endless_part(outcome | {"growth": endless.growth(outcome["samples"])}, tmp_path)  # type: ignore[arg-type]
    assert "In 1 of 1 samples" in text
    assert "Nothing has grown." in text
    assert (tmp_path / "endless.svg").read_text().count("<svg") == 1
    assert endless_chart.draw


@pytest.mark.more
def test_a_short_endless_run(tmp_path: Path) -> None:
    out = tmp_path / "endless.json"
    command = [sys.executable, "-m", "soak", "endless", "--minutes", "1.2", "--rows", "4000", "--out", str(out)]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=False
    ).stdout  # it ends the session it runs in
    outcome = json.loads(out.read_text())
    assert f"{len(outcome['samples'])} samples" in printed
    assert len(outcome["samples"]) >= 3
    assert all(p["state"] == p["predicted"] for p in outcome["predicted"])
    assert all(s["late"] == s["violations"] == 0 for s in outcome["samples"])
