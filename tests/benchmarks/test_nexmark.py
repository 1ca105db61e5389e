"""NEXMark's joins give DuckDB's rows, ours and Spark's own, and ours keep less."""

import pytest

pytest.importorskip("duckdb")

from benchmarks import nexmark, nexmark_run
from benchmarks.nexmark_queries import QUERIES


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(nexmark_run.data, "SCRATCH", tmp_path / "scratch")


@pytest.mark.spark
@pytest.mark.more
@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_results_are_those_of_duckdb(spark, tmp_path, files, query):
    ours, native = (
        nexmark_run.work(spark, query, ours, nexmark_run.QUICK, tmp_path / str(ours)) for ours in (True, False)
    )
    for run in (ours, native):
        assert (run["missing"], run["unexpected"]) == (0, 0)
        assert run["results"] > 50
    assert ours["late"] == 0
    if query.name != "q8":  # there both keep the people and sellers of a window
        assert nexmark.state(ours, "state_rows") < nexmark.state(native, "state_rows") / 2
