"""Runs of the joins of several streams: orders, intervals, indexes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from experiments.experiment import Run
from experiments.gatherer import follow
from lab.measure.claims import Found
from watersmeet.cost import multiway
from watersmeet.cost.multiway import one_order
from watersmeet.cost.parameters import PER_KEY, SCAN, Order, Parameters, Statistics
from watersmeet.joins import plan
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_loops import Loops
from watersmeet.workload.arrivals import micros
from watersmeet.workload.several import Several

#: The example of the slides, with its best and its worst order.
EXAMPLE = Several((10, 1, 1, 3), (100, 100, 200, 100), (500, 50, 40, 5))
BEST, WORST = (0, 1, 2, 3), (3, 2, 1, 0)


def timed(load: Several, algorithm: str, batch: float, seconds: float, **options: Any) -> dict[str, float]:
    """The measurements of a join over a load in batches, for `seconds` of stream time once all windows are full.

    Until then every window is looked up by key, whatever the options: the stored tuples are the same.
    """
    warm = max(load.windows)
    join = plan(load.query, algorithm, **options).start()
    first = None
    if isinstance(join, RunningMultiway) and isinstance(join.evaluation, Loops):
        first = _by_key(join, join.evaluation)
    found = follow(join, load.steps(warm + seconds, batch), batch=batch, sample=warm, first=first)
    seconds, sums = found.since_first()
    return {"cpu": seconds, **{n: sums[n] for n in ("rows_in", "probed", "results")}}


def _by_key(join: RunningMultiway, loops: Loops) -> Callable[[], None]:
    """Let a join look up every window by key; gives what restores its own indexes."""
    order = join.order
    join.evaluation = Loops((True,) * len(loops.indexed))
    join.order = None

    def restore() -> None:
        join.evaluation = loops
        join.order = order

    return restore


def compiled(n: int) -> None:
    """Compile the loops over n streams before the measurement."""
    load = Several((5,) * n, (2,) * n, (5,) * n)
    for algorithm in ("naive_multiway", "eager", "lazy", "general_lazy"):
        for index in ("hash", "scan"):
            timed(load, algorithm, 1.0, 2.0, index=index)


def parameters(load: Several, buckets: float | Sequence[float], interval: float = 0.0) -> Parameters:
    some = [buckets] * len(load.rates) if isinstance(buckets, float) else buckets
    figures = zip(load.query.streams, load.rates, load.windows, load.distinct, some, strict=True)
    streams = tuple(Statistics(s.name, r, w, v, buckets=b) for s, r, w, v, b in figures)
    return Parameters(streams, interval=interval)


def repeated(run: Run, settings: dict[str, tuple[Any, ...]], repetitions: int) -> Found:
    """Settings (arguments of `timed`, with a dictionary of options last) in turns."""
    counts: Found = {}
    times: Found = {name: [] for name in settings}
    for name, (*given, options) in run.steps([item for _ in range(repetitions) for item in settings.items()]):
        found = timed(*given, **options)
        times[name].append(found.pop("cpu"))
        counts[name] = found
    return {"counts": counts, "times": times}


# ---------------------------------------------------------------- the table

ALGORITHMS = {"eager": ("eager", 0), "lazy, τ = 5 s": ("lazy", 5), "lazy, τ = 10 s": ("lazy", 10)}
INDEXES = {"scans": "scan", "hash": "hash"}
ORDERS = {"best": BEST, "worst": WORST}


def run_table(run: Run) -> Found:
    compiled(4)
    scale = run.size({"scan": 2, "hash": 60}, {"scan": 1, "hash": 8})
    settings = {}
    for kind, index in INDEXES.items():
        load = replace(EXAMPLE.scaled(scale[index]), seed=run.seed)
        for name, (algorithm, every) in ALGORITHMS.items():
            for order, streams in ORDERS.items():
                options = {"order": streams, "index": index} | ({"every": micros(every)} if every else {})
                settings[f"{kind}: {name}: {order}"] = (
                    load,
                    algorithm,
                    float(every or 5),
                    run.size(40.0, 20.0),
                    options,
                )
    found = repeated(run, settings, run.size(3, 1))
    for kind, index in INDEXES.items():
        for order, streams in ORDERS.items():
            load = EXAMPLE.scaled(scale[index])
            work = multiway.eager(parameters(load, PER_KEY if index == "hash" else SCAN), one_order(streams))
            found["counts"][f"{kind}: predicted: {order}"] = work.looked_at / sum(load.rates)
    return found


# ---------------------------------------------------------------- figures 2 and 3

STREAMS = (2, 3, 4, 5, 6)


def run_2(run: Run) -> Found:
    """Equal streams: 100 tuples in each window, one of each key."""
    streams = run.size(STREAMS, STREAMS[:3])
    for n in streams:
        compiled(n)
    settings: dict[str, tuple[Any, ...]] = {}
    predictions: Found = {"streams": list(streams)}
    for n in streams:
        load = Several((10,) * n, (10,) * n, (100,) * n, run.seed)
        p, order = parameters(load, SCAN), tuple(range(n))
        for algorithm in ("naive_multiway", "eager"):
            settings[f"{algorithm} {n}"] = (
                load,
                algorithm,
                10.0,
                run.size(20.0, 10.0),
                {"index": "scan", "order": order},
            )
        predictions[f"predicted naive_multiway {n}"] = multiway.naive_multiway(p, order).looked_at / sum(load.rates)
        predictions[f"predicted eager {n}"] = multiway.eager(p, one_order(order)).looked_at / sum(load.rates)
    found = repeated(run, settings, run.size(3, 1))
    found["counts"] |= predictions
    return found


def best_general(p: Parameters) -> tuple[Order, ...]:
    """For each origin the order of all streams that costs least, wherever the new tuples stand in it."""
    n = len(p.streams)
    orders: list[Order] = [tuple(range(n))] * n
    for i in range(n):

        def cost(order: Order, i: int = i) -> float:
            return multiway.general_lazy(p, [order if k == i else o for k, o in enumerate(orders)]).looked_at

        orders[i] = min(permutations(range(n)), key=cost)
    return tuple(orders)


def best_lazy(p: Parameters) -> tuple[Order, ...]:
    """For each origin the order of the others that costs least, behind the new tuples."""
    n = len(p.streams)
    orders = []
    for i in range(n):

        def cost(order: Order, i: int = i) -> float:
            return multiway.from_origin(p, i, order).looked_at

        orders.append((i, *min(permutations([j for j in range(n) if j != i]), key=cost)))
    return tuple(orders)


def run_3(run: Run) -> Found:
    """One fast stream and slow ones with few tuples of a key, evaluated every 5 s, each algorithm in its best order."""
    streams = run.size(STREAMS, STREAMS[:3])
    for n in streams:
        compiled(n)
    every, fast = 5.0, run.size(400.0, 200.0)
    settings: dict[str, tuple[Any, ...]] = {}
    predictions: Found = {"streams": list(streams)}
    for n in streams:
        load = Several((fast, *(4.0,) * (n - 1)), (10.0,) * n, (400,) * n, run.seed)
        p = parameters(load, SCAN, every)
        orders = {"lazy": best_lazy(p), "general_lazy": best_general(p)}
        for algorithm, chosen in orders.items():
            options = {"index": "scan", "order": chosen, "every": micros(every)}
            settings[f"{algorithm} {n}"] = (load, algorithm, every, run.size(150.0, 30.0), options)
        predictions[f"predicted lazy {n}"] = multiway.general_lazy(p, orders["lazy"]).looked_at / sum(load.rates)
        predictions[f"predicted general_lazy {n}"] = multiway.general_lazy(p, orders["general_lazy"]).looked_at / sum(
            load.rates
        )
    found = repeated(run, settings, run.size(3, 1))
    found["counts"] |= predictions
    return found


# ---------------------------------------------------------------- figure 4

INTERVALS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def run_4a(run: Run) -> Found:
    compiled(4)
    intervals = run.size(INTERVALS, (2.0, 10.0, 100.0))
    load = replace(EXAMPLE.scaled(run.size(2, 1)), seed=run.seed)
    settings: dict[str, tuple[Any, ...]] = {}
    for interval in intervals:
        for kind, index in INDEXES.items():
            shared = {"index": index, "order": BEST, "expiration": micros(interval)}
            settings[f"expiration, {kind} {interval:g}"] = (load, "eager", interval, 100.0, shared)
            lazy = shared | {"every": micros(interval)}
            settings[f"re-execution, {kind} {interval:g}"] = (load, "lazy", interval, 100.0, lazy)
    found = repeated(run, settings, 1)
    found["counts"]["intervals"] = list(intervals)
    return found


def run_4b(run: Run) -> Found:
    """Indexes on more and more windows, those of the fastest streams first or those of the slowest."""
    compiled(4)
    load = replace(EXAMPLE.scaled(run.size(3, 1)), seed=run.seed)
    names = [s.name for s in load.query.streams]
    ranked = sorted(range(4), key=lambda i: (-load.rates[i], i))
    settings: dict[str, tuple[Any, ...]] = {}
    predictions: Found = {}
    for way, order in (("fastest", ranked), ("slowest", ranked[::-1])):
        for k in range(5):
            indexed = order[:k]
            options = {"index": tuple(names[i] for i in indexed), "order": BEST}
            settings[f"{way} {k}"] = (load, "hybrid", 5.0, run.size(50.0, 20.0), options)
            p = parameters(load, [PER_KEY if i in indexed else SCAN for i in range(4)])
            plain = [j for j in BEST if j not in indexed] + [j for j in BEST if j in indexed]
            predictions[f"predicted {way} {k}"] = multiway.eager(p, one_order(plain)).looked_at / sum(load.rates)
    found = repeated(run, settings, run.size(3, 1))
    found["counts"] |= predictions
    return found
