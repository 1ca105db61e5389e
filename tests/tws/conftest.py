"""Working states of these tests are kept in a folder that goes with them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from watersmeet.spark.runtime import worker_cache
from watersmeet.state.durable.cache import Cache


@pytest.fixture(scope="module", autouse=True)
def working_states() -> Iterator[Path]:
    """The folder in which the processors of a module find each other's working states."""
    with tempfile.TemporaryDirectory(dir=worker_cache.base()) as root, pytest.MonkeyPatch.context() as patch:
        states = Path(root) / "states"
        patch.setattr(worker_cache, "application_cache", lambda: Cache(states, 1 << 30))
        yield states
