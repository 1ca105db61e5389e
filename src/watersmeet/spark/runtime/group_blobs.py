"""Between a join and groups by other columns: partial groups and watermarks, packed and sent to the groups' shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.joins.group_by.aggregates import Fold
from watersmeet.joins.group_by.operator import GroupsOf, Partials
from watersmeet.model.batches import NO_TIME, Batch, no_rows
from watersmeet.model.grouping import GroupedQuery
from watersmeet.spark.runtime.packing import PACKED, blobs_of, one
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, PUNCTUATION, RESULT, STATS
from watersmeet.state.groups import keys_of
from watersmeet.state.shards import split

#: What a blob holds: partial groups; late and violating rows that pass through; watermarks of a shard of the join.
GROUPS, PASSED_ON, WATERMARKS = range(3)
PASSED_ON_SCHEMA = pa.schema([(KIND, pa.int32()), (DETAIL, pa.string())])
WATERMARKS_SCHEMA = pa.schema([("shard", pa.int32()), ("watermarks", pa.list_(pa.int64()))])
#: Partial groups gathered before they are merged.
GATHER_ROWS = 1 << 20


@dataclass(frozen=True)
class GroupPacker:
    """Packs the output of a join for the shards `ids` of its groups. A function for `mapInArrow`."""

    query: GroupedQuery
    ids: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fold = Fold(self.query)
        partials = [fold.schema.empty_table()]
        passed_on: list[dict[str, Any]] = []
        watermarks: list[dict[str, Any]] = []
        for batch in batches:
            of_results = pc.equal(batch.column(KIND), RESULT)
            rows = batch.filter(of_results).select(fold.results.names)
            if rows.num_rows:
                partials.append(fold.partials(pa.Table.from_batches([rows]).cast(fold.results)))
            if sum(p.num_rows for p in partials) > GATHER_ROWS:
                partials = [fold.merge(pa.concat_tables(partials))]
            for other in batch.filter(pc.invert(of_results)).select([KIND, DETAIL]).to_pylist():
                if other[KIND] == STATS:
                    statistics = json.loads(other[DETAIL])
                    shard_id = self.ids[statistics["shard"]]  # the state has watermarks by the shard's id
                    watermarks.append(statistics | {"shard": shard_id})
                elif other[KIND] != PUNCTUATION:  # a punctuation closes a join key, not a group
                    passed_on.append(other)
        yield self._blobs(GROUPS, self._split(fold, fold.merge(pa.concat_tables(partials))))
        if watermarks:
            of_shards = pa.RecordBatch.from_pylist(watermarks, schema=WATERMARKS_SCHEMA)
            yield self._blobs(WATERMARKS, [of_shards] * len(self.ids))
        if passed_on:
            details = pa.RecordBatch.from_pylist(passed_on, schema=PASSED_ON_SCHEMA)
            yield self._blobs(PASSED_ON, [details] + [details.slice(0, 0)] * (len(self.ids) - 1))

    def _split(self, fold: Fold, groups: pa.Table) -> list[pa.RecordBatch]:
        """Groups by the shard of their columns."""
        n, shards = groups.num_rows, len(self.ids)
        if not n:
            return [no_rows(fold.schema)] * shards
        rows = one(groups.to_batches())
        return split(rows, lambda: keys_of([rows.column(c) for c in fold.by]).words, shards)

    def _blobs(self, kind: int, pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
        n = len(self.ids)
        columns = [self.ids, [0] * n, [NO_TIME] * n, [p.num_rows for p in pieces], blobs_of(pieces), [kind] * n]
        return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, PACKED, strict=True)], schema=PACKED)


class GroupProcessor(ShardProcessor):
    """Runs groups behind a join of `shards` shards, for every shard of groups that Spark hands to this task."""

    def __init__(self, query: GroupedQuery, ids: tuple[int, ...], shards: int) -> None:
        super().__init__(query, ids, ended=False, join=GroupsOf(query, shards))
        self.schemas = {GROUPS: Fold(query).schema, PASSED_ON: PASSED_ON_SCHEMA, WATERMARKS: WATERMARKS_SCHEMA}

    def _decode(self, rows: Iterator[pd.DataFrame]) -> list[Batch]:
        received: dict[int, list[pa.RecordBatch]] = {}
        for frame in rows:
            for kind, count, blob in zip(frame["kind"], frame["rows"], frame["blob"], strict=True):
                if count:
                    schema = self.schemas[int(kind)]
                    received.setdefault(int(kind), []).append(pa.ipc.read_record_batch(pa.py_buffer(blob), schema))
        passed_on = (row for batch in received.get(PASSED_ON, []) for row in batch.to_pylist())
        self.passed_on = [(row[KIND], row[DETAIL]) for row in passed_on]
        of_shards = (row for batch in received.get(WATERMARKS, []) for row in batch.to_pylist())
        watermarks = tuple((row["shard"], tuple(row["watermarks"])) for row in of_shards)
        groups = received.get(GROUPS)
        return [Partials(one(groups) if groups else no_rows(self.schemas[GROUPS]), watermarks=watermarks)]
