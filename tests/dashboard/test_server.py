"""The live page's server: whom it answers, what it sends, how it goes on after a break."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from lab.dashboard.run_events import batch, plan, run
from watersmeet import dashboard
from watersmeet.dashboard.event_files import EventFile
from watersmeet.dashboard.feed import Feed
from watersmeet.dashboard.prometheus import Metrics
from watersmeet.dashboard.server import ASSETS, LISTENERS, MetricsServer, PageServer
from watersmeet.errors import EventError, WatersmeetError


@pytest.fixture
def feed() -> Feed:
    feed = Feed()
    for event in run(3):
        feed.publish(event)
    return feed


@pytest.fixture
def page(feed: Feed) -> Iterator[PageServer]:
    with PageServer(feed) as server:
        yield server


class Browser:
    """Asks servers, and closes what it opened."""

    def __init__(self) -> None:
        self.open: list[http.client.HTTPConnection] = []

    def __call__(
        self, url: str, name: str = "", *, token: str | None = None, method: str = "GET", **headers: str
    ) -> http.client.HTTPResponse:
        there = urlsplit(url)
        connection = http.client.HTTPConnection(there.hostname or "", there.port, timeout=10)
        self.open.append(connection)
        path = there.path if token is None else f"/{token}/"
        connection.request(method, path + name, headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        self.open.append(response)  # type: ignore[arg-type]
        return response


@pytest.fixture
def get() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    for one in browser.open:
        one.close()


def messages(response: http.client.HTTPResponse, until: int) -> list[tuple[int, dict]]:
    """Events of a stream up to the one with this number."""
    out: list[tuple[int, dict]] = []
    while not out or out[-1][0] < until:
        line = response.readline().decode().rstrip("\n")
        if line.startswith("id: "):
            out.append((int(line[4:]), json.loads(response.readline().decode().removeprefix("data: "))))
    return out


def test_the_page_and_what_it_names_are_there(get: Browser, page: PageServer) -> None:
    for name, kind in (("", "text/html"), ("page.js", "text/javascript"), ("page.css", "text/css")):
        response = get(page.url, name)
        assert response.status == 200
        assert response.getheader("Content-Type") == f"{kind}; charset=utf-8"
        assert response.read() == ASSETS[name or "index.html"]
    assert get(page.url, "plan.svg").read().decode() == plan("auctions", "bids")["svg"]
    assert {"index.html", "page.css", "page.js", "charts.js", "plan.js", "tables.js", "format.js", "icon.svg"} == set(
        ASSETS
    )


def test_it_listens_on_this_machine_only_and_the_token_is_new_each_time(page: PageServer, feed: Feed) -> None:
    assert page._server._http.server_address[0] == "127.0.0.1"
    assert len(page.token) >= 24
    with PageServer(feed) as other:
        assert other.token != page.token


@pytest.mark.parametrize("name", ["", "events", "plan.svg", "page.js"])
def test_nobody_is_answered_without_the_token(get: Browser, page: PageServer, name: str) -> None:
    for token in ("", "x", page.token[:-1], page.token + "x", f"x/{page.token}"):
        response = get(page.url, name, token=token)
        assert response.status == 404
        body = response.read().decode()
        assert page.token not in body
        assert "auctions" not in body


def test_without_the_last_slash_it_leads_there(get: Browser, page: PageServer) -> None:
    response = get(page.url.rstrip("/"))
    assert (response.status, response.getheader("Location")) == (301, urlsplit(page.url).path)


@pytest.mark.parametrize("name", ["../server.py", "%2e%2e/server.py", "/etc/passwd", "page.js/", "nothing"])
def test_only_the_pages_own_files_are_served(get: Browser, page: PageServer, name: str) -> None:
    assert get(page.url, name).status == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("localhost:1234", 200),  # through a tunnel
        ("[::1]:{port}", 200),
        ("localhost", 200),
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("localhost.evil.example", 403),
        ("", 403),
    ],
)
def test_a_name_that_was_made_to_point_here_is_refused(get: Browser, page: PageServer, host: str, status: int) -> None:
    port = urlsplit(page.url).port
    assert get(page.url, Host=host.format(port=port)).status == status


@pytest.mark.parametrize("name", ["", "events", "plan.svg"])
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "null", ""]
)
def test_pages_of_others_are_refused(get: Browser, page: PageServer, name: str, origin: str) -> None:
    assert get(page.url, name, Origin=origin.format(port=urlsplit(page.url).port)).status == 403


def test_the_page_itself_may_name_its_origin(get: Browser, page: PageServer) -> None:
    assert get(page.url, Origin=f"http://127.0.0.1:{urlsplit(page.url).port}").status == 200


def test_only_get_is_answered(get: Browser, page: PageServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert get(page.url, method=method).status == 501


def test_what_the_browser_receives(get: Browser, page: PageServer) -> None:
    headers = dict(get(page.url).getheaders())
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers
    assert "script" not in get(page.url, "plan.svg").getheader("Content-Security-Policy", "")


def test_events_come_from_the_beginning_then_as_they_happen(get: Browser, page: PageServer, feed: Feed) -> None:
    stream = get(page.url, "events")
    assert stream.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    assert [(n, e["kind"]) for n, e in messages(stream, 6)] == list(
        enumerate(["plan", "started", "batch", "batch", "batch", "ended"], 1)
    )
    feed.publish(batch(3))
    assert messages(stream, 7) == [(7, {"v": 1, **batch(3)})]


def test_after_a_break_it_goes_on_where_it_was(get: Browser, page: PageServer) -> None:
    assert [n for n, _ in messages(get(page.url, "events", Last_Event_ID="4"), 6)] == [5, 6]
    assert messages(get(page.url, "events", Last_Event_ID="nonsense"), 6)[0][0] == 1


def test_no_text_of_an_event_ends_a_message(get: Browser, page: PageServer, feed: Feed) -> None:
    evil = 'x\n\ndata: {"kind":"ended"}\r\n\r\nid: 99\u2028</script><img src=x onerror=alert(1)>'
    feed.publish({"kind": "ended", "run": evil, "at": "", "error": evil})
    ((number, event),) = messages(get(page.url, "events", Last_Event_ID="6"), 7)
    assert (number, event["error"]) == (7, evil)


def test_there_is_room_for_so_many_pages(get: Browser, page: PageServer) -> None:
    listening = [get(page.url, "events") for _ in range(LISTENERS)]
    for response in listening:
        messages(response, 6)
    assert get(page.url, "events").status == 503


def test_old_batches_make_room_and_the_plan_stays() -> None:
    feed = Feed(room=2)
    for event in run(5):
        feed.publish(event)
    assert [n for n, _ in feed.since(0, 0)] == [1, 2, 6, 7, 8]
    feed.close()
    assert feed.since(8, 60) == []


def test_closing_ends_the_streams(get: Browser, feed: Feed) -> None:
    server = PageServer(feed)
    stream = get(server.url, "events")
    messages(stream, 6)
    server.close()
    assert b"id:" not in stream.read(), "it ends, and nothing comes twice"


def test_a_finished_run_is_served_from_its_file(get: Browser, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with EventFile(path) as file:
        for event in run(4):
            file.write(event)
        with dashboard.serve(path) as served:
            stream = get(served.url, "events")
            assert [e["kind"] for _, e in messages(stream, 7)][-1] == "ended"
            file.write(batch(9))
            assert messages(stream, 8)[0][1]["batch"] == 9


def test_a_page_stays_when_its_file_goes_on_in_another_version(
    get: Browser, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run.jsonl"
    with EventFile(path) as file:
        for event in run(1):
            file.write(event)
    with dashboard.serve(path) as served:
        assert messages(get(served.url, "events"), 4)[-1][1]["kind"] == "ended"
        with path.open("a") as more:
            more.write('{"v":2,"kind":"batch"}\n')
        served._thread.join(10)
        assert "the event has version 2; this Watersmeet reads version 1" in caplog.text
        assert messages(get(served.url, "events"), 4)[-1][1]["kind"] == "ended"


def test_a_file_without_events_is_refused_before_anything_is_served(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("hello\n")
    with pytest.raises(EventError, match="no event of Watersmeet"):
        dashboard.serve(path)
    with pytest.raises(EventError, match=r"events cannot be read from .*nothing: No such file.*\nHint: name the file"):
        dashboard.serve(tmp_path / "nothing")


@pytest.mark.parametrize("port", [None, 70_000])
def test_a_port_that_cannot_be_had_is_named(feed: Feed, page: PageServer, port: int | None) -> None:
    port = port or urlsplit(page.url).port or 0
    with pytest.raises(WatersmeetError, match=rf"port {port} of 127.0.0.1 cannot be listened on: .*\nHint: give"):
        PageServer(feed, port)


def test_metrics_are_served_on_another_address_on_purpose(get: Browser) -> None:
    """127.1 is this machine under a name that is not one of the default's; a collector names it as it likes."""
    server = MetricsServer(Metrics(), "127.1:0")
    try:
        assert server.url.startswith("http://127.1:")
        assert get(server.url, Host="spark-driver.example:9108").status == 200
        assert get(server.url, Origin="http://evil.example").status == 403
    finally:
        server.close()


@pytest.mark.parametrize("address", ["here", ":9108", "0.0.0.0:", "0.0.0.0:http", -1])
def test_a_wrong_address_for_metrics_is_refused(address: int | str) -> None:
    rule = "it is a port of 127.0.0.1, or an address and a port."
    with pytest.raises(WatersmeetError, match=rf"`prometheus` is {address!r}; {rule}\nHint: .*0\.0\.0\.0:9108"):
        MetricsServer(Metrics(), address)
