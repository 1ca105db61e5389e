"""The operators of groups without a JVM: neither the number of shards nor the second operator shows in the groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming.stateful_processor import TimerValues
from pyspark.sql.streaming.tws_tester import TwsTester

from lab.joins.naive_groups import SCHEMAS, NaiveGroups, bag, feed, groups_of, query, rows_of
from lab.tws.task import table_of
from watersmeet.joins import Join
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.grouping import Bucket, GroupedQuery
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.runtime.group_blobs import GroupPacker, GroupProcessor
from watersmeet.spark.runtime.packing import PACKED, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import KIND, LATE, RESULT
from watersmeet.state.durable.log import Header

pytestmark = pytest.mark.tws


class Operator:
    """A processor and the state of all its shards."""

    def __init__(self, processor: ShardProcessor) -> None:
        self.processor = processor
        self.tester = TwsTester(processor)

    def step(self, blobs: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        whole, out = pa.Table.from_batches(blobs, PACKED).to_pandas(), []
        for shard in self.processor.ids:
            self.tester.handle.setGroupingKey(shard)
            frames: Any = iter([pd.DataFrame(whole[whole["shard"] == shard])])
            for frame in self.processor.handleInputRows((shard,), frames, TimerValues(-1, -1)):
                out += table_of(frame, self.processor.output_rows).to_batches()
        return out


def tables_of(batches: Sequence[pa.RecordBatch], kind: int, q: GroupedQuery) -> list[pa.Table]:
    return [pa.Table.from_batches([b]).select(q.schema.names) for b in batches if b.column(KIND)[0].as_py() == kind]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("by", [("k",), ("i", Bucket("b_ts", 10, "from"))], ids=["key", "other columns"])
def test_groups_of_any_number_of_shards(by: tuple[str | Bucket, ...], shards: int) -> None:
    names = ["n", "sum_i", "last_s"]
    q = query(by, (TimeWindow(6), TimeWindow(3)), "left", "update" if by == ("k",) else "final", names)
    ids, streams = shard_ids(shards, shards), feed()
    if q.on_key():
        first = Operator(ShardProcessor(q, ids, ended=False, join=GroupedJoin(Join(q.join, PWJoin()), q)))
    else:
        first = Operator(ShardProcessor(q.join, ids, ended=False, join=Join(q.join, PWJoin())))
    second = Operator(GroupProcessor(q, ids, shards))
    plain, expected, late = PWJoin().start(q.join), NaiveGroups(q), 0
    for n in range(len(streams)):
        batches = streams.batches(n)
        packers = [Packer(spec, i, ids) for i, spec in enumerate(q.streams)]
        out = first.step([blob for packer, b in zip(packers, batches, strict=True) for blob in packer(iter([b.rows]))])
        if not q.on_key():
            out = second.step([blob for part in out for blob in GroupPacker(q, ids)(iter([part]))])
        arrivals = rows_of(list(plain.step(batches)))
        assert bag(groups_of(tables_of(out, RESULT, q), q)) == bag(
            expected.step(arrivals, plain, plain.watermarks, False)
        )
        late += sum(t.num_rows for t in tables_of(out, LATE, q))
    assert expected.closed or q.on_key()
    if not q.on_key():  # states are read by versions to come: ids, as ever
        header = Header.unpack(second.tester.peekValueState("header", ids[-1])[0])
        assert sorted(shard for shard, _ in header.metadata["upstream_watermarks"]) == list(ids)
    assert late == len(SCHEMAS), "late rows pass through the second operator"
