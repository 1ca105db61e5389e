"""A Kafka broker on loopback, of one node, from Maven's packages: `./run kafka start`, `./run kafka stop`."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path

from lab.jars import NotAtHand, fetched, java
from lab.kafka.artifacts import BROKER, CACHE, KAFKA
from lab.processes import HOST, free_port

PORT = int(os.environ.get("KAFKA_PORT", 9092))
HERE = CACHE / f"broker-at-{PORT}"
PATIENCE = 60  # seconds in which it starts
_SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/log
num.partitions=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Broker:
    """A broker with its data in a folder."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder, self.port = folder, port or free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        jars = fetched("broker", BROKER)
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = self.folder / "server.properties"
        settings.write_text(_SETTINGS.format(host=HOST, port=self.port, controller=free_port(), folder=self.folder))
        program = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        with (self.folder / "broker.log").open("wb") as log:
            format_storage = ["kafka.tools.StorageTool", "format", "--config", str(settings), "--cluster-id", cluster]
            subprocess.run([*program, *format_storage], stdout=log, stderr=log, check=True)
            self.process = subprocess.Popen(
                [*program, "kafka.Kafka", str(settings)], stdout=log, stderr=log, start_new_session=True
            )
        (self.folder / "pid").write_text(str(self.process.pid))
        self._wait()

    def _wait(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        assert self.process is not None, "it was started"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
            with contextlib.suppress(KafkaException):
                admin.list_topics(timeout=2)
                return
        log = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"the broker did not answer within {PATIENCE} s:\n{log}")

    def stop(self) -> None:
        """End it and remove its data."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _running() -> int | None:
    """The process of the broker that `start` started, if it is there."""
    try:
        pid = int((HERE / "pid").read_text())
        command = Path(f"/proc/{pid}/cmdline")
        alive = b"kafka.Kafka" in command.read_bytes() if Path("/proc/self").exists() else os.kill(pid, 0) is None
    except (OSError, ValueError):
        return None
    return pid if alive else None


def main(job: str) -> int:
    pid = _running()
    if job == "start":
        if pid is not None:
            print(f"a broker runs at {HOST}:{PORT}")
            return 0
        shutil.rmtree(HERE, ignore_errors=True)
        try:
            Broker(HERE, PORT).start()
        except NotAtHand as reason:
            print(reason, file=sys.stderr)
            return 4
        print(f"Kafka {KAFKA} runs at {HOST}:{PORT}; its log is {HERE / 'broker.log'}")
        return 0
    if job == "stop":
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 30
            while _running() is not None and time.monotonic() < deadline:
                time.sleep(0.1)  # a process that is not our child cannot be waited for
        shutil.rmtree(HERE, ignore_errors=True)
        print("no broker runs" if pid is None else "the broker has ended")
        return 0
    print("./run kafka start | stop", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
