"""Limits of the state so low that a few batches reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from watersmeet.state import segments, stream_state, value_lists
from watersmeet.state.durable import log, parts
from watersmeet.state.punctuations import bounds

#: Small values of constants, so that a few rows are enough to slice, merge and compact.
LIMITS: dict[str, dict[tuple[Any, str], int]] = {
    "as it is": {},
    "a row a segment": {(segments, "SEGMENT_BYTES"): 1, (value_lists, "CHUNK"): 2},
    "merging": {(stream_state, "MAX_SMALL_SEGMENTS"): 1},
    "compacting": {(stream_state, "SMALL_BYTES"): 0},
    "all of it": {
        (segments, "SEGMENT_BYTES"): 64,
        (stream_state, "MAX_SMALL_SEGMENTS"): 3,
        (stream_state, "SMALL_BYTES"): 700,
        (value_lists, "CHUNK"): 1,
        (log, "KNOWN_VERSIONS"): 3,
    },
}


@contextmanager
def limits(name: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for (module, constant), value in LIMITS[name].items():
            patch.setattr(module, constant, value)
        yield


SMALL: dict[tuple[Any, str], int] = {
    (parts, "MOST_PIECES"): 2,
    (bounds, "MERGED_FROM"): 1,
    (bounds, "LONG_RUN"): 2,
}


@contextmanager
def small(name: str) -> Iterator[None]:
    """Limits of segments, and of pieces of parts, that a few batches reach."""
    with limits(name), pytest.MonkeyPatch.context() as patch:
        for (module, constant), value in SMALL.items():
            patch.setattr(module, constant, value)
        yield


def limit_retention(patch: pytest.MonkeyPatch, keys: int, ranges: int) -> None:
    patch.setattr(bounds, "MOST_KEYS", keys)
    patch.setattr(bounds, "MOST_RANGES", ranges)
