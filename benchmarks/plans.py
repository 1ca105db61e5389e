"""A comparison of plans on one load: the optimiser's choice, the counters of all plans, and their times."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from statistics import fmean
from typing import Any

import numpy as np

from watersmeet.cost.calibration import work_of
from watersmeet.cost.machine import DEFAULT, Machine
from watersmeet.cost.measured_parameters import assumed
from watersmeet.cost.parameters import KEY_BYTES, Order, Parameters
from watersmeet.cost.work import Work
from watersmeet.joins import plan
from watersmeet.model.batches import Batch
from watersmeet.optimizer.order import best_order, cost_of, heuristic
from watersmeet.optimizer.plan import JoinPlan
from watersmeet.optimizer.planner import make_plan
from watersmeet.spark.progress.shard_statistics import Watch
from watersmeet.state.durable import log
from watersmeet.state.value_lists import ValueLists
from watersmeet.workload.steady import Steady

#: Seconds of event time of a run, a batch each; the figures are those of the first third, the state that of the last.
SECONDS = 18
#: Orders of a join that are tried: all of four streams, of more as many of them.
MOST_ORDERS = 24
#: Windows are not scanned where that would look at more tuples in a second; nor are plans run again that took so many
#: times as long as the fastest.
MOST_SCANNED, HOPELESS = 2e6, 3.0
#: Joins of one and the other kind that are tried beside each other, with their options.
OF_TWO: tuple[tuple[str, dict[str, Any]], ...] = (
    ("hash", {}),
    ("pwjoin", {}),
    ("nested_loop", {}),
    ("windowed_hash", {"buckets": 16}),
    ("windowed_hash", {"buckets": 256}),
    ("general_lazy", {}),
    ("eager", {}),
    ("eager", {"index": "scan"}),
)


@dataclass(frozen=True)
class Contender:
    """A plan: an algorithm with its options."""

    algorithm: str
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        options = [order_text(value) if key == "order" else f"{key} {value}" for key, value in self.options]
        return ", ".join([self.algorithm, *options])

    @property
    def scans_windows(self) -> bool:
        return self.algorithm == "nested_loop" or dict(self.options).get("index") == "scan"

    @property
    def scans(self) -> bool:
        return self.algorithm == "windowed_hash" or self.scans_windows


def order_text(order: Any) -> str:
    """An order by the names of the streams; one for each origin has a bar between them."""
    if isinstance(order[0], tuple):
        return "|".join(map(order_text, order))
    return "".join("abcdefgh"[i] for i in order)


def contenders(streams: Steady) -> list[Contender]:
    """The plans that are tried: for two streams every join, for more the orders of the joins that take many."""
    n = len(streams.rates)
    if n == 2:
        tried = [Contender(name, tuple(options.items())) for name, options in OF_TWO]
        scanned = streams.rates[0] * streams.rates[1] * sum(streams.windows)
        tried = [c for c in tried if scanned <= MOST_SCANNED or not c.scans_windows]
        uses = (plan(streams.query, c.algorithm, **dict(c.options)).algorithm.uses_punctuations for c in tried)
        return [c for c, used in zip(tried, uses, strict=True) if used or not streams.punctuations]
    orders = list(permutations(range(n)))
    if len(orders) > MOST_ORDERS:
        picked = np.random.default_rng(5).permutation(len(orders))[:MOST_ORDERS]
        orders = [orders[i] for i in sorted(picked.tolist())]
    ends = [orders[0], orders[-1]]
    return [Contender("general_lazy", (("order", o),)) for o in orders] + [
        Contender("eager", (("order", o),)) for o in ends
    ]


def chosen(made: JoinPlan, n: int, keys: float) -> Contender:
    """A plan of the optimiser as something that runs; an order that all arrivals follow is given once."""
    options: dict[str, Any] = {}
    if made.algorithm == "hybrid":
        options["index"] = tuple("abcdefgh"[i] for i, kind in enumerate(made.indexes) if kind == "hash")
    if made.algorithm == "windowed_hash":
        options |= {"buckets": max(1, round(keys)), "invalidation": made.invalidation}
    if n > 2:
        single = next((o for o in permutations(range(n)) if one_order_of(o) == made.orders), None)
        whole = tuple((i, *order) for i, order in enumerate(made.orders))
        options["order"] = whole if single is None else single
    return Contender(made.algorithm, tuple(options.items()))


def one_order_of(order: Order) -> tuple[Order, ...]:
    return tuple(tuple(j for j in order if j != i) for i in sorted(order))


# ------------------------------------------------------------ running


def run(contender: Contender, streams: Steady, steps: Sequence[list[Batch]]) -> dict[str, Any]:
    """CPU seconds of a run, the log included, its work, and the state that it had in the last third.

    Bytes are those of stored tuples. Closed keys do not count: their number grows with the length of a run.
    """
    query = streams.query
    join = plan(query, contender.algorithm, **dict(contender.options)).start()
    store, header = log.MemoryStore(), log.begin(query)
    work, stored, size, seconds = Work(), [], [], 0.0
    for batches in steps:
        began = time.process_time()
        for _ in join.step(batches):
            pass
        seconds += time.process_time() - began
        work += work_of(contender.algorithm, join, batches, scans=contender.scans)  # the commit clears the batch
        began = time.process_time()
        header = log.commit(join, header, store)
        seconds += time.process_time() - began
        stored.append(join.counters.stored)
        closed_keys = sum(s.lists.closed_keys for s in join.streams if isinstance(s.lists, ValueLists))
        size.append(sum(s.bytes for s in join.streams) - closed_keys * KEY_BYTES)
    last = len(steps) * 2 // 3
    constants = DEFAULT.of(contender.algorithm)
    return {
        "seconds": seconds,
        "work": (constants.price(work) + constants.batch * len(steps)) / 1e9,
        "probed": work.looked_at,
        "results": work.results,
        "stored": fmean(stored[last:]),
        "bytes": fmean(size[last:]),
    }


def warm_up() -> None:
    """Load the kernels of the plans, or compile them the first time."""
    for small in (Steady((20, 20), (1.0, 1.0), (9, 9)), Steady((20, 20), (1.0, 1.0), (9, 9), punctuations=3.0)):
        for n in range(2, 6):
            streams = Steady(
                small.rates[:1] * n, small.windows[:1] * n, small.distinct[:1] * n, punctuations=small.punctuations
            )
            steps = list(streams.steps(3))
            for algorithm in {c.algorithm: c for c in contenders(streams)}.values():
                run(algorithm, streams, steps)


def figures(streams: Steady, steps: Sequence[list[Batch]]) -> Parameters:
    """The statistics of the streams, measured in a first run."""
    query = streams.query
    definition = plan(query, "pwjoin" if len(query.streams) == 2 else "general_lazy")
    join = definition.start()
    watched = Watch(definition, join, None)
    store, header = log.MemoryStore(), log.begin(query)
    for n, batches in enumerate(steps):
        for _ in join.step(batches):
            pass
        watched.after(n, batches)
        header = log.commit(join, header, store)
    p = watched.statistics()
    return replace(p, streams=tuple(replace(s, set_size=0.0) for s in p.streams))


def given(streams: Steady) -> Parameters:
    """The same without a run, from the parameters of the load."""
    p = assumed(streams.query)
    each = []
    for s, rate, window, keys in zip(p.streams, streams.rates, streams.windows, streams.distinct, strict=True):
        distinct = min(keys + streams.punctuations * window, max(rate * window, 1.0))
        each.append(replace(s, rate=rate, distinct=max(1.0, distinct), punctuation_rate=streams.punctuations))
    return replace(p, streams=tuple(each))


def judge(streams: Steady, machine: Machine, repetitions: int) -> Iterator[dict[str, Any]]:
    """The results of one load so far; yields once for each repetition."""
    steps = list(streams.steps(SECONDS))
    n = len(streams.rates)
    p = figures(streams, steps[: SECONDS // 3])
    plans = {
        "counters": make_plan(streams.query, p, machine=DEFAULT, one_by_one=True),
        "time": make_plan(streams.query, p, machine=machine, one_by_one=True),
    }
    taken = {by: chosen(made, n, max(s.distinct for s in p.streams)) for by, made in plans.items()}
    tried = contenders(streams)
    tried += [c for c in dict.fromkeys(taken.values()) if c not in tried]
    by_rule = None
    if n > 2:
        by_rule = Contender("general_lazy", (("order", heuristic(p)),))
        tried += [by_rule] if by_rule not in tried else []
    made = plans["counters"]
    found: dict[str, Any] = {
        "streams": {
            "rates": streams.rates,
            "windows": streams.windows,
            "keys": streams.distinct,
            "closed_keys": streams.punctuations,
        },
        "chosen": {by: c.name for by, c in taken.items()},
        "heuristic": None if by_rule is None else by_rule.name,
        "predicted": {"tuples": sum(made.tuples), "bytes": made.bytes, "results": made.results},
        "predicted_given": sum(make_plan(streams.query, given(streams), machine=DEFAULT).tuples),
        "loss": None if n == 2 else cost_of(p, one_order_of(heuristic(p))) / best_order(p).cost,
        "plans": {},
    }
    for repetition in range(repetitions):
        if repetition == 1:
            first = {c: found["plans"][c.name]["seconds"][0] for c in tried}
            wanted = set(taken.values()) | {by_rule}
            tried = [c for c in tried if c in wanted or first[c] <= HOPELESS * min(first.values())]
        for c in tried:
            outcome = run(c, streams, steps)
            about = found["plans"].setdefault(c.name, outcome | {"seconds": []})
            about["seconds"].append(outcome["seconds"])
        found["results_agree"] = len({about["results"] for about in found["plans"].values()}) == 1
        yield found | {"repetition": repetition}
