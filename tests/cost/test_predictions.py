"""Predictions from measured statistics against what running joins count: work, results, tuples in state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.cost.measured_parameters import measured
from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.multiway import one_order
from watersmeet.cost.parameters import PER_KEY, SCAN, Order, Parameters
from watersmeet.cost.work import Work
from watersmeet.joins import plan
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.state.durable import log
from watersmeet.state.statistics.stream import SECOND, StreamStatistics
from watersmeet.workload.punctuated_streams import Punctuated, stream_spec

SECONDS = 40
RATES, WINDOWS, KEYS = (40, 100, 15), (5.0, 8.0, 10.0), (50, 30, 40)


def poisson(i: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(i)
    times = np.sort(rng.integers(0, SECONDS * SECOND, rng.poisson(RATES[i] * SECONDS)))
    return times, rng.integers(0, KEYS[i], times.size)


def batches(q: JoinQuery) -> list[list[Batch]]:
    """All streams, a second a batch."""
    made = [poisson(i) for i in range(len(q.streams))]
    steps = []
    for second in range(SECONDS):
        step = []
        for spec, (times, keys) in zip(q.streams, made, strict=True):
            here = (times >= second * SECOND) & (times < (second + 1) * SECOND)
            columns = [pa.array(keys[here]), pa.array(times[here]), pa.array(np.flatnonzero(here))]
            step.append(Batch.of(pa.record_batch(columns, schema=spec.schema), spec.time))
        steps.append(step)
    return steps


def run(q: JoinQuery, steps: list[list[Batch]], name: str, **options: Any) -> tuple[Parameters, list[dict[str, int]]]:
    """Measured parameters at the end, and the counters of each batch."""
    join = plan(q, name, **options).start()
    store, header = log.MemoryStore(), log.begin(q)
    streams = [StreamStatistics(s.window.reach) for s in q.streams]
    counters = []
    for step in steps:
        for _ in join.step(step):
            pass
        for s, arrivals, batch in zip(streams, join.arrivals, step, strict=True):
            closed = 0 if batch.punctuations is None else batch.punctuations.times.size
            rows = arrivals.rows
            s.observe(arrivals.times, arrivals.keys.words, np.arange(rows.num_rows), rows.nbytes, closed=closed)
        counters.append(join.counters.as_dict())
        header = log.commit(join, header, store)
    return measured(q, streams), counters


def per_second(counters: list[dict[str, int]], *, scans: bool = False) -> Work:
    """Work of a second, on average over those in which all windows are full."""
    steady = counters[len(counters) // 3 :]
    return sum((Work.counted(c, scans=scans) for c in steady), Work()).times(1 / len(steady))


@pytest.mark.parametrize(
    ("name", "options"),
    [("nested_loop", {}), ("windowed_hash", {"buckets": 10, "invalidation": "probe_insert"}), ("hash", {})],
)
def test_work_and_state_of_window_joins(name: str, options: dict[str, Any]) -> None:
    q = JoinQuery(tuple(stream_spec(n, w) for n, w in zip("ab", WINDOWS, strict=False)))
    p, counters = run(q, batches(q), name, **options)
    if options:
        p = replace(p.indexed([options["buckets"]] * 2), invalidation=options["invalidation"])
    predicted, counted = COST_MODELS[name](p), per_second(counters, scans=name != "hash")
    assert predicted.work.looked_at == pytest.approx(counted.looked_at, rel=0.15)
    assert predicted.work.results == pytest.approx(counted.results, rel=0.15)
    assert predicted.work.expired == pytest.approx(counted.expired, rel=0.1)
    assert sum(predicted.tuples) == pytest.approx(np.mean([c["stored"] for c in counters[15:]]), rel=0.1)
    if name == "windowed_hash":
        assert predicted.work.checked == pytest.approx(counted.checked, rel=0.1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize(
    ("name", "index", "buckets"),
    [
        ("eager", "scan", SCAN),
        ("eager", "hash", PER_KEY),
        ("naive_multiway", "hash", PER_KEY),
        pytest.param("naive_multiway", "scan", SCAN, marks=pytest.mark.more),  # it looks at everything
    ],
)
def test_work_of_multi_way_joins(name: str, index: str, buckets: float, order: Order) -> None:
    q = JoinQuery(tuple(stream_spec(n, w) for n, w in zip("abc", WINDOWS, strict=True)))
    p, counters = run(q, batches(q), name, index=index, order=order)
    orders = (order, *one_order(order)[1:]) if name == "naive_multiway" else one_order(order)
    predicted = COST_MODELS[name](replace(p.indexed([buckets] * 3), orders=orders))
    counted = per_second(counters, scans=index == "scan")
    assert predicted.work.looked_at == pytest.approx(counted.looked_at, rel=0.2)
    assert predicted.work.results == pytest.approx(counted.results, rel=0.2)
    assert sum(predicted.tuples) == pytest.approx(np.mean([c["stored"] for c in counters[15:]]), rel=0.1)


@pytest.mark.parametrize("window", [1.0, 5.0, 15.0])
@pytest.mark.parametrize("patterns", [("punct-asc-100-40",) * 2, ("punct-asc-30-40", "punct-random-30-40")])
def test_state_of_pwjoin(patterns: tuple[str, str], window: float) -> None:
    """Equation 1 on the streams of its paper, a hundred tuples a second, after a minute: to a fifth of the window.

    It takes no notice of which keys are closed: here those that most of the last tuples have.
    """
    q = JoinQuery((stream_spec("a", window), stream_spec("b", window)))
    made = [Punctuated(pattern, seed, values=400).take(7_000) for seed, pattern in enumerate(patterns)]
    cut = zip(*(m.batches(s, 1.0) for m, s in zip(made, q.streams, strict=True)), strict=False)
    p, counters = run(q, [list(step) for step in cut][:60], "pwjoin")
    plain, stored = 200 * window, np.mean([c["stored"] for c in counters[-5:]])
    assert sum(COST_MODELS["pwjoin"](p).tuples) == pytest.approx(stored, abs=plain / 5)
    assert stored < 0.95 * plain
