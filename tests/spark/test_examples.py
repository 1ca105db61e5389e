"""The examples run, print what the README shows, and find what DuckDB finds."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("duckdb")

from rich.console import Console

from examples import auction, location, quiet_source, sensors, trades

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.spark
@pytest.mark.more
def test_first_join_prints_the_table_of_the_readme():
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "first_join.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    printed = [line for line in ran.stdout.splitlines() if line.startswith(("+", "|"))]
    assert len(printed) == 7
    assert "\n".join(printed) in (ROOT / "README.md").read_text()


@pytest.mark.spark
@pytest.mark.more
def test_the_auction_is_exact_and_its_state_small(spark, tmp_path):
    printed = io.StringIO()
    picture = tmp_path / "state.svg"
    house = auction.House(hours=4, rate=400, seed=3)
    runs, different = auction.show(spark, house, picture, Console(file=printed, width=160))
    assert different == 0
    assert "exact: " in printed.getvalue()
    assert [run.contender.name for run in runs] == [c.name for c in auction.CONTENDERS]
    most = {run.contender.build: max(tuples for _, tuples, _ in run.state) for run in runs}
    assert most[auction.punctuated] * 10 < most[auction.windows_alone]
    assert most[auction.punctuated] < most[auction.bids_do_not_wait]
    assert all([hours for hours, _, _ in run.state][-1] == 4 for run in runs)
    assert 1_000 < picture.stat().st_size < 100_000


@pytest.mark.spark
@pytest.mark.more
def test_a_quiet_source_holds_nothing_back(spark, capfd):
    assert quiet_source.main() == [0, 2]
    assert "unpaid orders" in capfd.readouterr().out


@pytest.mark.spark
@pytest.mark.more
def test_sensors_find_the_walker(spark, tmp_path):
    printed, picture = io.StringIO(), tmp_path / "walk.svg"
    walk = sensors.Walk(epochs=240, seed=2)
    found, different = sensors.show(spark, walk, picture, Console(file=printed, width=160))
    assert different == 0
    assert "exact: the same epochs by all" in printed.getvalue()
    three, four, alone = found
    assert set(four.epochs) == set(alone.epochs) < set(three.epochs)
    assert 0 < four.error(walk) < three.error(walk) < 4
    assert four.most_stored < alone.most_stored
    assert 1_000 < picture.stat().st_size < 200_000


@pytest.mark.spark
@pytest.mark.more
def test_the_transmitter_is_found_without_a_window(spark):
    printed = io.StringIO()
    field = location.Field(epochs=1500, seed=2)
    found, whole = location.show(spark, field, Console(file=printed, width=160))
    assert set(found.epochs) <= set(whole)
    assert len(set(found.epochs)) == len(found.epochs) >= 0.99 * len(whole) > 1000
    late = sum(c["too_late"] for c in found.counters)
    assert late or len(found.epochs) == len(whole)
    assert f"{late} readings too late" in printed.getvalue()
    # the detour of a quarter of a minute, of three sensors, and not the whole minutes
    assert found.counters[-2]["stored"] < 2 * 3 * 10 * 25 < sum(c["rows_in"] for c in found.counters) / 2
    assert found.error(field) < 5


@pytest.mark.spark
@pytest.mark.more
def test_trades_have_the_quotes_that_duckdb_finds(spark):
    found, whole, stored = trades.show(spark, trades.Market(seconds=180, seed=4))
    assert found == {trade: whole[trade] for trade in found}
    assert len(found) > 0.9 * len(whole)
    assert stored < 0.25 * 180 * 50


def test_the_location_example_knows_no_window():
    text = (ROOT / "examples" / "location.py").read_text()
    code = text.partition('"""\n\nfrom __future__')[2]
    assert code.count("window=") == code.count('window="auto"') == 1
    assert "delay=" not in code


def test_signal_strengths_tell_a_place():
    import numpy as np

    at = np.array([[30.0, 40.0], [1.0, 99.0]])
    away = np.stack([np.linalg.norm(at - place, axis=1) for place in location.SENSORS.values()], axis=1)
    assert np.allclose(location.place(-20 * np.log10(away)), at)


def test_help_of_the_location_teaches(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["location.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        location.main()
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("--epochs", "--seed", 'window="auto"', "too late"))


def test_a_place_follows_from_distances():
    import numpy as np

    at = np.array([[30.0, 40.0], [1.0, 99.0]])
    for names in (tuple(sensors.SENSORS), tuple(sensors.SENSORS)[:3]):
        away = np.stack([np.linalg.norm(at - sensors.SENSORS[n], axis=1) for n in names], axis=1)
        assert np.allclose(sensors.place(names, away), at)


def test_help_of_the_sensors_teaches(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["sensors.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        sensors.main()
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("--epochs", "--seed", "--out", "wm.join", "wm.ordered"))


def test_help_teaches(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["auction.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        auction.main()
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("--seconds", "--rate", "--seed", "--out", "wm.unique", "wm.when"))
