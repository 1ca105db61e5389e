"""The bucketed hash join and its invalidation strategies: what they look at, what they keep, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.configurations import STRATEGIES
from lab.joins.oracle import Scenario, Side, expected_state, scenarios, step, stored
from lab.joins.plain_pairs import query
from lab.state.circular_soundness import assert_sound
from watersmeet.errors import QueryError
from watersmeet.joins import Join
from watersmeet.joins.baselines.tuple_at_a_time import RunningTupleAtATime
from watersmeet.joins.baselines.windowed_hash import WindowedHashJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.kernels.baselines import circular_buffers, tuple_at_a_time
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import TimeWindow

SECOND = 1_000_000


def regular(requested: JoinQuery, rates: tuple[int, int], seconds: int, keys: int) -> list[Batch]:
    """Tuples at even intervals with random keys, all in one batch. The streams do not tick at the same instants."""
    out, chance = [], np.random.default_rng(7)
    for i, (spec, rate) in enumerate(zip(requested.streams, rates, strict=True)):
        n = rate * seconds
        times = np.arange(n) * SECOND // rate + i * SECOND // (2 * sum(rates))
        columns = [pa.array(chance.integers(0, keys, n)), pa.array(times)]
        out.append(Batch.of(pa.record_batch(columns, schema=spec.schema), spec.time))
    return out


def ran(
    buckets: int, invalidation: str, rates: tuple[int, int] = (20, 20), seconds: int = 60, keys: int = 100
) -> RunningTupleAtATime:
    join_query = query()
    join = WindowedHashJoin(buckets, invalidation).start(join_query, sample_every=2 * SECOND)
    for _ in join.step(regular(join_query, rates, seconds, keys)):
        pass
    return join


# ---------------------------------------------------------------- scanning


def test_scans_shrink_with_the_buckets_until_every_key_has_its_own() -> None:
    probed = {b: ran(b, "probe_insert").counters.probed for b in (1, 2, 5, 10, 20, 50, 100, 1000, 10_000)}
    for b in (2, 5, 10, 20, 50):
        assert probed[b] * b == pytest.approx(probed[1], rel=0.2)
    assert probed[100] * 100 < 1.5 * probed[1]
    # more buckets than keys: nothing but matches is looked at
    assert probed[1000] == probed[10_000] == ran(1000, "probe_insert").counters.results


def test_scans_follow_the_formula() -> None:
    """Equation 1's scan term, ra rb (Ta + Tb), for the second half of the run; in the first the windows fill."""
    ra, rb, window = 20, 20, 30
    both, first = (ran(1, "all", (ra, rb), seconds).counters.probed for seconds in (60, 30))
    assert both - first == pytest.approx(ra * rb * 2 * window * 30, rel=0.01)


def test_the_strategy_does_not_change_what_is_scanned() -> None:
    assert len({(c.probed, c.results) for c in (ran(10, s).counters for s in STRATEGIES)}) == 1


# ---------------------------------------------------------------- what is kept


def occupied(join: RunningTupleAtATime, side: int) -> float:
    """Mean number of tuples stored once the windows are full."""
    return float(np.mean([sample[1 + side] for sample in join.occupancy if sample[0] > 32 * SECOND]))


@pytest.mark.parametrize("rates", [(20, 20), (2, 200), (200, 2)])
def test_lazier_is_larger(rates: tuple[int, int]) -> None:
    joins = {s: ran(100, s, rates) for s in STRATEGIES}
    kept = {s: occupied(join, 0) + occupied(join, 1) for s, join in joins.items()}
    stale = {s: join.counters.stale for s, join in joins.items()}
    for size in (kept, stale):
        assert size["probe"] >= size["probe_insert"] >= size["all"]
        assert size["probe"] >= size["probe_all"] >= size["all"]
    assert stale["all"] == 0


def test_a_hundred_to_one() -> None:
    """Where the probing stream is slow, `probe` piles up; looking at insertion keeps the state as small as can be."""
    b = {s: occupied(ran(100, s, (2, 200)), 1) for s in STRATEGIES}
    window = 30 * 200
    assert b["all"] == pytest.approx(window, rel=0.01)
    assert b["probe_all"] == pytest.approx(window, rel=0.02)
    assert b["probe_insert"] == pytest.approx(window, rel=0.03)
    assert b["probe"] > 1.2 * window


@pytest.mark.parametrize(("ra", "rb"), [(20, 20), (20, 80), (80, 20)])
def test_stale_tuples_between_two_looks_into_a_bucket(ra: int, rb: int) -> None:
    """In every bucket of b: rb / ra of them where only probes look, rb / (ra + rb) where insertions do, too."""
    kept = {s: occupied(ran(40, s, (ra, rb), 300, 1000), 1) for s in STRATEGIES}
    assert kept["all"] == pytest.approx(30 * rb, abs=1)
    assert (kept["probe"] - kept["all"]) / 40 == pytest.approx(rb / ra, rel=0.1)
    assert (kept["probe_insert"] - kept["all"]) / 40 == pytest.approx(rb / (ra + rb), rel=0.1)


