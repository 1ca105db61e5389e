"""The live page and the metrics against a client that sends what no browser does: no data, no token, no hang."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lab.dashboard.prometheus_text import parse
from lab.dashboard.run_events import batch, plan, run
from watersmeet.dashboard import server as servers
from watersmeet.dashboard.feed import Feed
from watersmeet.dashboard.prometheus import Metrics
from watersmeet.dashboard.server import ASSETS, HEADERS, MetricsServer, PageServer

TOKEN = "the-token-of-the-tests"
#: What only an answer to somebody with the token has in it.
SECRETS = (TOKEN, "auctions", "item 0", "<svg")
#: Half a character: JSON may name it, UTF-8 cannot hold it.
HALF = "\ud800"


@pytest.fixture(scope="module")
def page() -> Iterator[PageServer]:
    feed = Feed()
    for event in run(3):
        feed.publish(event)
    with PageServer(feed, token=TOKEN) as server:
        yield server


@pytest.fixture(scope="module")
def metrics() -> Iterator[MetricsServer]:
    some = Metrics()
    some.take(batch(0))
    server = MetricsServer(some)
    yield server
    server.close()


def port_of(server: PageServer | MetricsServer) -> int:
    return urlsplit(server.url).port or 0


def exchanged(port: int, data: bytes, *, ends: bool = True) -> bytes:
    """What comes back for these bytes, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        out = b""
        try:
            connection.sendall(data)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            while some := connection.recv(1 << 16):
                out += some
        except (ConnectionResetError, BrokenPipeError):
            pass  # refused before all of it was read
        return out


def request(path: str, *headers: str, host: str = "localhost", version: str = " HTTP/1.1") -> bytes:
    lines = [f"GET {path}{version}", f"Host: {host}", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1", "replace") + b"\r\n"


def statuses(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"^HTTP/1\.1 (\d{3}) ", answer, re.M)]


def shows_nothing(answer: bytes) -> bool:
    return not [secret for secret in SECRETS if secret.encode() in answer]


# ---------------------------------------------------------------- without the token


@settings(max_examples=20)
@given(guess=st.text(st.characters(max_codepoint=255, exclude_categories=["Cc", "Zs"]), max_size=40))
@example("")
@example(TOKEN[:-1])
@example(f"{TOKEN}x")
@example(TOKEN.upper())
@example(f"%{ord(TOKEN[0]):x}{TOKEN[1:]}")
@example(f".{TOKEN}")
@example("\xff" * 30)
def test_a_guessed_token_opens_nothing(page: PageServer, guess: str) -> None:
    for path in (f"/{guess}", f"/{guess}/", f"/{guess}/events", f"/{guess}/plan.svg", f"//{guess}"):
        answer = exchanged(port_of(page), request(path.partition("?")[0] or "/"))
        assert statuses(answer) == [404]
        assert shows_nothing(answer)


@pytest.mark.parametrize("header", ["Cookie: token={}", "Authorization: Bearer {}", "Referer: http://localhost/{}/"])
@pytest.mark.parametrize("path", ["/", "/events", "/?{}", "/plan.svg?token={}"])
def test_the_token_counts_in_the_path_alone(page: PageServer, header: str, path: str) -> None:
    answer = exchanged(port_of(page), request(path.format(TOKEN), header.format(TOKEN)))
    assert statuses(answer) == [404]
    assert shows_nothing(answer)


# ---------------------------------------------------------------- pages of other sites


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example",
        "127.0.0.1.nip.example",
        "localhost.",
        "LOCALHOST.evil.example:80",
        "evil.example:127.0.0.1",
        "127.0.0.1@evil.example",
        "localhost:80@evil.example",
        "localhost:80/evil.example",
        "localhost, evil.example",
        "127.1",
        "2130706433",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::1].evil.example",
        "[::1",
        "",
    ],
)
def test_a_rebound_name_gets_nothing_even_with_the_token(page: PageServer, metrics: MetricsServer, host: str) -> None:
    for server, path in ((page, f"/{TOKEN}/events"), (page, f"/{TOKEN}/"), (metrics, "/metrics")):
        answer = exchanged(port_of(server), request(path, host=host))
        assert statuses(answer) == [403]
        assert shows_nothing(answer)


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: evil.example",),
        ("Host: localhost",),
        ("Origin: http://localhost", "Origin: http://evil.example"),
        ("Origin: http://evil.example", "Origin: http://localhost"),
    ],
)
def test_what_may_stand_there_once_does_not_stand_there_twice(
    page: PageServer, metrics: MetricsServer, headers: tuple[str, ...]
) -> None:
    for server, path in ((page, f"/{TOKEN}/events"), (metrics, "/metrics")):
        answer = exchanged(port_of(server), request(path, *headers))
        assert statuses(answer) == [400]
        assert shows_nothing(answer)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "file://", "http://localhost:1", "*"])
