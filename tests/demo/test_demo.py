"""The demo's parts, without Spark: what it reads from progress, shows, compares and draws."""

import io
import json
from threading import Event
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from rich.console import Console

from watersmeet.demo import run_report, view
from watersmeet.demo.auction_demo import WINDOW, Demo
from watersmeet.demo.batch_history import Batch, Run
from watersmeet.spark.progress.batch_events import REASONS, RunEvents
from watersmeet.workload import SECOND
from watersmeet.workload.tables import AUCTIONS, BIDS, bid_table, plain_table

DEMO = Demo(seconds=15, rate=300, seed=7)


def progress(number, rows=100, micros=2 * SECOND, source_rows=None):
    counters = {"shard": 0, "idle": 0, "results": 50, "late": 1, "stored": 80, "state_bytes": 1_500, "rows_in": rows}
    counters |= dict.fromkeys(("violations", *REASONS.values()), 0)
    return SimpleNamespace(
        batchId=number,
        numInputRows=rows if source_rows is None else source_rows,
        durationMs={"triggerExecution": 500},
        observedMetrics={"watersmeet": {"shards": [json.dumps(counters)]}},
        sources=[SimpleNamespace(endOffset=f'{{"micros": {micros}}}')] * 2,
    )


def finished_run():
    return Run([Batch(n, 100, 50, 0, stored, 1_500, 0.5, (15 * SECOND,) * 2) for n, stored in enumerate([60, 90, 90])])


@pytest.fixture(scope="module")
def results():
    """The join as Arrow would do it, by hand."""
    auctions = plain_table(DEMO.house.auctions(0, 15 * SECOND), AUCTIONS)
    bids = bid_table(DEMO.house.bids(0, 15 * SECOND), BIDS)
    pairs = auctions.join(bids.filter(pc.invert(bids["closed"])), "item_id", join_type="inner")
    age = pc.subtract(pairs["bid_at"].cast(pa.int64()), pairs["opened_at"].cast(pa.int64()))
    return pairs.filter(pc.less_equal(age, WINDOW * SECOND))


def test_progress_adds_up_and_repeated_reports_count_once():
    run = Run()
    run.update([progress(0)])
    run.update([progress(0), progress(1), progress(1, rows=0)])
    assert [batch.number for batch in run.batches] == [0, 1]
    assert (run.rows, run.results, run.late) == (200, 100, 2)
    assert run.batches[-1].stream_time == (2 * SECOND, 2 * SECOND)


def test_rows_that_are_filtered_out_before_the_join_are_not_counted_as_the_page_does_not():
    run = Run()
    run.update([progress(0, rows=90, source_rows=100)])
    event = RunEvents([], grouped=False).batch(
        SimpleNamespace(**vars(progress(0, rows=90, source_rows=100)), timestamp="2026-05-01T10:00:00Z", runId="r")
    )
    assert run.rows == event["rows_in"] == 90


def test_a_batch_in_which_no_shard_was_called_is_passed_over():
    run = Run()
    idle = SimpleNamespace(**vars(progress(1)) | {"observedMetrics": {}})
    run.update([progress(0), idle])
    assert [batch.number for batch in run.batches] == [0]


def test_a_run_is_finished_when_both_streams_are_read():
    run = Run()
    assert not DEMO.finished(run)
    run.update([progress(0)])
    assert not DEMO.finished(run)
    run.update([progress(1, micros=15 * SECOND)])
    assert DEMO.finished(run)


def test_the_view_shows_the_numbers():
    console = Console(file=io.StringIO(), width=100)
    console.print(view.frame(DEMO, Run()), view.frame(DEMO, finished_run(), stopping=True))
    text = console.file.getvalue()
    for part in (
        "first batch",
        "300",
        "150",
        "90",
        "1.5 kB",
        "200 rows/s",
        "15 of 15 s",
        "▆██",
        "finishing this batch",
    ):
        assert part in text


class FakeQuery:
    """Has one batch more each time it is looked at."""

    def __init__(self, during=lambda: None, first=0):
        self.recentProgress, self.during, self.stopped, self.first = [], during, False, first

    def awaitTermination(self, timeout):
        number = self.first + len(self.recentProgress)
        self.recentProgress.append(progress(number, micros=(number + 1) * 5 * SECOND))
        self.during()

    def stop(self):
        self.stopped = True


def test_watching_ends_when_everything_is_read():
    query = FakeQuery()
    run = view.watch(DEMO, lambda: query, Event(), Console(file=io.StringIO()))
    assert (len(run.batches), query.stopped) == (3, True)


def test_watching_ends_with_the_batch_after_ctrl_c():
    interrupted = Event()
    query = FakeQuery(during=interrupted.set)
    run = view.watch(DEMO, lambda: query, interrupted, Console(file=io.StringIO()))
    assert (len(run.batches), query.stopped) == (2, True)


class SlowQuery(FakeQuery):
    """Fails in its second batch, as it does when Spark gave up waiting for a Python process."""

    def awaitTermination(self, timeout):
        if self.recentProgress:
            raise RuntimeError("Python worker failed to connect back.")
        super().awaitTermination(timeout)


def test_on_a_busy_machine_the_query_is_started_again_and_the_run_goes_on():
    queries = [SlowQuery(), FakeQuery(first=1)]
    console = Console(file=io.StringIO(), width=200)
    run = view.watch(DEMO, lambda: queries.pop(0), Event(), console)
    assert [batch.number for batch in run.batches] == [0, 1, 2]
    assert "the machine is busy: Spark waits 10 s for a Python process" in console.file.getvalue()


def test_some_bids_fall_outside_the_window(results):
    bids = DEMO.house.bids(0, 15 * SECOND)
    assert 0 < results.num_rows < (~bids["closed"]).sum()


def test_a_complete_result_is_exact(results):
    pytest.importorskip("duckdb")
    comparison = run_report.compare(DEMO, finished_run(), results)
    count = results.num_rows
    assert comparison == (count, count, 0)
    assert str(comparison) == f"exact: {count:,} results = {count:,} by batch SQL, row for row"


def test_a_lost_and_a_doubled_result_are_found(results):
    pytest.importorskip("duckdb")
    count = results.num_rows
    broken = pa.concat_tables([results.slice(1), results.slice(5, 1)])
    comparison = run_report.compare(DEMO, finished_run(), broken)
    assert comparison == (count, count, 2)
    assert str(comparison) == f"not exact: {count:,} results, {count:,} by batch SQL, 2 rows differ"


def test_the_report_says_draws_and_quotes(results, tmp_path):
    console = Console(file=io.StringIO(), width=120)
    run_report.show(console, DEMO, finished_run(), results, tmp_path / "out")
    text = console.file.getvalue()
    assert f"6 of {results.num_rows:,} results" in text
    assert "300 rows read, at most 90 of them in state at a time, 0 late." in text
    assert 'wm.join(auctions, bids, on="item_id")' in text
    assert (tmp_path / "out" / "state.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (12_345, "12.3 kB"), (5 * 10**6, "5.0 MB"), (3 * 10**9, "3.0 GB")]
)
def test_bytes_for_people(count, text):
    assert view.as_bytes(count) == text
