"""The protocol of state, cache, retry and compaction (`lab.tws.protocol`), compared with the definition of a join."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from lab.joins.oracle import Scenario, Side, bag, expected, expected_state, keys, stored, windows
from lab.tws.attempts import Attempt
from lab.tws.protocol import Protocol, Run
from lab.tws.task import Output, header_of, late_at, late_rows, packed, read, rows_at
from watersmeet.joins import Join
from watersmeet.joins.hash_join import HashJoin, RunningHashJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.batches import Batch
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.state.durable import log
from watersmeet.state.durable.log import Header, MemoryStore

pytestmark = pytest.mark.tws


class HashJoinRun(Run):
    """A hash join over any rows; what it must give and keep is known by definition."""

    def __init__(self, kind: str, shards: int, sides: tuple[Side, Side]) -> None:
        self.scenario = self.coming = Scenario(kind, pa.int64(), sides)
        self.held = 0  # tuples that have come and not gone, by the counters
        query = self.scenario.query()
        super().__init__(query, Join(query, HashJoin()), shard_ids(shards, shards))

    def processor(self, *, ended: bool = False) -> ShardProcessor:
        return ShardProcessor(self.query, self.ids, ended=ended)

    def draw_batch(self, data: st.DataObject) -> bool:
        rows = st.lists(st.tuples(st.integers(0, 9), keys(self.scenario.kind)), max_size=6)
        self.coming = self._extended((data.draw(rows, label="a"), data.draw(rows, label="b")))
        return True

    def _extended(self, rows: tuple[list[tuple[int, Any]], list[tuple[int, Any]]]) -> Scenario:
        """The scenario with one batch more; times are counted from the batch's own."""
        sides = []
        for side, new in zip(self.scenario.sides, rows, strict=True):
            first = sum(map(len, side.batches))
            batch = tuple(Tuple(2 * len(self.scenario) + at, key, first + n) for n, (at, key) in enumerate(new))
            sides.append(replace(side, batches=(*side.batches, batch)))
        return replace(self.scenario, sides=(sides[0], sides[1]))

    def blobs(self, chance: Random) -> pa.Table:
        return packed(self.query, self.ids, rows_at(self.coming, len(self.scenario)), chance)

    def following(self, header: Header) -> Sequence[Batch]:
        rows = rows_at(self.coming, len(self.coming) - 1)  # late or not: it is so for both
        return [Batch.of(some, spec.time) for some, spec in zip(rows, self.query.streams, strict=True)]

    def check(self, attempts: Sequence[Attempt]) -> None:
        scenario, n, out = self.coming, len(self.scenario), Output()
        for attempt in attempts:
            out += read(attempt.frames, self.query)
        assert bag(out.results) == bag(expected(scenario)[n])
        late = [(name, row[0], row[-1]) for name, row in late_at(scenario, n)]
        assert Counter(late_rows(scenario, out.late)) == Counter(late)
        self.held += out.total("inserted") - out.total("expired")
        assert out.total("stored") == self.held
        rebuilt = [self._rebuilt(store) for store in self.stores.values()]
        for i in (0, 1):
            assert bag([row for join in rebuilt for row in stored(join, i)]) == bag(expected_state(scenario, i)[n])
        assert {tuple(join.watermarks) for join in rebuilt} == {tuple(side.watermarks()[n] for side in scenario.sides)}
        self.scenario = scenario

    def _rebuilt(self, store: MemoryStore) -> RunningHashJoin:
        join = HashJoin().start(self.query)
        log.rebuild(join, header_of(store), store)
        return join


class HashJoinProtocol(Protocol):
    def drawn_run(self, data: st.DataObject, which: int) -> Run:
        bounded = windows().map(lambda w: TimeWindow(3) if isinstance(w, Unbounded) else w)
        sides = [Side(data.draw(bounded), data.draw(st.integers(0, 6)), ()) for _ in range(2)]
        kind = data.draw(st.sampled_from(["int64", "string", "two columns"]))
        return HashJoinRun(kind, data.draw(st.integers(1, 2)), (sides[0], sides[1]))


HashJoinProtocol.TestCase.settings = settings(max_examples=20, stateful_step_count=10)
TestProtocol = HashJoinProtocol.TestCase
