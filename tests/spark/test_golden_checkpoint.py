"""Checkpoints that earlier versions wrote, on a real Spark: read and continued, or refused by name."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lab.golden import checkpoint as golden
from lab.spark.feeds import failure
from watersmeet.joins.reference.definition import Tuple, on_time
from watersmeet.state.durable import log

pytestmark = pytest.mark.spark

READABLE = (2,)


def pairs(batches: int) -> Counter[tuple[Any, ...]]:
    """All pairs of the first so many batches, by the definition."""
    streams = []
    for s in "ab":
        rows = json.loads(golden.INPUT.read_text())[s][:batches]
        shown = [[Tuple(round(at * 1e6), (k,), None if over else n) for k, at, n, over in b] for b in rows]
        streams.append([t for t in on_time(shown, golden.DELAY * 1_000_000) if t.row is not None])
    reach = {s: w * 1_000_000 for s, w in golden.WINDOWS.items()}
    return Counter(
        (a.key[0], a.row, b.row)
        for a, b in product(*streams)
        if a.key == b.key and a.key[0] is not None and -reach["b"] <= b.time - a.time <= reach["a"]
    )


def matched(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(row for row in rows if None not in row)


@pytest.mark.parametrize("format", READABLE)
def test_a_golden_checkpoint_is_read_and_continued(spark: SparkSession, tmp_path: Path, format: int) -> None:
    rest = golden.run(spark, golden.BATCHES, golden.unpack(format, tmp_path))
    whole = golden.run(spark, golden.BATCHES, tmp_path / "fresh")
    before = golden.run(spark, golden.WRITTEN, tmp_path / "written")
    assert matched(whole) == pairs(golden.BATCHES)
    assert matched(rest) == pairs(golden.BATCHES) - pairs(golden.WRITTEN)
    assert Counter(rest) == Counter(whole) - Counter(before), "unmatched rows come when they would have come"
    assert len(matched(rest)) > 20


def test_every_golden_checkpoint_is_tested() -> None:
    written = {int(f.name.split("-")[1].split(".")[0]) for f in golden.FOLDER.glob("checkpoint-*.tar.gz")}
    assert written == set(READABLE)
    assert log.FORMAT in READABLE


def test_a_checkpoint_of_another_query_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = golden.unpack(log.FORMAT, tmp_path)
    monkeypatch.setitem(golden.WINDOWS, "a", 21)
    text = failure(lambda: golden.run(spark, golden.BATCHES, checkpoint))
    assert "StateMismatchError: the checkpoint belongs to another query: streams[0].window" in text
