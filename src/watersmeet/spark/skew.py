"""Hot keys: one key with so many rows that its shard works while the others wait."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.model.batches import Batch
from watersmeet.model.plain import plain_rows
from watersmeet.model.queries import StreamSpec
from watersmeet.state.keys import encode

#: A key is hot if it has so large a share of a stream's rows in a batch on a shard, of so many rows at least.
HOT_SHARE = 0.2
FEWEST_ROWS = 2_000
#: Rows that are looked at, evenly spread.
LOOKED_AT = 2_000


def hot_key(specs: Sequence[StreamSpec], batches: Sequence[Batch]) -> dict[str, Any] | None:
    """The hottest key of a batch with the share it has, in hundredths, if any is hot. NULL is no key."""
    found = None
    for spec, batch in zip(specs, batches, strict=False):
        share, key = _hottest(batch.rows.select(list(spec.key)))
        if share >= HOT_SHARE and (found is None or share > found["percent"] / 100):
            found = {"stream": spec.name, "key": key, "percent": round(100 * share)}
    return found


def _hottest(keys: pa.RecordBatch) -> tuple[float, Any]:
    if keys.num_rows < FEWEST_ROWS:
        return 0.0, None
    some = keys.take(pa.array(np.linspace(0, keys.num_rows - 1, LOOKED_AT).astype(np.int64)))
    whole = np.logical_and.reduce([c.is_valid().to_numpy(zero_copy_only=False) for c in some.columns])
    words, first, counts = np.unique(encode(some.columns).words[whole], return_index=True, return_counts=True)
    if not words.size:
        return 0.0, None
    most = int(counts.argmax())
    place = int(np.flatnonzero(whole)[first[most]])
    return float(counts[most]) / LOOKED_AT, json.loads(plain_rows(some.slice(place, 1))[0])
