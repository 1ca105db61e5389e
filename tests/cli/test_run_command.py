"""What `run` and `explain` say, without Spark: lines of batches, the sum, a busy machine, a query alone."""

from __future__ import annotations

import io
import json
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("typer")

from rich.console import Console

from lab.pages.commands import called
from lab.query.pipeline_mistakes import FOLDERS
from watersmeet.cli import run_command
from watersmeet.cli.failures import Exit
from watersmeet.cli.progress_lines import Tally
from watersmeet.pipelines.loader import from_text

PIPELINE = from_text(FOLDERS, "pipeline.toml", Path(), {})
QUERY = (
    "SELECT A.item_id, COUNT(*) AS bids FROM auction [RANGE 12 HOURS] A, bid [ROWS 5] B "
    "WHERE A.item_id = B.item_id AND A.reserve > 10 AND B.price > A.reserve GROUP BY A.item_id"
)


def progress(number: int, *, rows: int = 100, malformed: int = 0, **counters: int) -> Any:
    given = {"shard": 0, "idle": 0, "rows_in": rows, "results": 50, "late": 0, "violations": 0, "stored": 80}
    report = json.dumps(given | {"state_bytes": 1_500_000} | counters)
    metrics = {"watersmeet": {"shards": [report]}, "watersmeet_malformed_bid": {"messages": malformed}}
    return SimpleNamespace(batchId=number, durationMs={"triggerExecution": 1200}, observedMetrics=metrics)


class Query:
    """A streaming query that reports so many batches, and then ends, goes on resting, or fails."""

    def __init__(self, *batches: Any, ends: bool = True, fails: Exception | None = None) -> None:
        self.recentProgress = list(batches)
        self.ends, self.fails, self.stopped = ends, fails, False
        self.status = {"isTriggerActive": False}

    def awaitTermination(self, timeout: int | None = None) -> bool:
        if self.fails is not None:
            raise self.fails
        return self.ends

    def stop(self) -> None:
        self.stopped = True


def test_batches_are_reported_once_and_summed_up() -> None:
    console = Console(file=io.StringIO(), width=200)
    query = Query(progress(0), progress(1, late=2, malformed=3), progress(1, late=2))
    tally = Tally(["auction", "bid"])
    run_command.follow(query, Event(), console, tally)
    tally.update(query.recentProgress, console)
    tally.sum_up(console)
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "batch 0: 100 rows in, 50 out, 80 tuples in state (1.5 MB), 1.2 s",
        "batch 1: 100 rows in, 50 out, 2 late, 80 tuples in state (1.5 MB), 1.2 s",
        "2 batches, 200 rows in, 100 results, 2 late, 3 malformed, 80 tuples in state",
    ]
    assert query.stopped


def test_groups_are_reported_in_place_of_the_results_they_are_of() -> None:
    console = Console(file=io.StringIO(), width=200)
    tally = Tally(["bid"])
    tally.update([progress(0, groups=7)], console)
    tally.sum_up(console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "100 rows in, 7 out" in printed
    assert "7 groups of 50 results" in printed


def test_nothing_to_do_is_reported_too() -> None:
    console = Console(file=io.StringIO(), width=200)
    Tally(["bid"]).sum_up(console)
    assert console.file.getvalue() == "0 batches, 0 rows in, 0 results, nothing in state\n"  # type: ignore[attr-defined]


def test_nobody_looks_on_unless_requested() -> None:
    console = Console(file=io.StringIO())
    with run_command.Monitoring().follow(None, console) as nobody:
        assert nobody is None
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_an_interrupted_run_ends_when_the_query_rests() -> None:
    interrupted = Event()
    interrupted.set()
    query = Query(progress(0), ends=False)
    run_command.follow(query, interrupted, Console(file=io.StringIO()), Tally([]))
    assert query.stopped


def test_a_busy_machine_gets_another_chance_and_other_failures_none() -> None:
    console = Console(file=io.StringIO(), width=200)
    slow = RuntimeError("Python worker failed to connect back.")
    queries = [Query(progress(0), fails=slow), Query(progress(1))]
    tally = run_command._patiently(lambda: queries.pop(0), PIPELINE, Event(), console)
    assert (tally.batches, tally.sums["rows_in"]) == (2, 200)
    assert (
        "Spark waits 10 s for a Python process that it starts, and it took longer; once more" in console.file.getvalue()
    )  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="no such topic"):
        run_command._patiently(lambda: Query(fails=RuntimeError("no such topic")), PIPELINE, Event(), console)
    busy = RuntimeError("Python worker failed to connect back.")
    with pytest.raises(RuntimeError, match="connect back"):
        run_command._patiently(lambda: Query(fails=busy), PIPELINE, Event(), console)


