"""A link between two network namespaces of this machine, whose bandwidth and delay can be set.

    namespace a  [tun, tbf] ── relay (this process, holds every packet for the delay) ── [tun, tbf]  namespace b

`tc`'s token bucket limits the bandwidth of each direction. Its delay (netem) is a kernel module that many machines do
not have, so the delay is this relay's. The namespaces have their loopback and this link, and no way anywhere else.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from threading import Event, Thread

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 9000
SIDES = ("a", "b")
ADDRESSES = ("10.203.17.1", "10.203.17.2")
PORT = 5001
#: Bytes that pass at once, before the bucket limits: a few packets.
BURST = 4 * MTU


class NoNamespacesError(Exception):
    """This machine does not allow namespaces or their devices; the message says what failed."""


class Link:
    """Two namespaces and the link between them, inside a `with`."""

    def __init__(self) -> None:
        self.names = [f"watersmeet-{os.getpid()}-{side}" for side in SIDES]
        self.devices = [f"wm{os.getpid()}{side}" for side in SIDES]
        self.delay = 0.0  # seconds, of each direction
        self.files: list[int] = []
        self._stop = Event()
        self._relay = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Link:
        try:
            self._make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            output = getattr(error, "stderr", b"") or str(error).encode()
            raise NoNamespacesError(output.decode().strip().splitlines()[-1]) from error
        self._relay.start()
        return self

    def _make(self) -> None:
        for tool in ("ip", "tc"):
            if shutil.which(tool) is None:
                raise FileNotFoundError(f"`{tool}` is missing (Debian: apt-get install iproute2)")
        for name, device, address in zip(self.names, self.devices, ADDRESSES, strict=True):
            _call("ip", "netns", "add", name)
            self.files.append(_tun(device))
            _call("ip", "link", "set", device, "netns", name)
            for command in (
                ("ip", "link", "set", "lo", "up"),
                ("ip", "address", "add", f"{address}/30", "dev", device),
                ("ip", "link", "set", device, "mtu", str(MTU), "up"),
            ):
                _call(*self.within(name), *command)

    @staticmethod
    def within(name: str) -> tuple[str, ...]:
        """What to put before a command to run it in a namespace."""
        return ("ip", "netns", "exec", name)

    def limit(self, megabits: float | None, delay: float) -> None:
        """Set the bandwidth of each direction (None: no limit) and the delay in seconds."""
        self.delay = delay
        for name, device in zip(self.names, self.devices, strict=True):
            change = (*self.within(name), "tc", "qdisc")
            with suppress(subprocess.CalledProcessError):  # there is none before the first limit
                _call(*change, "del", "dev", device, "root")
            if megabits is not None:
                rate = ("rate", f"{megabits:g}mbit", "burst", str(BURST), "latency", "200ms")
                _call(*change, "add", "dev", device, "root", "tbf", *rate)

    def measured(self, size: int) -> tuple[float, float]:
        """Megabits a second of one transfer of so many bytes, and the round trip in milliseconds, over TCP."""
        server, client = ([*self.within(name), sys.executable, "-c"] for name in self.names)
        answers = subprocess.Popen([*server, SERVER, ADDRESSES[0], str(PORT), str(size)], stdout=subprocess.PIPE)
        try:
            assert answers.stdout is not None, "it is a pipe"
            answers.stdout.readline()  # it listens
            found = subprocess.check_output([*client, CLIENT, ADDRESSES[0], str(PORT), str(size)])
        finally:
            answers.kill()
            answers.communicate()
        seconds, trip = json.loads(found)
        return size * 8 / seconds / 1e6, trip * 1000

    def _run(self) -> None:
        """Pass packets on, each after the delay."""
        waiting: deque[tuple[float, int, bytes]] = deque()
        other = dict(zip(self.files, reversed(self.files), strict=True))
        while not self._stop.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, file, packet = waiting.popleft()
                with suppress(OSError):  # the device is down while its namespace goes
                    os.write(file, packet)
            longest = min(waiting[0][0] - now, 0.1) if waiting else 0.1
            for file in select.select(self.files, [], [], max(longest, 0))[0]:
                with suppress(OSError):
                    waiting.append((time.monotonic() + self.delay, other[file], os.read(file, MTU + 100)))

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._relay.is_alive():
            self._relay.join()
        for file in self.files:
            os.close(file)  # the device goes with its file
        for name in self.names:
            with suppress(OSError, subprocess.CalledProcessError):
                _call("ip", "netns", "del", name)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _tun(device: str) -> int:
    """A network device whose packets this process reads and writes."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH", device.encode(), IFF_TUN | IFF_NO_PI))
    except OSError:
        os.close(file)
        raise
    return file


_SOCKETS = """
import json, socket, sys, time
host, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
"""
SERVER = f"""{_SOCKETS}
with socket.create_server((host, port)) as server:
    print("ready", flush=True)
    one, _ = server.accept()
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(10):
        one.sendall(one.recv(1))
    while size > 0:
        size -= len(one.recv(1 << 20))
    one.sendall(b".")
"""
CLIENT = f"""{_SOCKETS}
with socket.create_connection((host, port)) as one:
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trips = []
    for _ in range(10):
        began = time.perf_counter()
        one.sendall(b".")
        one.recv(1)
        trips.append(time.perf_counter() - began)
    began = time.perf_counter()
    one.sendall(bytes(size))
    one.recv(1)
    print(json.dumps([time.perf_counter() - began, sorted(trips)[5]]))
"""
