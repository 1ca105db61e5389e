"""All shards of a join whose hot keys are split, routed by a table of hot keys as packers and shards do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lab.joins.oracle import Row, rows_of
from lab.joins.sharded_join import Sharded
from watersmeet.model.batches import Batch
from watersmeet.state.hot_keys.phases import Reached, Table, as_json, from_json, may_split, require_following
from watersmeet.state.hot_keys.routes import kept_copies, routed, stored_copies
from watersmeet.state.keys import Keys, encode_key
from watersmeet.state.shards import ShardKeys, split


class SplitShards(Sharded):
    """All shards, each with its store; the table is in the header of each."""

    @property
    def tables(self) -> list[Table]:
        """The table that each shard has stored."""
        return [from_json(running.hot_keys) for running in self.running]

    def reached(self) -> Reached:
        """How far the streams are, as each shard knows it."""
        first, *others = (Reached.of(self.join.query, running.watermarks) for running in self.running)
        assert all(other == first for other in others)
        return first

    def step_with(self, table: Table, batches: Sequence[Batch]) -> list[Row]:
        """One batch of each stream, routed by the table; the results."""
        reached, query, shards = self.reached(), self.join.query, len(self.stores)
        parts: list[list[Batch]] = [[] for _ in self.stores]
        for i, (spec, batch) in enumerate(zip(query.streams, batches, strict=True)):
            rows, words, copies = routed(batch.rows, self._keys(i, batch.rows), i, table)
            for n, own in enumerate(split(rows, lambda words=words: words, shards)):  # type: ignore[misc]
                some, _ = kept_copies(copies, spec, self.running[n].watermarks[i], ShardKeys(n, shards))
                parts[n].append(replace(batch, rows=pa.concat_batches([own, some])))
        for running in self.running:
            require_following(from_json(running.hot_keys), table, reached, may_split(query))
            running.hot_keys = as_json(table)
        return self.step(parts)

    def held_at(self, n: int, i: int) -> list[tuple[Row, int, bool]]:
        """Stored rows of stream i in shard n: each with the word of its key, and whether it is a copy."""
        state, mine = self.running[n].streams[i], ShardKeys(n, len(self.stores))
        slots = state.lists.living()
        if not slots.size:
            return []
        table = state.take(slots, state.spec.schema.names).combine_chunks()
        words = self._keys(i, table.to_batches()[0]).words
        copies = stored_copies(words, i, self.tables[n], mine)
        return list(zip(rows_of(table), words.tolist(), copies.tolist(), strict=True))

    def _keys(self, i: int, rows: pa.RecordBatch) -> Keys:
        spec = self.join.query.streams[i]
        return encode_key([rows.column(k) for k in spec.key], spec.null_safe)
