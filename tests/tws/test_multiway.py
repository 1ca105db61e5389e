"""Several streams through the real packer and processor: results, state and orders, whatever the number of shards."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.multiway_scripts import ALGORITHMS
from lab.joins.oracle import KEYS, all_windows, bag
from lab.joins.scripts import NAMES, Comparison, Key, Script, scripts
from lab.tws.scripted_shards import OutputPunctuations, Shards, flat
from lab.tws.task import header_of
from watersmeet.joins import Join, plan
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow, TimeWindow, Window
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.row_kinds import LATE, PUNCTUATION, STATS, VIOLATION

pytestmark = pytest.mark.tws

few = settings(max_examples=max(8, settings().max_examples // 6))


def planned(name: str, **more: Any) -> Callable[[JoinQuery], Join]:
    algorithm, options = ALGORITHMS[name]
    return lambda query: plan(query, algorithm, **options, **more)


def divisible(window: Window) -> bool:
    """Whether rows of a window are known in several shards."""
    return not isinstance(window, RowsWindow) or window.per_key


def follow(script: Script, shards: int, seed: int, join: Callable[[JoinQuery], Join]) -> None:
    comparison, run, chance = Comparison(script), Shards(script, shards, join=join), Random(seed)
    comparison.rules.ends_close = False
    n, punctuations = len(script.windows), OutputPunctuations(script, run.ids)
    for batch in script.batches:
        arrivals = tuple(replace(one, ended=False) for one in batch)
        outcome = comparison.rules.step(arrivals)
        run.step(arrivals, chance)
        assert bag(run.results) == bag([comparison.combination(c) for c in outcome.pairs])
        for kind, rows in ((LATE, outcome.late), (VIOLATION, outcome.violations)):
            assert run.unjoined(kind) == Counter((NAMES[i], t.row) for i in range(n) for t in rows[i])
        waiting = sum(len(comparison.rules.pending(i)) for i in range(n))
        assert run.stored() == sum(len(comparison.rules.stored(i)) for i in range(n)) + waiting
        assert all(len(stats["order"]) == n for stats in run.details[STATS])
        if script.kind in ("int64", "string"):
            punctuations.add(run.details.get(PUNCTUATION, []))
            for key in [Key((value,)) for value in KEYS[script.kind][0][1]]:
                assert punctuations.finished(key) == comparison.rules.finished(key)


@pytest.mark.parametrize("streams", [2, 3, 4, 5])
@few
@given(data=st.data(), seed=st.integers(0, 999))
def test_shards_follow_the_rules(streams: int, seed: int, data: st.DataObject) -> None:
    window = all_windows()
    script = data.draw(
        scripts(st.sampled_from(flat), st.just("inner"), batches=4, rows=3, window=window, streams=streams)
    )
    most = 3 if all(map(divisible, script.windows)) else 1
    follow(script, data.draw(st.integers(1, most)), seed, planned("general_lazy"))


@pytest.mark.parametrize("name", ALGORITHMS)
@settings(max_examples=6)
@given(data=st.data(), seed=st.integers(0, 999))
def test_so_do_all_algorithms(name: str, seed: int, data: st.DataObject) -> None:
    script = data.draw(scripts(st.sampled_from(flat), st.just("inner"), batches=4, rows=3, streams=3))
    follow(script, data.draw(st.integers(1, 2)), seed, planned(name))


# ---------------------------------------------------------------- the order


def turning(batches: int) -> Script:
    """Three streams over ten keys; b brings many tuples and c few, until they change places."""
    windows = (TimeWindow(4_000_000),) * 3
    made, number, chance = [], 0, Random(1)
    for n in range(batches):
        many = (5, 60, 2) if n < batches // 2 else (5, 2, 60)
        arrivals = []
        for count in many:
            tuples = []
            for _ in range(count):
                at = n * 1_000_000 + chance.randrange(1_000_000)
                tuples.append(Tuple(at, (chance.randrange(10),), number))
                number += 1
            arrivals.append(Elements(tuple(tuples)))
        made.append(tuple(arrivals))
    return Script("int64", "inner", windows, (0, 0, 0), ((), (), ()), tuple(made))


def test_the_order_follows_the_rates_and_is_stored(working_states: Any) -> None:
    script = turning(20)
    comparison, run = Comparison(script), Shards(script, 2, join=planned("general_lazy"))
    for n, arrivals in enumerate(script.batches):
        if n % 3 == 0:
            shutil.rmtree(worker_cache.application_cache().root, ignore_errors=True)  # then it is rebuilt
        run.step(arrivals, Random(n))
        assert bag(run.results) == bag([comparison.combination(c) for c in comparison.rules.step(arrivals).pairs])
        for stats in run.details[STATS]:
            if "order_change" in stats:
                assert stats["order_change"]["cost_after"] < stats["order_change"]["cost_before"]
                assert " costs " in stats["order_change"]["reason"]
        if n == 9:
            assert all(stats["order"][0] == ["a", "c", "b"] for stats in run.details[STATS])
            rates = [[figure["rate"] for figure in stats["statistics"]] for stats in run.details[STATS]]
            assert sum(b for _, b, _ in rates) == pytest.approx(60, rel=0.3)
    assert all(stats["order"][0] == ["a", "b", "c"] for stats in run.details[STATS])
    for store in run.stores.values():
        metadata = header_of(store).metadata
        assert metadata["order"][0] == [0, 1, 2]
        assert [
            len(metadata["collector_metadata"]["streams"]),
            len(metadata["collector_metadata"]["order"]["orders"]),
        ] == [
            3,
            3,
        ]


def test_an_order_that_is_given_stays_and_wins_over_a_stored_one() -> None:
    script = turning(12)
    run = Shards(script, 1, join=planned("general_lazy"))
    for n, arrivals in enumerate(script.batches[:4]):
        run.step(arrivals, Random(n))
    assert run.details[STATS][0]["order"][0] == ["a", "c", "b"]
    run.join = planned("general_lazy", order=(1, 0, 2))(run.query)
    for n, arrivals in enumerate(script.batches[4:6]):
        run.step(arrivals, Random(n))
        (stats,) = run.details[STATS]
        assert stats["order"] == [["a", "b", "c"], ["b", "a", "c"], ["c", "b", "a"]]
        assert "order_change" not in stats


def test_two_streams_keep_statistics_too() -> None:
    windows = (TimeWindow(4_000_000),) * 2
    script = Script("int64", "inner", windows, (0, 0), ((), ()), ())
    run = Shards(script, 1, join=planned("general_lazy"))
    run.step((Elements((Tuple(0, (1,), 0),)), Elements((Tuple(1, (1,), 1),))), Random(0))
    assert [f["window_tuples"] for f in run.details[STATS][0]["statistics"]] == [1, 1]
    assert len(header_of(run.stores[run.ids[0]]).metadata["collector_metadata"]["streams"]) == 2
    assert len(run.results) == 1


def test_results_beyond_the_bound_are_counted() -> None:
    windows = (TimeWindow(100),) * 3
    arrivals = (
        Elements(tuple(Tuple(n, (1,), n) for n in range(4))),
        Elements((Tuple(5, (1,), 10),)),
        Elements((Tuple(6, (1,), 11),)),
    )
    script = Script("int64", "inner", windows, (0, 0, 0), ((), (), ()), (arrivals,))
    run = Shards(script, 1, join=planned("general_lazy", max_matches_per_row=1))
    run.step((arrivals[0], arrivals[1], Elements()), Random(0))
    run.step((Elements(), Elements(), arrivals[2]), Random(0))
    assert len(run.results) == 1
    assert run.details[STATS][0]["suppressed"] == 3
