"""Where the rows of a batch go by the table of hot keys, and which rows of a shard's state are copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.model.batches import micros
from watersmeet.model.queries import StreamSpec
from watersmeet.state.hot_keys.phases import Phase, Table
from watersmeet.state.keys import Bools, Int64s, Keys, encode_key
from watersmeet.state.shards import ShardKeys, row_words


def routed(
    rows: pa.RecordBatch, keys: Keys, stream: int, table: Table
) -> tuple[pa.RecordBatch, Int64s, pa.RecordBatch]:
    """Rows of a stream that go to one shard, the words by which they are divided, and the rows that all shards get.

    A row that is spread goes by the hash of all its columns, so a task that runs again sends it to the same shard.
    """
    words = keys.words
    copied = _among(words, [w for w, hot in table.items() if hot.copied == stream and hot.phase != Phase.EXPIRING])
    copied &= keys.valid  # the word of a NULL may be that of a key
    copies = rows.filter(pa.array(copied))
    if copied.any():
        rows, words = rows.filter(pa.array(~copied)), words[~copied]
    spread = _among(words, [w for w, hot in table.items() if hot.spread == stream and hot.phase == Phase.SPREAD])
    if spread.any():
        words = words.copy()
        words[spread] = row_words(rows.filter(pa.array(spread)))
    return rows, words, copies


def kept_copies(
    copies: pa.RecordBatch, spec: StreamSpec, watermark: int, mine: ShardKeys
) -> tuple[pa.RecordBatch, int]:
    """The rows that all shards get, without those that are late elsewhere than at home; and how many are of others.

    Late rows are handed out by the home of their key alone.
    """
    own = mine(encode_key([copies.column(k) for k in spec.key], spec.null_safe).words)
    kept = own | (micros(copies.column(spec.time)) >= watermark)
    return (copies if kept.all() else copies.filter(pa.array(kept))), int(np.count_nonzero(kept & ~own))


def stored_copies(words: Int64s, stream: int, table: Table, mine: ShardKeys) -> Bools:
    """Which stored rows of a stream, with these words of their keys, are copies of rows that the home has as well."""
    copies = _among(words, [w for w, hot in table.items() if hot.copied == stream])
    return copies & ~mine(words) if copies.any() else copies


def _among(words: Int64s, some: Sequence[int]) -> Bools:
    found = np.zeros(words.size, np.bool_)
    for word in some:
        found |= words == word
    return found
