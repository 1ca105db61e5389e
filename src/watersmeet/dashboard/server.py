"""The live page over HTTP: on this machine only, at an address that contains a token. Metrics, also on other addresses.

A page of another site, or a foreign name that resolves to this machine, gets no data: the token is the first part of
every path, `Host` must be a name of this machine, and an `Origin` must be the page's own. What is no plain GET is
refused in words that repeat nothing of it, and its connection is closed.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import socket
from abc import ABC, abstractmethod
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from threading import BoundedSemaphore, Thread
from types import TracebackType
from typing import Any, Self

from watersmeet.dashboard.feed import Feed
from watersmeet.dashboard.prometheus import Metrics
from watersmeet.errors import WatersmeetError

log = logging.getLogger("watersmeet")

LOOPBACK = "127.0.0.1"
#: Names of this machine in the `Host` header.
HERE = (LOOPBACK, "localhost", "[::1]")
HOST = re.compile(rf"({'|'.join(map(re.escape, HERE))})(:[0-9]{{1,5}})?")
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
POLICY = "default-src 'none'; {}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_POLICY = POLICY.format("script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'")
PICTURE_POLICY = POLICY.format("style-src 'unsafe-inline'")
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
#: Pages connected at a time; seconds between two heartbeats to an idle page; seconds to read a request.
LISTENERS, BEAT, PATIENCE = 32, 15.0, 30
#: Connections at a time: each has a thread of the driver until it is closed.
CONNECTIONS = 128
#: Digits of the largest number of an event.
DIGITS = 18


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
        self._connections = BoundedSemaphore(CONNECTIONS)
        super().__init__(address, handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            try:
                super().process_request_thread(request, client_address)
            finally:
                self._connections.release()
        else:
            self.shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A closed connection is no error, and a log of the request would hold the token."""
        log.debug("a request ended early", exc_info=True)


class _Http6(_Http):
    address_family = socket.AF_INET6


class Server:
    """An HTTP server in threads of its own, until it is closed."""

    def __init__(self, handler: type[Handler], port: int, host: str = LOOPBACK) -> None:
        try:
            self._http = (_Http6 if ":" in host else _Http)((host, port), handler)
        except (OSError, OverflowError) as error:
            raise WatersmeetError(
                f"port {port} of {host} cannot be listened on: {error}.",
                hint="give another port, or 0 for one that is free.",
            ) from error
        self._thread = Thread(target=self._http.serve_forever, args=(0.1,), daemon=True, name="watersmeet-http")
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class Handler(ABC, BaseHTTPRequestHandler):
    """The common part of both servers: GET from this machine only, no version in the headers."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "watersmeet", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        try:
            path = self._plain_path()
            if path is None:
                self.send_error(HTTPStatus.BAD_REQUEST)
            elif self.allowed():
                self.answer(path)
            else:
                self.refuse(HTTPStatus.FORBIDDEN, "only requests from this machine are answered")
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True  # the client has closed it

    @abstractmethod
    def answer(self, path: str) -> None:
        """Answer a request for this path."""

    def allowed(self) -> bool:
        """Whether the request comes from this machine, and not from a page of another site."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        return HOST.fullmatch(host) is not None and origin in (None, f"http://{host}")

    def _plain_path(self) -> str | None:
        """The path of a request that has one, one `Host` and no body; None of any other.

        A second `Host` could be the one that another program looked at, and a body would be read as the next request.
        """
        twice = any(len(self.headers.get_all(name, [])) > 1 for name in ("Host", "Origin"))
        body = self.headers.get_all("Content-Length", ["0"]) != ["0"] or "Transfer-Encoding" in self.headers
        return self.path.partition("?")[0] if self.path.startswith("/") and not (twice or body) else None

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no request, or not a GET; the base class would repeat it in a page."""
        self.request_version = self.protocol_version  # what has no valid one is answered with headers, too
        self.refuse(HTTPStatus(code), HTTPStatus(code).phrase)

    def send(self, body: bytes, kind: str, policy: str = POLICY.format("sandbox")) -> None:
        self._head(HTTPStatus.OK, kind, policy)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status: HTTPStatus, why: str) -> None:
        body = f"{why}\n".encode()
        self._head(status, "text/plain", POLICY.format("sandbox"))
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")  # which sets `close_connection`, too
        self.end_headers()
        self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, policy: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", policy)
        for name, value in HEADERS.items():
            self.send_header(name, value)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a log would hold the token."""


