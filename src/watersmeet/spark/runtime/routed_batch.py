"""A batch whose rows were routed by a table of hot keys, in one shard: what it may take in, and what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from watersmeet.checkpoints.gaps import Gaps
from watersmeet.errors import StateMismatchError
from watersmeet.joins.base import RunningJoin
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.spark.progress.shard_report import key_texts
from watersmeet.spark.runtime.packing import Blob, one
from watersmeet.spark.runtime.table_in_force import table_of
from watersmeet.spark.runtime.unpacking import Unpacker
from watersmeet.state.durable.log import Header
from watersmeet.state.hot_keys.phases import HOT_KEYS, Reached, Table, as_json, from_json, may_split, require_following
from watersmeet.state.hot_keys.routes import kept_copies
from watersmeet.state.shards import ShardKeys
from watersmeet.state.statistics.heavy_hitters import hottest_rows

#: Keys of a stream in a report, and the share of the shard's rows that each must have.
MOST, WORTH = 3, 0.1


def reached(header: Header, query: JoinQuery, watermarks: Sequence[int]) -> Reached:
    """How far the streams are by these watermarks."""
    return Reached.of(query, watermarks, Gaps.of(header.metadata, len(query.streams)).newest)


class RoutedBatch:
    """The blobs of a batch with their table of hot keys, which follows from the one in the shard's header."""

    def __init__(self, query: JoinQuery, header: Header, mine: ShardKeys, unpackers: Sequence[Unpacker]) -> None:
        self.query, self.mine, self.unpackers = query, mine, unpackers
        self.header = header
        self.copies = [0] * len(unpackers)  # rows of other shards among those of each stream
        before = from_json(header.metadata.get(HOT_KEYS, []))
        kinds = set[int]().union(*(unpacker.kinds for unpacker in unpackers))
        self.table: Table = self._received(kinds) if kinds else before
        if before or self.table:
            require_following(before, self.table, reached(header, query, header.watermarks), may_split(query))

    def _received(self, kinds: set[int]) -> Table:
        """The one table by which all source partitions have routed their rows."""
        texts = {text for unpacker in self.unpackers for text in unpacker.tables()}
        if len(texts) > 1 or (texts and Blob.ROWS in kinds):
            raise StateMismatchError(
                "source partitions of one batch were routed by different tables of hot keys; pairs of rows would be in "
                "different shards.",
                hint="start the query again: the batch is repeated by one table.",
            )
        return table_of(texts.pop()) if texts else {}

    def batches(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches with the rows that all shards get; those that are late are in their home alone."""
        out = list(batches)
        for i, unpacker in enumerate(self.unpackers):
            copies = unpacker.copies()
            if copies is None:
                continue
            spec, watermark = self.query.streams[i], self.header.watermarks[i]
            some, self.copies[i] = kept_copies(copies, spec, watermark, self.mine)
            out[i] = replace(out[i], rows=one([out[i].rows, some]))
        return out

    def without_copies(self, join: RunningJoin[Any], reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The reports about each stream, and the join's counter, without the rows that other shards count."""
        join.counters.rows_in -= sum(self.copies)
        for report, copies in zip(reports, self.copies, strict=False):
            report["rows_in"] -= copies
        return reports

    def loads(self, join: RunningJoin[Any]) -> list[list[Any]]:
        """The keys that many of the rows have, and those of the table: word, text, rows of each stream without copies.

        Called before the arrivals are made durable.
        """
        words = [a.keys.words[a.which] for a in join.arrivals]
        worth, texts = WORTH * sum(w.size for w in words), {w: hot.key for w, hot in self.table.items()}
        for spec, arrivals in zip(self.query.streams, join.arrivals, strict=True):
            found = hottest_rows(arrivals.keys.words, arrivals.which, MOST)
            rows = [row for row, share in found if share * arrivals.which.size >= worth]
            new = arrivals.keys.words[rows].tolist() if rows else []
            texts = dict(zip(new, key_texts(spec, arrivals, rows), strict=True)) | texts
        out = []
        for word, text in texts.items():
            counts = [int(np.count_nonzero(some == word)) for some in words]
            hot = self.table.get(word)
            if hot is not None and not self.mine(np.array([word]))[0]:
                counts[hot.copied] = 0
            out.append([word, text, *counts])
        return out

    def report(self, join: RunningJoin[Any], loads: list[list[Any]]) -> dict[str, Any]:
        """The table with what decides about the next one."""
        now = reached(self.header, self.query, join.watermarks)
        return {
            "table": as_json(self.table),
            "newest": list(now.newest),
            "alive_from": list(now.alive_from),
            "loads": loads,
        }
