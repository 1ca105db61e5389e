"""Closed keys of one stream when its keys are redistributed.

A shard closes only its own keys. Its intervals, merged from neighbouring keys or propagated by one upstream shard, also
cover keys of other shards, but do not close them. An interval that all shards have closed is closed; of the others each
shard's own keys become single closed keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import StateError
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import Unbounded
from watersmeet.state.key_order import Order, Ranges, from_json, to_json
from watersmeet.state.keys import decode, encode
from watersmeet.state.punctuations.bounds import MOST_KEYS
from watersmeet.state.punctuations.constraints import packed, unpacked
from watersmeet.state.shards import ShardKeys, split

#: An interval of key ranks, and the time at which it was closed.
Interval = tuple[Any, Any, int]


class RedistributedClosedKeys:
    """Metadata and rows of closed keys for the new shards, from the metadata of the old ones."""

    def __init__(self, query: JoinQuery, spec: StreamSpec, metadata: Sequence[dict[str, Any]]) -> None:
        self.spec, self.old = spec, metadata
        self.kinds = [spec.schema.field(k).type for k in spec.key]
        self.must_keep = any(isinstance(s.window, Unbounded) for s in query.streams)
        self.dropped = 0
        merged = [[(low, high, time) for low, high, time in n.get("merged", [])] for n in metadata]
        ranges = [[(from_json(low), from_json(high), time) for low, high, time in n["ranges"]] for n in metadata]
        self.merged, self.rest = self._common(merged)
        if spec.upstream_shards:  # a range closes only keys of the shard that stores it
            self.ranges, rest = self._common(ranges)
            self.rest = [[*a, *b] for a, b in zip(self.rest, rest, strict=True)]
        else:
            self.ranges = ranges[0]
        #: Keys that were closed by an interval of a single shard, as rows of closed keys.
        self.single = list(self._single())

    def _common(self, by_shard: Sequence[list[Interval]]) -> tuple[list[Interval], list[list[Interval]]]:
        """Intervals that all shards have closed, and the remaining ones of each shard."""
        if not any(by_shard):
            return [], [[] for _ in by_shard]
        order = Order.of(self.kinds)
        common, all_of = Ranges(order), reduce(partial(_both, order.words), by_shard)
        common.low, common.high, common.time = ([part[n] for part in all_of] for n in range(3))
        rest = [[(a, b, t) for low, high, t in some for a, b in common.gaps(low, high)] for some in by_shard]
        return all_of, rest

    def _single(self) -> Iterator[pa.RecordBatch]:
        for shard, intervals in enumerate(self.rest):
            mine = ShardKeys(shard, len(self.old))
            for low, high, time in intervals:
                if not self._countable(low, high):
                    self._drop(shard)
                    continue
                words = np.arange(low, high + 1, dtype=np.int64)
                words = words[mine(words)]
                none = np.zeros(words.size, np.int64)
                values = decode(words, np.empty(0, np.uint8), none, none.astype(np.int32), self.kinds)
                facts = [pa.repeat(pa.scalar(time, pa.int64()), words.size), pa.repeat(True, words.size)]
                yield pa.record_batch([*values, *facts], names=[*self.spec.key, "closed at", "effective"])

    def _countable(self, low: Any, high: Any) -> bool:
        """Whether the keys of an interval can be enumerated."""
        kind = self.kinds[0]
        return Order(kind).words and not pt.is_floating(kind) and high - low < MOST_KEYS

    def _drop(self, shard: int) -> None:
        if self.must_keep:
            raise StateError(
                f"shard {shard} has closed an interval of keys of stream `{self.spec.name}` that others have not, "
                "too long to be kept key by key; a join without a window must keep them all.",
                hint="go on with the number of shards as it is, or give the streams a window.",
            )
        self.dropped += 1

    def metadata(self, shards: int) -> list[dict[str, Any]]:
        """The metadata of every new shard."""
        first = self.old[0]
        shared = {
            "ranges": [[to_json(low), to_json(high), time] for low, high, time in self.ranges],
            **({"merged": self.merged} if self.merged else {}),
            "pending": first["pending"],
            "unmerged": 0,
            "newest": first["newest"],
            "newest_keys": first["newest_keys"],
            "largest": first["largest"],
        }
        sums = {name: sum(n[name] for n in self.old) for name in ("dropped", "contradicted")}
        sums["dropped"] += self.dropped
        out = []
        for shard, keys in enumerate(self._open_keys(shards)):
            out.append(shared | {"open_keys": keys} | (sums if shard == 0 else dict.fromkeys(sums, 0)))
        return out

    def _open_keys(self, shards: int) -> list[str | None]:
        parts = [rows for n in self.old if (rows := unpacked(n["open_keys"])) is not None]
        if not parts:
            return [None] * shards
        rows = pa.concat_batches(parts)
        return [packed(part) for part in split(rows, lambda: encode(rows.columns[: len(self.spec.key)]).words, shards)]


def _both(words: bool, some: list[Interval], others: list[Interval]) -> list[Interval]:
    """Where intervals of two lists overlap; each list is in order and without overlaps."""
    out, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        (a, b, s), (c, d, t) = some[i], others[j]
        low, high = max(a, c), min(b, d)
        if low <= high if words else low < high:
            out.append((low, high, max(s, t)))
        i, j = (i + 1, j) if b < d else (i, j + 1)
    return out
