"""Runs of the window-oblivious joins: Query 1, three streams, and Query 2, two such joins joined."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.joins.window_oblivious import possible
from lab.measure.claims import Found
from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.cost.window_oblivious import buffer, output_scrambling
from watersmeet.joins import Join, plan
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.wo_join.key_ranks import KeyRanks, Limits, key_ranks, running
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.joins.wo_join.retention import Buffers, PaperBuffers
from watersmeet.joins.wo_join.tree import LeafBuffers, RunningWOTree, WOTree
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import FOREVER, RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.state.statistics.disorder import lag
from watersmeet.workload.scrambled import Scrambled, cut, three_streams

Rows = Sequence[pa.RecordBatch]


@dataclass
class Watched:
    """One run: results, tuples in memory of each stream after each batch, mean seconds from last arrival to output."""

    results: int = 0
    kept: list[list[int]] = field(default_factory=list)  # by stream
    predicted: list[list[float]] = field(default_factory=list)  # by stream, equation 8
    over_interval: list[list[float]] = field(default_factory=list)  # the same, rates measured since the lag
    latency: float = 0.0
    accuracy: float = 0.0

    @property
    def memory(self) -> float:
        """Tuples in memory, mean over the batches, all streams."""
        return float(np.sum([np.mean(k) for k in self.kept]))


def factors(seed: int, n: int = 3, most: int = 500) -> tuple[int, ...]:
    return tuple(np.random.default_rng((seed, 1)).integers(1, most + 1, n).tolist())


def query_1(seed: int, seconds: float) -> tuple[tuple[Scrambled, ...], list[pa.RecordBatch]]:
    """Three streams; the second one's rate dips, the third one's bursts."""
    made = three_streams(factors(seed))
    return made, [s.rows(seconds, seed=seed, stream=i) for i, s in enumerate(made)]


def query_2(seed: int, seconds: float) -> tuple[tuple[Scrambled, ...], list[pa.RecordBatch]]:
    """Six streams; the second one's rate dips, so that the first join runs behind the other; none bursts."""
    known = factors(seed, 6)
    first = tuple(replace(s, swings=s.swings if i == 1 else ()) for i, s in enumerate(three_streams(known[:3])))
    made = (*first, *(Scrambled(k) for k in known[3:]))
    return made, [s.rows(seconds, seed=seed, stream=i) for i, s in enumerate(made)]


def specs(n: int, first: int = 0, window: Window | None = None) -> tuple[StreamSpec, ...]:
    """Streams s<first> … that meet on `epoch`; with a window, it is one of arrival time."""
    streams = []
    for i in range(first, first + n):
        schema = pa.schema([(f"at_{i}", pa.int64()), ("epoch", pa.int64()), (f"reading_{i}", pa.float64())])
        reach, delay = (Unbounded(), FOREVER) if window is None else (window, 0)
        streams.append(StreamSpec(f"s{i}", schema, f"at_{i}", ("epoch",), reach, delay))
    return tuple(streams)


def steps(streams: Sequence[StreamSpec], rows: Rows, seconds: float, batch: float) -> list[list[Batch]]:
    """The arrivals of each interval of `batch` seconds; the newest event time of every stream is the interval's end."""
    out = []
    for number, some in enumerate(cut(rows, seconds, batch)):
        end = round((number + 1) * batch * 1e6)
        out.append([Batch(r.rename_columns(s.schema.names), end - 1) for r, s in zip(some, streams, strict=True)])
    return out


def held(join: RunningMultiway) -> list[int]:
    """Tuples of each stream in memory: stored, and those that wait to be sorted."""
    deferred = join.axis.deferred if isinstance(join.axis, KeyRanks) else []
    deferred_rows = [h.in_memory.num_rows for h in deferred] or [0] * len(join.own)
    return [len(s) + w for s, w in zip(join.own, deferred_rows, strict=True)]


