"""Settings of the property tests, the one Spark session of ring 3, and its core."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from lab.spark.core_tests import CORE, STATIC_JOINS

HERE = Path(__file__).parent
os.environ["WATERSMEET_CONSTANTS"] = ""  # plans are the same on every machine
# Kernels are loaded in the first example of a run: that one is slow, and no deadline would be fair to it.
# The rings draw the same examples in every run; `--hypothesis-profile=more`, and the soak, draw new ones.
settings.register_profile(
    "rings",
    deadline=None,
    max_examples=60,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("more", settings.get_profile("rings"), max_examples=2000, derandomize=False)
settings.load_profile("rings")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = getattr(item, "originalname", "")
        if name in CORE.get(item.path.relative_to(HERE).as_posix(), ()):
            item.add_marker(pytest.mark.core)
            if name in STATIC_JOINS and _spark() < (4, 1):
                item.add_marker(pytest.mark.skip(reason="Spark 4.0 joins no static DataFrames: docs/versions.md"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the longer tests from the moment on that continuous integration gives: a run that takes too long is lost."""
    until = float(os.environ.get("WATERSMEET_TEST_UNTIL", "inf"))
    if item.get_closest_marker("more") and time.time() > until:
        pytest.skip("there is no time left for it in this run")


def _spark() -> tuple[int, ...]:
    """The version of PySpark; the newest one where none is installed."""
    try:
        return tuple(map(int, metadata.version("pyspark").split(".")[:2]))
    except metadata.PackageNotFoundError:
        return (4, 99)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two shards, started by the first test that uses it; WATERSMEET_TEST_REMOTE: over Spark Connect."""
    import watersmeet

    remote = os.environ.get("WATERSMEET_TEST_REMOTE")
    place = {"master": "local[2]"} if remote is None else {"remote": remote}
    # Spark ends its JVM, and with it all tests that follow, when a heap of 1 GB is too small for the longest texts.
    session = watersmeet.session(**place, shards=2, spark_driver_memory="2g")
    yield session
    session.stop()