def test_greedy_strategies_look_into_every_bucket() -> None:
    n = 2 * 20 * 60
    looks = {s: ran(100, s).counters.checked for s in STRATEGIES}
    assert looks == {"probe": n, "probe_insert": 2 * n, "probe_all": 100 * n, "all": 200 * n}


def test_what_is_stale_goes_when_its_bucket_is_probed() -> None:
    """Window 10; keys 1 and 2 in buckets of their own. b's tuple of time 20 makes a's of time 3 stale, both of them."""
    a = Side(TimeWindow(10), 0, ((Tuple(3, (1,), 0), Tuple(3, (2,), 1), Tuple(15, (2,), 2)), (), ()))
    b = Side(TimeWindow(10), 0, ((), (Tuple(20, (1,), 0),), (Tuple(20, (2,), 1),)))
    scenario = Scenario("int64", pa.int64(), (a, b))
    join = WindowedHashJoin(1000, "probe").start(scenario.query())
    seen = []
    for n in range(3):
        results = step(join, scenario.batches(n))
        seen.append((len(results), sorted(row[:2] for row in stored(join, 0)), join.counters.stale))
    assert seen == [
        (0, [(3, 1), (3, 2), (15, 2)], 0),
        (0, [(3, 2), (15, 2)], 1),
        (1, [(15, 2)], 0),
    ]


def test_the_worked_times_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators" / "hash.md").read_text()
    lines = page.partition("| time | arrives |")[2].splitlines()[2:]
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[: lines.index("")]]
    arrivals = [(int(time), *arrives.split(", ")) for time, arrives, *_ in table]
    sides = [
        tuple((Tuple(time, (key,), n),) if side == name else () for n, (time, side, key) in enumerate(arrivals))
        for name in "ab"
    ]
    scenario = Scenario("string", pa.int64(), (Side(TimeWindow(10), 0, sides[0]), Side(TimeWindow(10), 0, sides[1])))
    for column, strategy in enumerate(STRATEGIES, 2):
        join = WindowedHashJoin(100, strategy).start(scenario.query())
        for n, row in enumerate(table):
            step(join, scenario.batches(n))
            times = sorted(ts for ts, *_ in stored(join, 0))
            assert ", ".join(f"({t})" if t < join.alive_from(0) else str(t) for t in times) == row[column]


def test_occupancy_is_sampled_by_stream_time() -> None:
    join = ran(3, "all", (1, 1), 7)
    assert [t for t, _, _ in join.occupancy] == [0, 2 * SECOND, 4 * SECOND, 6 * SECOND]
    assert [(a, b) for _, a, b in join.occupancy] == [(0, 0), (2, 2), (4, 4), (6, 6)]
    join_query = query()
    unasked = WindowedHashJoin(3).start(join_query)
    list(unasked.step(regular(join_query, (1, 1), 7, 10)))
    assert unasked.occupancy == []


@given(scenarios(), st.sampled_from([1, 2, 100]), st.sampled_from(STRATEGIES))
def test_the_buffers_are_sound_after_every_batch(scenario: Scenario, buckets: int, strategy: str) -> None:
    join = WindowedHashJoin(buckets, strategy).start(scenario.query(), sample_every=1)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
        for stream in join.streams:
            assert_sound(stream.lists)
    assert len(expected_state(scenario, 0)[-1]) <= len(join.streams[0])


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("buckets", [0, -1, 1.5, True, "10", (1 << 24) + 1])
def test_buckets_are_a_number(buckets: Any) -> None:
    with pytest.raises(QueryError) as caught:
        Join(query(), WindowedHashJoin(buckets))
    assert str(caught.value) == (
        f"`buckets` is {buckets!r}; it is a whole number from 1 to 16777216.\nHint: take about as many as there are "
        "distinct keys in a window, or leave it out: one bucket per key."
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [("probe-insert", 'did you mean "probe_insert"?'), ("never", '"probe_insert" is fast and keeps little.')],
)
def test_strategies_are_known(word: str, hint: str) -> None:
    with pytest.raises(QueryError) as caught:
        Join(query(), WindowedHashJoin(10, word))
    assert str(caught.value) == (
        f"`invalidation` is '{word}'; the strategies are probe, probe_insert, probe_all, all.\nHint: {hint}"
    )


def test_other_joins_are_refused() -> None:
    with pytest.raises(
        QueryError, match=r'^"windowed_hash" computes inner joins of two streams; got "left" of 2.\nHint: '
    ):
        Join(JoinQuery(query().streams, "left"), WindowedHashJoin(10))


def test_time_does_not_stand_still() -> None:
    with pytest.raises(
        QueryError, match=r"^`sample_every` is 0 seconds; time only runs forward.\nHint: give 1 or more"
    ):
        WindowedHashJoin(10).start(query(), sample_every=0)


def test_every_kernel_is_compiled_for_one_signature() -> None:
    stream = ran(3, "all", (3, 3), 40).streams[0]
    times, keys = stream.read(regular(query(), (1, 1), 1, 1)[0].rows)
    stream.lists.insert(np.arange(1), times, keys, 0)
    for function in (
        tuple_at_a_time.join,
        circular_buffers.insert,
        circular_buffers.expire,
        circular_buffers.reserve,
        circular_buffers.stale,
    ):
        assert len(function.signatures) == 1, function
