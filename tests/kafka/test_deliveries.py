"""A driver killed between the write of a batch and its commit: what the sink holds after the restart is exact."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from examples.kafka_messages import make_topics
from lab.jars import NotAtHand
from lab.kafka.broker import Broker
from lab.processes import environment
from lab.spark import deliveries

pytestmark = [pytest.mark.spark, pytest.mark.more]


def delivered(kind: str, folder: Path, *arguments: str) -> dict[str, list[object]]:
    """Run it until it kills itself, then to the end."""
    command = [sys.executable, "-m", "lab.spark.deliveries", kind, str(folder), *arguments]
    killed = subprocess.run([*command, "--kill"], env=environment(), capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    assert (folder / "killed").exists()
    assert not (folder / "checkpoint" / "commits" / str(deliveries.KILLED_IN)).exists()
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, list[object]] = json.loads(ran.stdout.splitlines()[-1])
    assert len(found["expected"]) > len({str(row) for row in found["expected"]}), "a bag, no set"
    assert found["delivered"] == found["expected"]
    return found


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_hold_each_batch_once(tmp_path: Path, kind: str) -> None:
    try:
        jars = deliveries.jars(kind)
    except NotAtHand as reason:
        pytest.skip(str(reason))
    found = delivered(kind, tmp_path, "--jars", jars)
    assert found["raw"] == len(found["expected"])


def test_folders_hold_each_batch_once(tmp_path: Path) -> None:
    found = delivered("parquet", tmp_path)
    assert found["raw"] == len(found["expected"])


def test_messages_come_again_and_are_distinguished_by_their_headers(
    broker: Broker, connector: str, tmp_path: Path
) -> None:
    make_topics(broker.servers, ("results",))
    found = delivered("kafka", tmp_path, "--servers", broker.servers, "--jars", connector)
    assert found["raw"] > len(found["expected"]), "the batch of the killed driver is there twice"