def watch(join: RunningMultiway, rows: Rows, seconds: float, batch: float = 1.0) -> Watched:
    """Run a join of three streams over the arrivals of `seconds`."""
    seen = Watched(kept=[[] for _ in rows], predicted=[[] for _ in rows], over_interval=[[] for _ in rows])
    waited = 0.0
    for number, batches in enumerate(steps(join.query.streams, rows, seconds, batch)):
        began, late, found = time.perf_counter(), 0.0, 0
        for table in join.step(batches):
            found += table.num_rows
            late += _behind(table, number, batch)
        waited += late + found * (time.perf_counter() - began)
        join.arrivals = []
        seen.results += found
        for mine, size in zip(seen.kept, held(join), strict=True):
            mine.append(size)
        if isinstance(join.axis, KeyRanks) and isinstance(join.axis.buffers, PaperBuffers):
            for series, bound in zip(seen.predicted, equation_8(join.axis.buffers), strict=True):
                series.append(bound)
            for series, bound in zip(seen.over_interval, equation_8_over_interval(join.axis.buffers), strict=True):
                series.append(bound)
    seen.latency = waited / max(1, seen.results)
    seen.accuracy = seen.results / max(1, possible(rows))
    return seen


def _behind(table: pa.Table, number: int, batch: float) -> float:
    """Seconds that results waited, in whole batches since that of their last arrival; summed."""
    last = pc.max_element_wise(*(table[c] for c in table.column_names if c.startswith("at_")))
    came = pc.floor(pc.divide(pc.cast(last, pa.float64()), batch * 1e6))
    return float(table.num_rows * number - pc.sum(came).as_py()) * batch


def equation_8(buffers: PaperBuffers) -> list[float]:
    """The buffer sizes by equation 8, from recent rates, lags, and given or measured factors."""
    n = len(buffers.given)
    streams = [Statistics(f"s{i}", max(buffers.rates[i].rate, 1e-3), scrambling=buffers.allowance(i)) for i in range(n)]
    lags = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        lags[i, j] = _then(buffers, i, j)[1]
    p = Parameters(tuple(streams), lags=tuple(map(tuple, lags.tolist())))
    return [buffer(p, i) for i in range(n)]


def equation_8_over_interval(buffers: PaperBuffers) -> list[float]:
    """The same, with rates measured over the time in which the last k_j tuples of stream j came.

    Then r_i · k_j / r_j is the number of tuples of stream i that came meanwhile.
    """
    sizes = []
    for i, disorder in enumerate(buffers.disorder):
        others = [_then(buffers, i, j) for j in range(len(buffers.given)) if j != i]
        came = [disorder.count - arrived + ahead for arrived, ahead in others]
        sizes.append(max(1.0, buffers.allowance(i) + max(came)))
    return sizes


def _then(buffers: PaperBuffers, i: int, j: int) -> tuple[int, int]:
    """Tuples of stream i that had come when the tuple k_j before the last one of stream j came, and its lag then."""
    history, position = np.array(buffers.history), buffers.disorder[j].count - buffers.allowance(j)
    arrived = int(history[min(int(np.searchsorted(history[:, j], position)), len(history) - 1), i])
    return arrived, lag(buffers.tails[i], arrived, buffers.tails[j], position) or 0


def wo(made: Sequence[Scrambled], *, known: bool, **options: Any) -> RunningMultiway:
    """The join of three streams with factors known, or measured."""
    given = tuple(s.scrambling for s in made) if known else None
    return WOJoin(scrambling=given, **options).start(JoinQuery(specs(len(made))))


def windowed(n: int, window: Window) -> RunningMultiway:
    """The window join of n streams, by arrival."""
    join = plan(JoinQuery(specs(n, window=window)), "general_lazy").start()
    assert isinstance(join, RunningMultiway), "a join of several streams"
    return join


# ---------------------------------------------------------------- Query 2


def tree(made: Sequence[Scrambled], root: str, *, known: bool = True, strategy: str = "none") -> RunningWOTree:
    """Two joins of three streams, joined.

    The root's buffers follow the key watermarks of the leaves ("leaves"), or the bounds of theorem 3.1: sound buffers
    for them ("bound"), or equation 8 with them ("eq8").
    """
    leaves = []
    for first in (0, 3):
        given = tuple(s.scrambling for s in made[first : first + 3]) if known else None
        leaves.append(Join(JoinQuery(specs(3, first)), WOJoin(scrambling=given, strategy=strategy)))
    streams = [
        StreamSpec(name, leaf.query.schema, leaf.query.streams[0].time, ("epoch",), Unbounded(), FOREVER)
        for name, leaf in zip(("s7", "s8"), leaves, strict=True)
    ]
    query, bounds = JoinQuery(tuple(streams)), theorem_31(made, strategy)
    WOTree(tuple(leaves), query)  # checks that they fit
    kinds: dict[str, Callable[[], Buffers]] = {
        "leaves": lambda: LeafBuffers(2),
        "bound": lambda: Buffers("sound", bounds),
        "eq8": lambda: PaperBuffers("eq8", bounds),
    }
    on_disk = "dbf" if strategy in ("dbf", "hybrid") else "none"
    return RunningWOTree([leaf.start() for leaf in leaves], running(query, kinds[root](), limits=Limits(on_disk)))


