"""A join of topics that is seeded from tables and goes live from given offsets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from examples.kafka_messages import make_topics
from lab.kafka.broker import Broker
from lab.processes import environment

pytestmark = [pytest.mark.spark, pytest.mark.more]


def test_seed_and_topics_from_given_offsets_on(broker: Broker, connector: str, tmp_path: Path) -> None:
    make_topics(broker.servers, ("a", "b"), partitions=1)
    command = [sys.executable, "-m", "lab.kafka.seeded_join", broker.servers, str(tmp_path), connector]
    ran = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    report = json.loads(ran.stdout.splitlines()[-1])
    assert [row[1:] for row in sorted(report["found"], key=lambda row: row[1:])] == report["expected"]
    assert {row[0] for row in report["found"]} == {0, 1, 2}, "the seed, and a batch of each run"
