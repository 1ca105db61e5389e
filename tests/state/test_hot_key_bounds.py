"""Hot keys whose phases go on as early as they may: every pair at the edge of a bound is found, once."""

from __future__ import annotations

from random import Random

import pytest

from lab.joins.oracle import bag, rows_of
from lab.joins.scripts import Comparison, Script
from lab.joins.split_shards import SplitShards
from watersmeet.joins import plan
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.windows import TimeWindow
from watersmeet.state.hot_keys.phases import HotKey, Phase, Reached

BATCHES, ROWS = 24, 8


def dense(seed: int) -> Script:
    """Two keys, and rows at nearly every instant of the windows, in disorder and some late."""
    chance = Random(seed)

    def batch(n: int, i: int) -> Elements:
        times = [3 * n + chance.randrange(-2, 5) for _ in range(ROWS)]
        return Elements(tuple(Tuple(t, (chance.randrange(2),), ROWS * n + row) for row, t in enumerate(times)))

    batches = tuple((batch(n, 0), batch(n, 1)) for n in range(BATCHES))
    windows = (TimeWindow(chance.choice([4, 7])), TimeWindow(chance.choice([3, 9])))
    return Script("int64", "inner", windows, (chance.choice([0, 2]), chance.choice([1, 3])), ((), ()), batches)


def hurried(table: dict[int, HotKey], reached: Reached, n: int) -> dict[int, HotKey]:
    """The table with every phase ended as early as it may; a key begins at once, each time with the other stream."""
    order = {Phase.COPYING: Phase.SPREAD, Phase.SPREAD: Phase.COOLING, Phase.COOLING: Phase.EXPIRING}
    out: dict[int, HotKey] = {}
    for word in (0, 1):
        entry = table.get(word)
        if entry is None:
            out[word] = reached.begin(str(word), (n + word) % 2)
            continue
        found = reached.following(entry).get(order.get(entry.phase), entry)
        if found is not None:
            out[word] = found
    return out


@pytest.mark.parametrize("seed", range(12))
def test_phases_that_end_as_early_as_they_may(seed: int) -> None:
    script = dense(seed)
    comparison, shards = Comparison(script), SplitShards(plan(script.query(), "pwjoin"), 2 + seed % 3)
    table: dict[int, HotKey] = {}
    phases: set[Phase] = set()
    for n in range(BATCHES):
        table = hurried(table, shards.reached(), n)
        phases |= {entry.phase for entry in table.values()}
        results = shards.step_with(table, [script.batch(n, i) for i in (0, 1)])
        outcome = comparison.rules.step(script.batches[n])
        assert bag(results) == bag([comparison.combination(pair) for pair in outcome.pairs])
        for i in (0, 1):
            late = [row for running in shards.running for row in rows_of(running.late[i])]
            assert bag(late) == bag([comparison.row(i, t) for t in outcome.late[i]])
    assert phases == set(Phase)