class PageServer:
    """The live page of a feed. `url` contains the token that gives access."""

    def __init__(self, feed: Feed, port: int = 0, token: str | None = None) -> None:
        self.feed = feed
        self.token = token or secrets.token_urlsafe(18)
        self._room = BoundedSemaphore(LISTENERS)
        self._server = Server(_page_handler(self), port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}/{self.token}/"

    def close(self) -> None:
        self.feed.close()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def knows(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def stream(self, to: Handler) -> None:
        """Send all events, then new ones as they come; a page that reconnects continues after its `Last-Event-ID`."""
        if not self._room.acquire(blocking=False):
            to.refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{LISTENERS} pages are connected already")
            return
        try:
            to.close_connection = True
            to._head(HTTPStatus.OK, "text/event-stream", POLICY.format("sandbox"))
            to.end_headers()
            before = to.headers.get("Last-Event-ID", "0")
            last = int(before) if before.isdecimal() and len(before) <= DIGITS else 0
            while not self.feed.closed:
                lines = self.feed.since(last, BEAT)
                for last, line in lines:
                    to.wfile.write(f"id: {last}\ndata: {line}\n\n".encode())
                to.wfile.write(b": heartbeat\n\n" if not lines else b"event: caught-up\ndata: {}\n\n")
                to.wfile.flush()
        finally:
            self._room.release()


def _page_handler(page: PageServer) -> type[Handler]:
    class PageHandler(Handler):
        def answer(self, path: str) -> None:
            token, _, name = path.removeprefix("/").partition("/")
            if not page.knows(token):
                self.refuse(HTTPStatus.NOT_FOUND, "the address lacks the token that was printed with it")
            elif not path.removeprefix(f"/{token}"):
                self.send_response(HTTPStatus.MOVED_PERMANENTLY)  # links of the page are relative to its folder
                self.send_header("Location", f"/{token}/")
                self.send_header("Content-Length", "0")
                self.end_headers()
            elif name == "events":
                page.stream(self)
            elif name == "plan.svg" and page.feed.picture is not None:
                self.send(encoded(page.feed.picture), TYPES["svg"], PICTURE_POLICY)
            elif (name or "index.html") in ASSETS:
                asset = name or "index.html"
                self.send(ASSETS[asset], TYPES[asset.rpartition(".")[2]], PAGE_POLICY)
            else:
                self.refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    return PageHandler


def encoded(text: str) -> bytes:
    """The text in UTF-8; half a character, which JSON may contain, becomes a question mark."""
    return text.encode(errors="replace")


def _assets() -> dict[str, bytes]:
    folder = resources.files("watersmeet.dashboard") / "page"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in TYPES}


#: The files of the page, by name. They are in memory: no path of a request reaches the disk.
ASSETS = _assets()


class MetricsServer:
    """Prometheus' text at `/metrics`, for a collector on this machine, or on any that reaches the given address."""

    def __init__(self, metrics: Metrics, address: int | str = 0) -> None:
        host, port = _host_and_port(address)
        self._host = f"[{host}]" if ":" in host else host
        here = self._host in HERE

        class MetricsHandler(Handler):
            def allowed(self) -> bool:
                return super().allowed() if here else "Origin" not in self.headers

            def answer(self, path: str) -> None:
                if path == "/metrics":
                    self._head(HTTPStatus.OK, "text/plain; version=0.0.4", POLICY.format("sandbox"))
                    body = encoded(metrics.text())
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                else:
                    self.refuse(HTTPStatus.NOT_FOUND, "metrics are at /metrics")

        self._server = Server(MetricsHandler, port, host)

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._server.port}/metrics"

    def close(self) -> None:
        self._server.close()


def _host_and_port(address: int | str) -> tuple[str, int]:
    """A port of this machine, or ``host:port`` (``[host]:port`` for IPv6)."""
    host, _, port = str(address).rpartition(":")
    if not port.isdecimal() or (isinstance(address, str) and ":" in address and not host):
        raise WatersmeetError(
            f"`prometheus` is {address!r}; it is a port of {LOOPBACK}, or an address and a port.",
            hint='prometheus=9108, or prometheus="0.0.0.0:9108" if other machines are to read the metrics.',
        )
    return host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port)
