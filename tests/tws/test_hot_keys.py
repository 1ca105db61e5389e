"""Packers and processors with hot keys split over the shards: results, late rows and counters are the reference's."""

from __future__ import annotations

import shutil
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import Scenario, Side, bag, expected
from lab.tws.task import Output, Shards, Task, late_at, late_rows, packed, read, rows_at
from watersmeet.errors import StateMismatchError
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.progress.hot_key_tables import HotKeyTables
from watersmeet.spark.progress.summary import BatchSummary
from watersmeet.spark.runtime import worker_cache
from watersmeet.state.hot_keys.phases import HOT_KEYS, HotKey, Phase, Table, as_json, from_json
from watersmeet.state.hot_keys.rule import Rule

pytestmark = pytest.mark.tws

HOT, PER_BATCH, HEAT = 7, 12, 14
chances = st.integers(0, 1 << 32).map(Random)


def skewed(seed: int, batches: int = 40) -> Scenario:
    """Key 7 has half of the first stream's rows in the first 14 batches, and hardly any after them; some are late."""
    chance = Random(seed)

    def side(i: int) -> Side:
        made, number = [], 0
        for n in range(batches):
            batch = []
            for row in range(PER_BATCH):
                hot = (n < HEAT and row % 2 == 0) if i == 0 else row == 0
                key = HOT if hot else chance.randrange(20, 28)
                late = chance.random() < 0.1
                batch.append(Tuple(4 * n + chance.randrange(6) - (30 if late else 0), (key,), number))
                number += 1
            made.append(tuple(batch))
        return Side(TimeWindow(8), 2, tuple(made))

    return Scenario("int64", pa.int64(), (side(0), side(1)))


class Split:
    """Shards whose table is decided after each batch, as the driver does it."""

    def __init__(self, scenario: Scenario, shards: int) -> None:
        self.scenario = scenario
        self.shards = Shards(scenario.query(), shards, splits=True)
        self.start()
        self.phases: list[Phase | None] = []

    def start(self) -> None:
        """On the driver: nothing is counted, and the table is the state's."""
        headers = self.shards.headers() if self.shards.stores[0].header else []
        self.tables = HotKeyTables(SimpleNamespace(query=self.shards.query, ids=self.shards.ids), headers)
        self.tables.decision.rule = Rule(rows=4, hot_batches=2, cool_batches=2)

    @property
    def table(self) -> Table:
        return self.tables.table

    def step(self, n: int, chance: Random) -> Output:
        out = self.shards.step(rows_at(self.scenario, n), chance, self.table)
        self.phases.append(self.table[HOT].phase if HOT in self.table else None)
        reports = [stats[HOT_KEYS] for stats in out.stats]
        assert {tuple(map(tuple, r["table"])) for r in reports} == {tuple(map(tuple, reports[0]["table"]))}
        assert from_json(reports[0]["table"]) == self.table
        self.tables.follow(BatchSummary.of_shards(out.stats))
        return out

    def restart(self) -> None:
        """On another machine."""
        shutil.rmtree(worker_cache.application_cache().root)
        self.start()


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 1000), shards=st.integers(2, 4), chance=chances, restarts=st.sets(st.integers(1, 38)))
def test_a_hot_key_is_split_and_merged(seed: int, shards: int, chance: Random, restarts: set[int]) -> None:
    scenario = skewed(seed)
    run = Split(scenario, shards)
    for n, results in enumerate(expected(scenario)):
        out = run.step(n, chance)
        assert bag(out.results) == bag(results)
        late = late_at(scenario, n)
        assert Counter(late_rows(scenario, out.late)) == Counter((name, row[0], row[-1]) for name, row in late)
        assert out.total("rows_in") == sum(len(side.batches[n]) for side in scenario.sides)
        assert out.total("late") == len(late)
        assert [sum(s["streams"][i]["rows_in"] for s in out.stats) for i in (0, 1)] == [PER_BATCH] * 2
        if n in restarts:
            run.restart()
    if not restarts:
        phases = list(dict.fromkeys(run.phases))
        assert phases == [None, Phase.COPYING, Phase.SPREAD, Phase.COOLING, Phase.EXPIRING]
        assert run.phases[-1] is None, "merged again"