def test_metrics_are_not_for_pages_of_other_sites(metrics: MetricsServer, origin: str) -> None:
    answer = exchanged(port_of(metrics), request("/metrics", f"Origin: {origin}"))
    assert statuses(answer) == [403]
    assert b"Access-Control" not in answer


# ---------------------------------------------------------------- paths


@pytest.mark.parametrize(
    "path",
    [
        "../../../../etc/passwd",
        "..%2f..%2fserver.py",
        "%2e%2e/__init__.py",
        "....//server.py",
        "..\\server.py",
        "page.js%00.html",
        "page.js\x00",
        "/page.js",
        "./page.js",
        "page",
        "PAGE.JS",
        "%70age.js",
        "events/",
        "page.js;x",
        "file:///etc/passwd",
    ],
)
def test_paths_lead_nowhere_else(page: PageServer, path: str) -> None:
    answer = exchanged(port_of(page), request(f"/{TOKEN}/{path}"))
    assert statuses(answer) == [404]
    assert b"root:" not in answer
    assert not [name for name, body in ASSETS.items() if body in answer]


@pytest.mark.parametrize(
    "path", ["http://localhost/{}/events", "http://[/", "//[/{}/", "*", "evil.example:80", f"/{HALF}", "\\{}\\"]
)
def test_other_forms_of_a_path_are_refused(page: PageServer, path: str) -> None:
    answer = exchanged(port_of(page), request(path.format(TOKEN)))
    assert statuses(answer)[0] in (400, 404)
    assert shows_nothing(answer)


# ---------------------------------------------------------------- requests of other shapes

#: A request that would be answered, if it were taken for one.
SECOND = request(f"/{TOKEN}/plan.svg")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(request("/" + "a" * 70_000), 414, id="a long path"),
        pytest.param(request("/", "X: " + "a" * 70_000), 431, id="a long header"),
        pytest.param(request("/", *(f"X-{n}: 1" for n in range(200))), 431, id="many headers"),
        pytest.param(request("/", version=" HTTP/9.9"), 505, id="a version to come"),
        pytest.param(request("/", version=" HTTP/x"), 400, id="no version"),
        pytest.param(request("/", version=" HTTP/1.1 <script>alert(1)</script>"), 400, id="too many words"),
        pytest.param(b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n", 501, id="markup for a method"),
        pytest.param(b"POST /" + TOKEN.encode() + b"/ HTTP/1.1\r\nHost: localhost\r\n\r\n" + SECOND, 501, id="POST"),
        pytest.param(request("/", f"Content-Length: {len(SECOND)}") + SECOND, 400, id="a body that is a request"),
        pytest.param(request("/", "Content-Length: 0", "Content-Length: 9") + SECOND, 400, id="two lengths"),
        pytest.param(request("/", "Content-Length: -1") + SECOND, 400, id="a negative length"),
        pytest.param(request("/", "Transfer-Encoding: chunked") + b"0\r\n\r\n" + SECOND, 400, id="chunks"),
        pytest.param(request("/x") + SECOND, 404, id="one request behind another"),
        pytest.param(request("/", host="evil.example") + SECOND, 403, id="one behind that of another site"),
    ],
)
def test_what_is_no_plain_request_is_refused_and_ends_the_connection(
    page: PageServer, data: bytes, status: int
) -> None:
    answer = exchanged(port_of(page), data)
    assert statuses(answer) == [status]
    assert shows_nothing(answer)
    assert b"script>" not in answer
    head = answer.partition(b"\r\n\r\n")[0].decode()
    assert "Content-Type: text/plain" in head
    for name, value in HEADERS.items():
        assert f"{name}: {value}" in head


@settings(max_examples=60)
@given(data=st.binary(max_size=300) | st.binary(max_size=80).map(lambda some: b"GET /" + some + b" HTTP/1.1\r\n\r\n"))
def test_bytes_at_random_are_answered_with_nothing(page: PageServer, metrics: MetricsServer, data: bytes) -> None:
    for server in (page, metrics):
        answer = exchanged(port_of(server), data)
        assert set(statuses(answer)) <= {400, 403, 404, 414, 431, 501, 505}
        assert shows_nothing(answer)