def test_a_right_pipeline_is_reported_as_such_and_a_wrong_one_ends_with_its_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "join.toml"
    file.write_text(FOLDERS)
    for folder in ("auctions", "bids"):
        (tmp_path / folder).mkdir()
    code, out, _ = called(capsys, "run", "--check", str(file))
    assert (code, out) == (Exit.DONE, f"{file} is valid: auction, bid → results (parquet)\n")
    file.write_text(FOLDERS.replace("delay", "dealy"))
    code, _, err = called(capsys, "run", str(file))
    assert code == Exit.MISTAKE
    assert err.startswith(f"error: {file}, line 20: unknown key `dealy` in [streams.bid].\n")
    assert err.endswith("Hint: did you mean `delay`?\n")


def test_a_query_alone_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "explain", QUERY)
    assert code == Exit.DONE
    assert out.splitlines()[:5] == [
        "inner join of A, B on item_id",
        "  A (auction): window of 12 hours; columns item_id, reserve, A_time",
        "    only where reserve > 10, evaluated below the join",
        "  B (bid): window of 5 rows; columns B_time, price, item_id",
        "  where price > reserve, evaluated by the join on every pair",
    ]
    code, out, _ = called(capsys, "explain", "--json", QUERY)
    facts = json.loads(out)
    assert (facts["groups"], facts["outputs"]) == (["item_id"], ["item_id", "bids"])
    assert "GROUP BY" in facts["batch"]


class Explained:
    """A pipeline's join that is never made: its explanation is its arguments."""

    def explain(self, **requested: object) -> str:
        return Text(requested)

    def stop(self) -> None:
        """As a session does."""


class Text(str):
    def __new__(cls, requested: object) -> Text:
        return super().__new__(cls, f"explained {requested}")

    def to_dict(self) -> dict[str, str]:
        return {"text": str(self)}


@pytest.mark.parametrize("verbose", [False, True])
def test_a_pipeline_is_explained_in_short_or_verbose(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verbose: bool
) -> None:
    from watersmeet.spark.pipelines import assembly

    monkeypatch.setattr(assembly, "session", lambda *_: Explained())
    explained: Any = Explained()
    monkeypatch.setattr(assembly, "assemble", lambda *_: assembly.Assembled(explained, None))
    (tmp_path / "join.toml").write_text(FOLDERS)
    for folder in ("auctions", "bids"):
        (tmp_path / folder).mkdir()
    code, out, _ = called(capsys, "explain", *(["--verbose"] if verbose else []), str(tmp_path / "join.toml"))
    assert (code, out) == (Exit.DONE, f"explained {{'verbose': {verbose}}}\n")


def test_a_query_alone_has_its_mistakes_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "explain", "SELECT price FROM a [NOW], b [NOW] WHERE a.id = b.id")
    assert code == Exit.MISTAKE
    assert "column `price` stands in `a` and `b`" in err
    code, _, err = called(capsys, "explain", "--svg", "x.svg", QUERY)
    assert code == Exit.MISTAKE
    assert "`--svg` draws the plan of a pipeline" in err
