"""Peers that need nothing installed find the number of results; one that does not install is reported."""

import pytest

pytest.importorskip("rich")
pytest.importorskip("duckdb")

from benchmarks import data, environments, peers
from benchmarks.cases import PEERS
from lab import processes


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "SCRATCH", tmp_path / "scratch")


@pytest.mark.more
@pytest.mark.parametrize("name", ["duckdb", "kernel"])
def test_a_peer_finds_the_number_of_results(scratch, name):
    case = PEERS.quick()
    found = peers.run(peers.CONTENDERS[name], case, quick=True)
    assert found["results"] == data.expected_results(data.make(case)) > 100_000
    assert found["rows"] == case.rows


@pytest.mark.more
def test_a_peer_that_does_not_install_is_reported(scratch, monkeypatch, tmp_path):
    monkeypatch.setitem(environments.PACKAGES, "polars", (str(tmp_path / "nothing.whl"),))
    found = peers.run(peers.CONTENDERS["polars"], PEERS.quick(), quick=True)
    assert "does not install on Python" in found["error"]
    assert not (data.SCRATCH / "peers" / "polars" / "stamp").exists()


def test_a_process_tells_what_it_measured_or_what_went_wrong(tmp_path):
    def run(program, longest=60.0):
        return processes.measured([peers.sys.executable, "-c", program], tmp_path / "x.log", longest=longest)

    assert run("print('words'); print('{\"rows\": 3}')") == {"rows": 3}
    assert run("print('{\"text\": \"' + 'x' * 200_000 + '\"}')")["text"] == "x" * 200_000
    assert run("raise ValueError('no rows')") == {"error": "exit 1, ValueError: no rows (x.log)"}
    assert run("import time; time.sleep(600)", longest=0.5) == {"error": "not finished after 0 s (x.log)"}