def test_it_answers_others_after_all_that(page: PageServer, metrics: MetricsServer) -> None:
    assert statuses(exchanged(port_of(page), SECOND)) == [200]
    assert statuses(exchanged(port_of(metrics), request("/metrics"))) == [200]


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "1e3", "٣", "", " "])
def test_a_number_that_is_none_begins_at_the_beginning(page: PageServer, number: str) -> None:
    data = request(f"/{TOKEN}/events", f"Last-Event-ID: {number}")
    with socket.create_connection(("127.0.0.1", port_of(page)), timeout=10) as connection:
        connection.sendall(data)
        answer = b""
        while b"event: caught-up" not in answer:
            some = connection.recv(1 << 16)
            assert some, "it goes on"
            answer += some
        assert b"\r\n\r\nid: 1\ndata: " in answer


def test_connections_that_ask_nothing_leave_room_for_no_more_threads_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "CONNECTIONS", 3)
    with PageServer(Feed(), token=TOKEN) as page, ExitStack() as stack:

        def idle() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port_of(page)), timeout=10))

        first = [idle() for _ in range(3)]
        for connection in first:  # each has a thread when it has an answer
            connection.sendall(request(f"/{TOKEN}/page.css"))
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        assert idle().recv(1) == b"", "closed at once"


# ---------------------------------------------------------------- texts of streams

TEXTS = st.text(st.characters(exclude_categories=[])) | st.sampled_from(
    ['"', "\\", "\n", '\\"', '"} 1\n# TYPE x counter\nx{a="', "\r", "\u2028", "</script>", HALF, "{}", "a\\nb"]
)


@given(names=st.lists(TEXTS, min_size=2, max_size=2, unique=True), query=TEXTS)
def test_no_text_leaves_its_label(names: list[str], query: str) -> None:
    """Whatever streams and queries are called, a collector reads the samples that plain names have, by these names."""
    found, plain = [], []
    for into, streams, called in ((found, names, query), (plain, ["a", "b"], "q")):
        metrics = Metrics()
        for event in run(2, (streams[0], streams[1])):
            metrics.take({**event, "name": called or "query-1"} if event["kind"] == "started" else event)
        into.append(parse(servers.encoded(metrics.text()).decode()))
    (ours,), (others,) = found, plain
    assert {family: sorted(samples.values()) for family, samples in ours.items()} == {
        family: sorted(samples.values()) for family, samples in others.items()
    }
    read = {unescaped(one) for one in re.findall(r'stream="((?:[^"\\]|\\.)*)"', "".join(ours["watersmeet_rows_total"]))}
    assert read == {name.encode(errors="replace").decode() for name in names}


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def test_half_a_character_breaks_neither_the_page_nor_the_metrics() -> None:
    feed, metrics = Feed(), Metrics()
    feed.publish({**plan("a"), "svg": f"<svg>{HALF}</svg>"})
    feed.publish(batch(0, (HALF, "b")))
    metrics.take(batch(0, (HALF, "b")))
    collected = MetricsServer(metrics)
    try:
        assert statuses(exchanged(port_of(collected), request("/metrics"))) == [200]
    finally:
        collected.close()
    with PageServer(feed, token=TOKEN) as page:
        assert b"<svg>?</svg>" in exchanged(port_of(page), request(f"/{TOKEN}/plan.svg"))


@pytest.mark.parametrize("picture", [{}, {"svg": None}, {"svg": 7}, {"svg": ["<svg/>"]}])
def test_a_plan_without_a_picture_has_none(picture: dict[str, object]) -> None:
    feed = Feed()
    feed.publish({"kind": "plan", "at": "", "plan": {}} | picture)
    with PageServer(feed, token=TOKEN) as page:
        assert statuses(exchanged(port_of(page), request(f"/{TOKEN}/plan.svg"))) == [404]


#: What turns a text into markup or code in a browser.
SINKS = (
    *("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "DOMParser"),
    *("srcdoc", "eval(", "Function(", "import(", "javascript:", "setHTMLUnsafe", "postMessage", "window.open"),
)


@pytest.mark.parametrize("name", sorted(ASSETS))
def test_the_page_makes_no_markup_and_no_code_of_texts(name: str) -> None:
    """`tests/dashboard/test_browser.py` looks at the same in a browser."""
    text = ASSETS[name].decode()
    assert [sink for sink in SINKS if sink in text] == []
    assert re.findall(r"""\son\w+\s*=|style\s*=\s*["']|https?://(?!www\.w3\.org/)""", text) == []
    timers: Callable[[str], list[str]] = lambda kind: re.findall(rf"{kind}\((.)", text)  # noqa: E731 (one line)
    assert {*timers("setTimeout"), *timers("setInterval")} <= {"(", "h"}, "functions, not texts"
