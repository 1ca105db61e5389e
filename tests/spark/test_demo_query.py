"""The demo's query, for a few seconds of stream time."""

import io
from threading import Event

import pytest

pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("duckdb")

from rich.console import Console

from watersmeet.demo import run_report, view
from watersmeet.demo.auction_demo import Demo


@pytest.mark.spark
@pytest.mark.more
def test_the_demo_is_exact(spark, tmp_path):
    demo = Demo(seconds=5, rate=2_000, seed=7)
    joined = demo.joined(spark)
    run = view.watch(demo, lambda: demo.start(joined, tmp_path), Event(), Console(file=io.StringIO()))
    results = demo.results(spark, tmp_path)
    assert run_report.compare(demo, run, results) == (results.num_rows, results.num_rows, 0)
    assert results.num_rows == run.results > 5_000