def theorem_31(made: Sequence[Scrambled], strategy: str = "none") -> list[int]:
    """Scrambling factors of both joins' results, at most; a stream that is sorted first has its multiplicity for k."""
    bounds = []
    for first in (0, 3):
        some = [
            Statistics("s", 1.0, multiplicity=s.multiplicity,
                       scrambling=s.multiplicity if strategy in ("msf", "hybrid") else s.scrambling)
            for s in made[first : first + 3]
        ]  # fmt: skip
        bounds.append(round(output_scrambling(some)))
    return bounds


def watch_tree(running: RunningWOTree, rows: Rows, seconds: float, batch: float = 1.0) -> Watched:
    """Query 2: `kept` are the leaves' six streams, then S7 and S8."""
    seen = Watched(kept=[[] for _ in range(8)], predicted=[[], []])
    streams = [s for leaf in running.leaves for s in leaf.query.streams]
    for batches in steps(streams, rows, seconds, batch):
        seen.results += sum(t.num_rows for t in running.step([batches[:3], batches[3:]]))
        sizes = [size for join in running.joins for size in held(join)]
        for mine, size in zip(seen.kept, sizes, strict=True):
            mine.append(size)
        buffers = key_ranks(running.root).buffers
        if isinstance(buffers, PaperBuffers):
            for series, bound in zip(seen.predicted, equation_8(buffers), strict=True):
                series.append(bound)
        for join in running.joins:
            join.arrivals = []
    seen.accuracy = seen.results / max(1, possible(rows))
    return seen


def between(made: Sequence[Scrambled], rows: Rows, seconds: float) -> list[pa.RecordBatch]:
    """S7 and S8: results of the two joins, each at the time of its batch."""
    out = []
    for first in (0, 3):
        join, at, keys = wo_leaf(made, first), [], []
        for number, batches in enumerate(steps(join.query.streams, rows[first : first + 3], seconds, 1.0)):
            for table in join.step(batches):
                keys.append(table["epoch"].to_numpy())
                at.append(np.full(table.num_rows, number * 1_000_000, np.int64))
            join.arrivals = []
        out.append(pa.record_batch([np.concatenate(at), np.concatenate(keys)], names=["at", "epoch"]))
    return out


def wo_leaf(made: Sequence[Scrambled], first: int) -> RunningMultiway:
    given = tuple(s.scrambling for s in made[first : first + 3])
    return WOJoin(scrambling=given).start(JoinQuery(specs(3, first)))


# ---------------------------------------------------------------- fixed windows


def fixed(rows: Rows, size: int, seconds: float) -> Watched:
    """The join with buffers of so many tuples of each stream, the last ones to arrive."""
    return watch(windowed(len(rows), RowsWindow(size)), rows, seconds)


def as_accurate(rows: Rows, accuracy: float, start: int, seconds: float) -> int:
    """The least size of fixed buffers, to a fiftieth, that finds as many results."""
    low, high, all_ = start, 2 * start, max(r.num_rows for r in rows)
    while high < all_ and fixed(rows, high, seconds).accuracy < accuracy:
        low, high = high, 2 * high
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        if fixed(rows, middle, seconds).accuracy < accuracy:
            low = middle
        else:
            high = middle
    return high


def latency(join: RunningMultiway, rows: Rows, seconds: float, batch: float) -> tuple[float, Found]:
    found = watch(join, rows, seconds, batch)
    return found.latency, {"results": found.results, "accuracy": found.accuracy}


def by_arrival(seconds: float) -> Window:
    return TimeWindow(round(seconds * 1e6))
