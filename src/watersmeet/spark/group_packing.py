"""Between a join and groups by other columns: partial groups and progress, packed and sent to the groups' shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.joins.aggregates import Fold
from watersmeet.joins.group_by import GroupsOf, Partials
from watersmeet.model.batches import NO_TIME, Batch, no_rows
from watersmeet.model.grouping import GroupedQuery
from watersmeet.spark.kinds import KIND, NOTE, PUNCTUATION, RESULT, STATS
from watersmeet.spark.packing import PACKED, one
from watersmeet.spark.processor import ShardProcessor
from watersmeet.state.groups import keys_of
from watersmeet.state.shards import split

#: What a blob holds: partial groups; late and violating rows that pass through; how far a shard of the join has come.
GROUPS, NOTES, SAID = range(3)
TOLD = pa.schema([(KIND, pa.int32()), (NOTE, pa.string())])
PROGRESS = pa.schema([("shard", pa.int32()), ("progress", pa.list_(pa.int64()))])
#: Partial groups gathered before they are merged.
GATHER_ROWS = 1 << 20


@dataclass(frozen=True)
class GroupPacker:
    """Packs what a join says for the shards `ids` of its groups. A function for `mapInArrow`."""

    query: GroupedQuery
    ids: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fold = Fold(self.query)
        partials = [fold.schema.empty_table()]
        notes: list[dict[str, Any]] = []
        said: list[dict[str, Any]] = []
        for batch in batches:
            of_results = pc.equal(batch.column(KIND), RESULT)
            rows = batch.filter(of_results).select(fold.results.names)
            if rows.num_rows:
                partials.append(fold.partials(pa.Table.from_batches([rows]).cast(fold.results)))
            if sum(p.num_rows for p in partials) > GATHER_ROWS:
                partials = [fold.merge(pa.concat_tables(partials))]
            for other in batch.filter(pc.invert(of_results)).select([KIND, NOTE]).to_pylist():
                if other[KIND] == STATS:
                    said.append(json.loads(other[NOTE]))
                elif other[KIND] != PUNCTUATION:  # what is said of a join key is not said of a group
                    notes.append(other)
        yield self._blobs(GROUPS, self._split(fold, fold.merge(pa.concat_tables(partials))))
        if said:
            progress = pa.RecordBatch.from_pylist(said, schema=PROGRESS)
            yield self._blobs(SAID, [progress] * len(self.ids))
        if notes:
            told = pa.RecordBatch.from_pylist(notes, schema=TOLD)
            yield self._blobs(NOTES, [told] + [told.slice(0, 0)] * (len(self.ids) - 1))

    def _split(self, fold: Fold, groups: pa.Table) -> list[pa.RecordBatch]:
        """Groups by the shard of their columns."""
        n, shards = groups.num_rows, len(self.ids)
        if not n:
            return [no_rows(fold.schema)] * shards
        rows = one(groups.to_batches())
        return split(rows, lambda: keys_of([rows.column(c) for c in fold.by]).words, shards)

    def _blobs(self, kind: int, pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
        n = len(self.ids)
        blobs = [p.serialize().to_pybytes() for p in pieces]
        columns = [self.ids, [0] * n, [NO_TIME] * n, [p.num_rows for p in pieces], blobs, [kind] * n]
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, PACKED, strict=True)], schema=PACKED)


class GroupProcessor(ShardProcessor):
    """Runs groups behind a join of `shards` shards, for every shard of groups that Spark hands to this task."""

    def __init__(self, query: GroupedQuery, ids: tuple[int, ...], shards: int) -> None:
        super().__init__(query, ids, ended=False, join=GroupsOf(query, shards))
        self.schemas = {GROUPS: Fold(query).schema, NOTES: TOLD, SAID: PROGRESS}

    def _decode(self, rows: Iterator[pd.DataFrame]) -> list[Batch]:
        held: dict[int, list[pa.RecordBatch]] = {}
        for frame in rows:
            for kind, count, blob in zip(frame["kind"], frame["rows"], frame["blob"], strict=True):
                if count:
                    schema = self.schemas[int(kind)]
                    held.setdefault(int(kind), []).append(pa.ipc.read_record_batch(pa.py_buffer(blob), schema))
        self.notes = [(note[KIND], note[NOTE]) for batch in held.get(NOTES, []) for note in batch.to_pylist()]
        said = [(s["shard"], tuple(s["progress"])) for batch in held.get(SAID, []) for s in batch.to_pylist()]
        groups = held.get(GROUPS)
        return [Partials(one(groups) if groups else no_rows(self.schemas[GROUPS]), said=tuple(said))]