def test_a_hot_key_has_work_for_every_shard() -> None:
    scenario = skewed(1)
    run = Split(scenario, 3)
    outputs = [run.step(n, Random(n)) for n in range(HEAT)]
    spread = [out for out, phase in zip(outputs, run.phases, strict=True) if phase == Phase.SPREAD]
    assert len(spread) > 3
    hot = [[rows_of_shard(s, HOT) for s in out.stats] for out in spread]
    assert all(sum(1 for n in counts if n) > 1 for counts in hot[1:])


def rows_of_shard(stats: dict[str, Any], word: int) -> int:
    """The rows that a shard had of a key of the table."""
    return next((a for w, _, a, _ in stats[HOT_KEYS]["loads"] if w == word), 0)


def refused(shards: Shards, rows: list[pa.RecordBatch], tables: list[Table]) -> str:
    """The error of the first shard for a batch whose partitions were routed by these tables."""
    blobs = pa.concat_tables([packed(shards.query, shards.ids, rows, Random(1), table) for table in tables])
    task = Task(shards.query, shards.ids, shards.ids[0], shards.stores[shards.ids[0]], ended=False)
    with pytest.raises(StateMismatchError) as error:
        read(list(task.run(blobs, Random(1))), shards.query)
    return str(error.value)


def test_tables_that_do_not_follow_are_refused() -> None:
    scenario = skewed(2)
    run = Split(scenario, 2)
    while run.table.get(HOT, HotKey("", 0, Phase.COPYING)).phase != Phase.SPREAD:
        run.step(len(run.phases), Random(3))
    rows = rows_at(scenario, len(run.phases))
    copying = from_json(run.shards.headers()[0].metadata[HOT_KEYS])
    assert copying[HOT].phase == Phase.COPYING
    vanished = refused(run.shards, rows, [{}])
    assert "rows of key 7 were sent as not split, and the state has the key as copying (stream 0, bound " in vanished
    assert "run the query with wm.write" in vanished
    for wrong in (
        HotKey("7", 0, Phase.COOLING, copying[HOT].bound),
        HotKey("7", 0, Phase.EXPIRING, copying[HOT].bound),
        HotKey("7", 1, Phase.COPYING, copying[HOT].bound),
        HotKey("7", 0, Phase.COPYING, BEFORE_ALL),
    ):
        assert f"sent as {wrong.phase}" in refused(run.shards, rows, [{HOT: wrong}])
    assert "routed by different tables" in refused(run.shards, rows, [copying, run.table])
    assert "routed by different tables" in refused(run.shards, rows, [copying, {}])
    early = Split(scenario, 2)
    early.step(0, Random(4))
    spread = {HOT: HotKey("7", 0, Phase.SPREAD)}
    assert "sent as spread (stream 0, bound " in refused(early.shards, rows, [spread])
    assert "the state has the key as not split" in refused(early.shards, rows, [spread])


def test_a_spread_key_has_as_many_rows_in_shards_that_are_not_listed() -> None:
    query = skewed(6).query()
    tables = HotKeyTables(SimpleNamespace(query=query, ids=tuple(range(100))), [])
    tables.decision.rule = Rule(cool_batches=1)
    tables.table = {HOT: HotKey("7", 0, Phase.SPREAD)}
    about = {"table": as_json(tables.table), "newest": [9, 9], "alive_from": [0, 0], "loads": [[HOT, "7", 100, 0]]}
    listed = [{"shard": n, "rows_in": 1000, HOT_KEYS: about} for n in range(64)]
    tables.follow(BatchSummary({"rows_in": 100_000}, listed))
    assert tables.table[HOT].phase == Phase.SPREAD, "10,000 rows, and not 6,400"
    tables.decision.rule = Rule(rows=20_001, cool_batches=1)
    tables.follow(BatchSummary({"rows_in": 100_000}, listed))
    assert tables.table[HOT].phase == Phase.COOLING


def test_reports_are_small_where_no_key_is_hot() -> None:
    scenario = skewed(5)
    shards = Shards(scenario.query(), 2, splits=True)
    stats = shards.step([scenario.rows(i, ()) for i in (0, 1)], Random(1)).stats
    assert [s[HOT_KEYS]["loads"] for s in stats] == [[], []]
    plain = Shards(scenario.query(), 2)
    assert all(HOT_KEYS not in s for s in plain.step(rows_at(scenario, 0), Random(1)).stats)
