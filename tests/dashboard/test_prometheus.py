"""Prometheus' text: it keeps to the format, and its numbers are those of the events."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

from lab.dashboard.prometheus_text import parse
from lab.dashboard.run_events import batch, run
from watersmeet.dashboard.prometheus import FAMILIES, Metrics, escaped
from watersmeet.dashboard.server import MetricsServer


def test_the_numbers_are_those_of_the_events() -> None:
    metrics = Metrics()
    for event in run(4):
        metrics.take(event)
    found, batches = parse(metrics.text()), [batch(n) for n in range(4)]
    house = 'query="auction house"'
    assert found["watersmeet_batches_total"] == {house: 4}
    assert found["watersmeet_results_total"] == {house: sum(b["rows_out"] for b in batches)}
    assert found["watersmeet_up"] == {house: 0}
    for i, name in enumerate(("auctions", "bids")):
        label, last = f'{house},stream="{name}"', batches[-1]["streams"][i]
        assert found["watersmeet_rows_total"][label] == sum(b["streams"][i]["rows_in"] for b in batches)
        assert found["watersmeet_late_rows_total"][label] == sum(b["streams"][i]["late"] for b in batches)
        assert found["watersmeet_state_tuples"][label] == last["stored"]
        assert found["watersmeet_state_predicted_tuples"][label] == last["predicted"]
        assert found["watersmeet_lag_seconds"][label] == last["lag"]
    assert found["watersmeet_left_tuples_total"][f'{house},reason="window"'] == 60
    assert set(found) == set(FAMILIES) - {"watersmeet_scrambling_factor"}


def test_a_query_that_starts_again_goes_on() -> None:
    metrics = Metrics()
    for event in [*run(2), *run(1, run="run-2")[:-1]]:
        metrics.take(event)
    found = parse(metrics.text())
    assert found["watersmeet_batches_total"] == {'query="auction house"': 3}
    assert found["watersmeet_up"] == {'query="auction house"': 1}


def test_a_value_that_is_not_known_any_more_is_not_shown() -> None:
    metrics = Metrics()
    for event in (batch(1), batch(0)):
        metrics.take(event)
    assert "watersmeet_state_predicted_tuples" not in parse(metrics.text())


def test_names_of_streams_are_escaped() -> None:
    metrics = Metrics()
    metrics.take(batch(1, ('a"} 1\nevil 2', "back\\slash")))
    labels = list(parse(metrics.text())["watersmeet_rows_total"])
    assert labels[0] == r'query="run-1",stream="a\"} 1\nevil 2"'
    assert labels[1] == r'query="run-1",stream="back\\slash"'
    assert escaped("a\\n") == r"a\\n"


def test_it_is_served_on_this_machine_without_a_token() -> None:
    metrics = Metrics()
    metrics.take(batch(0))
    server = MetricsServer(metrics)
    try:
        there = urlsplit(server.url)
        for path, host, status in (
            ("/metrics", "localhost", 200),
            ("/metrics", "evil.example", 403),
            ("/", "localhost", 404),
        ):
            connection = HTTPConnection("127.0.0.1", there.port, timeout=10)
            connection.request("GET", path, headers={"Host": host})
            with closing(connection), connection.getresponse() as response:
                assert response.status == status
                if status == 200:
                    assert response.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
                    assert response.read().decode() == metrics.text()
    finally:
        server.close()
