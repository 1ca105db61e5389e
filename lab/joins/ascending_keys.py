"""Streams whose keys ascend in the long run, as lists of keys, and their join by definition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lab.joins.window_oblivious import query
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.model.batches import Batch
from watersmeet.workload.scrambled import distances

Keys = list[int]


def batch(i: int, keys: Keys, *, first: int = 0, ended: bool = False) -> Batch:
    spec = query(max(2, i + 1)).streams[i]
    columns = [np.arange(first, first + len(keys)), np.array(keys, np.int64), np.arange(first, first + len(keys)) * 1.0]
    return Batch.of(pa.record_batch(columns, schema=spec.schema), spec.time, ended=ended)


def whole_join(streams: list[Keys]) -> list[tuple[Any, ...]]:
    """By definition: all combinations with equal keys."""
    rows = [[(k, n, float(n)) for n, k in enumerate(keys)] for keys in streams]
    return [(c[0][0], *(v for r in c for v in r[1:])) for c in product(*rows) if len({r[0] for r in c}) == 1]


def held(join: RunningMultiway, i: int) -> list[int]:
    """Keys in the state of stream i."""
    return sorted(join.own[i].lists.lists.time[join.own[i].lists.living()].tolist())


@st.composite
def ascending(draw: Any, most: int = 40) -> Keys:
    """Keys that ascend in the long run, or not at all."""
    n, spread = draw(st.integers(0, most)), draw(st.integers(0, 12))
    step = draw(st.sampled_from([0.3, 0.5, 1.0]))
    return [int(p * step) + draw(st.integers(0, spread)) for p in range(n)]


@st.composite
def cuts(draw: Any, streams: list[Keys]) -> list[tuple[Keys, ...]]:
    """The streams in batches, each cut on its own: one may lead, lag or pause."""
    steps = draw(st.integers(1, 6))
    edges = [
        [0, *sorted(draw(st.lists(st.integers(0, len(s)), min_size=steps - 1, max_size=steps - 1))), len(s)]
        for s in streams
    ]
    return [tuple(s[e[n] : e[n + 1]] for s, e in zip(streams, edges, strict=True)) for n in range(steps)]


def factor(keys: Keys) -> int:
    return int(distances(np.array(keys, np.int64)).max(initial=0))
