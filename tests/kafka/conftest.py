"""A broker for a module of tests, and the jars with which Spark speaks to it; both or a reason to skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.jars import NotAtHand
from lab.kafka.artifacts import connector as spark_connector
from lab.kafka.broker import Broker


@pytest.fixture(scope="session")
def connector() -> str:
    """Spark's connector, as `spark.jars` takes it."""
    try:
        return spark_connector()
    except NotAtHand as reason:
        pytest.skip(f"Kafka is not tested: {reason}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(Path(tmp_path_factory.mktemp("broker")))
    try:
        made.start()
    except NotAtHand as reason:
        pytest.skip(f"Kafka is not tested: {reason}")
    yield made
    made.stop()
