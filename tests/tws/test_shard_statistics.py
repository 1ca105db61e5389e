"""What a shard sees of its streams and foretells of its join, batch by batch, and over a restart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from watersmeet.cost.measured_parameters import assumed
from watersmeet.joins import plan
from watersmeet.joins.base import RunningJoin
from watersmeet.model.windows import Unbounded
from watersmeet.spark.progress.shard_statistics import Watch, merged, watch
from watersmeet.state.durable import log
from watersmeet.workload.steady import Steady

pytestmark = pytest.mark.tws

LOADS = {
    "hash": Steady((300, 100), (6.0, 3.0), (40, 40)),
    "pwjoin": Steady((300, 100), (6.0, 3.0), (40, 40), punctuations=12.0),
    "general_lazy": Steady((100, 30, 60), (4.0, 6.0, 2.0), (40, 30, 20)),
}
SECONDS = 20


def follow(name: str, restart_at: int | None = None) -> list[dict[str, Any]]:
    """What the shard says, and its counters, after each batch."""
    streams = LOADS[name]
    definition = plan(streams.query, name)
    join: RunningJoin[Any] = definition.start()
    store, header, found = log.MemoryStore(), log.begin(streams.query), []
    for n, batches in enumerate(streams.steps(SECONDS)):
        if n == restart_at:
            join = definition.start()
            log.rebuild(join, header, store)
        watched = watch(definition, join, ended=False)
        assert isinstance(watched, Watch)
        for _ in join.step(batches):
            pass
        output = watched.after(n, batches)
        found.append(json.loads(json.dumps(output)) | {"counters": join.counters.as_dict()})
        found[-1]["counters"]["state_bytes"] = sum(s.bytes for s in join.streams)
        header = log.commit(join, header, store)
    return found


@pytest.mark.parametrize("name", LOADS)
def test_what_is_predicted_comes_true(name: str) -> None:
    output = follow(name)
    assert "results" not in output[0]["predicted"], "nobody knows yet how long a batch is"
    for counter, off in (("stored", 0.2), ("state_bytes", 0.25), ("results", 0.3), ("probed", 0.4)):
        counted = sum(s["counters"][counter] for s in output[-8:])
        assert sum(s["predicted"][counter] for s in output[-8:]) == pytest.approx(counted, rel=off), counter
    rates = [f["rate"] for f in output[-1]["statistics"]]
    assert rates == pytest.approx(LOADS[name].rates, rel=0.2)
    closing = bool(LOADS[name].punctuations)
    assert all(("stay" in f) == closing for f in output[-1]["statistics"])


@pytest.mark.parametrize("name", LOADS)
def test_a_restart_goes_on_with_the_figures(name: str) -> None:
    without, with_restart = follow(name), follow(name, restart_at=11)
    for a, b in zip(without, with_restart, strict=True):
        assert a["statistics"] == b["statistics"]
        assert a["predicted"] == b["predicted"]


def test_shards_divide_the_keys_and_so_the_figures() -> None:
    one = {"rate": 30.0, "distinct": 10, "window_tuples": 60, "punctuation_rate": 1, "row_bytes": 80, "stay": 2.0}
    one["set_size"] = 3
    two = {"rate": 10.0, "distinct": 5, "window_tuples": 20, "punctuation_rate": 2, "row_bytes": 90, "hottest": 0.6}
    two["set_size"] = 4
    start = LOADS["hash"].query
    whole = merged(assumed(start).streams[0], [one, two])
    assert (whole.rate, whole.distinct, whole.tuples, whole.punctuation_rate) == (40, 15, 80, 3)
    assert (whole.row_bytes, whole.stay, whole.hottest, whole.set_size) == (90, 2.0, 0.6 * 10 / 40, 7)


def test_nobody_watches_where_keys_say_what_is_kept() -> None:
    query = LOADS["hash"].query
    endless = replace(query, streams=tuple(replace(s, window=Unbounded()) for s in query.streams))
    join = plan(endless, "wo_join")
    assert watch(join, join.start(), ended=False) is None
