"""The hashing kernels against their twins. Hashes decide about shards, so a checkpoint depends on every bit of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lab.state import twins
from watersmeet.kernels import hashing
from watersmeet.state.keys import encode

WORDS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20)


@given(WORDS)
def test_mix(words: list[int]) -> None:
    assert [int(hashing.mix(np.int64(w))) for w in words] == [twins.mix(w) for w in words]


@given(st.lists(st.binary(max_size=12), max_size=12))
def test_hash_of_bytes(rows: list[bytes]) -> None:
    assert encode([pa.array(rows, pa.binary())]).words.tolist() == [twins.hash_bytes(row) for row in rows]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=3)), max_size=8))
def test_framing(rows: list[tuple[bytes | None, bytes | None]]) -> None:
    keys = encode([pa.array([row[c] for row in rows], pa.binary()) for c in (0, 1)])
    assert keys.data.tobytes() == b"".join(twins.frame(list(row)) for row in rows)


@given(WORDS, st.integers(1, 9))
def test_rows_are_split_by_shard_and_keep_their_order(words: list[int], shards: int) -> None:
    order, starts = np.empty(len(words), np.int64), np.zeros(shards + 1, np.int64)
    hashing.split_rows(np.array(words, np.int64), shards, order, starts)
    parts = [order[a:b].tolist() for a, b in pairwise(starts)]
    assert parts == [[i for i, w in enumerate(words) if twins.shard(w, shards) == s] for s in range(shards)]


def test_hashes_do_not_change_from_version_to_version() -> None:
    texts = encode([pa.array(["", "a", "watersmeet"])]).words
    assert texts.tolist() == [-780787492076525413, 198367012849983736, -6091230237967226475]
    pairs = encode([pa.array([1, 1]), pa.array(["a", None])]).words
    assert pairs.tolist() == [-818416525899451873, -2509839241906623494]
