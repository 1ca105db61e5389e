"""The demo's query, for a few seconds of stream time."""

import io
from threading import Event

import pytest

pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("duckdb")

from rich.console import Console

from watersmeet.demo import report, view
from watersmeet.demo.house import Demo


@pytest.mark.spark
@pytest.mark.more
def test_the_demo_is_exact(spark, tmp_path):
    demo = Demo(seconds=5, rate=2_000, seed=7)
    run = view.watch(demo, demo.start(demo.joined(spark), tmp_path), Event(), Console(file=io.StringIO()))
    results = demo.results(spark, tmp_path)
    assert report.compare(demo, run, results) == (results.num_rows, results.num_rows, 0)
    assert results.num_rows == run.results > 5_000
