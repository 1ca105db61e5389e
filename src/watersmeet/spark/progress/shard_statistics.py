"""Statistics of a shard's streams, batch by batch, and the predictions that follow from them.

The statistics are stored with the join's metadata: a restart, or an explanation from a checkpoint, goes on with them.
Join orders and predicted costs depend on them; results do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from watersmeet.cost import memory
from watersmeet.cost.machine import here
from watersmeet.cost.measured_parameters import measured
from watersmeet.cost.options import cost_of_join
from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.errors import QueryError
from watersmeet.joins import Join, Operator
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.group_by.operator import GroupedJoin, RunningGroupedJoin
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.model.batches import Batch
from watersmeet.spark.progress.adaptive_order import FixedOrder, FollowedOrder, order_of
from watersmeet.state.statistics.stream import SECOND, StreamStatistics
from watersmeet.state.value_lists import ValueLists

#: The weight of earlier batches in the measured stay of a tuple.
FADING = 0.8
#: Statistics of a shard of which the sum over all shards is that of the whole stream.
SUMS = ("rate", "distinct", "window_tuples", "punctuation_rate", "set_size")


class Watch:
    """Statistics of a shard's streams, the order that follows from them, and predictions to compare with counters."""

    def __init__(self, join: Join[Any], running: RunningJoin[Any], order: FixedOrder | FollowedOrder | None) -> None:
        self.join, self.running, self.order = join, running, order
        known = running.collector_metadata
        self.streams = [StreamStatistics(s.window.reach, s.delay) for s in running.query.streams]
        for stream, metadata in zip(self.streams, known.get("streams", ()), strict=False):
            stream.load_metadata(metadata)
        self.stays = [list(s) for s in known.get("stays", [[0.0, 0.0]] * len(self.streams))]

    def after(self, batch: int, batches: Sequence[Batch]) -> dict[str, Any]:
        """Observe a batch; gives statistics, predictions and order for the shard's report."""
        before = max(s.newest for s in self.streams), any(s.rows for s in self.streams)
        self._observe(batches)
        p = self.statistics()
        own = (_as_dict(s) for s in p.streams)  # those of copied rows are in the first shard's report
        copies = [self.running.copied(i) for i in range(len(p.streams))]
        report: dict[str, Any] = {
            "statistics": [s | dict.fromkeys(SUMS, 0.0) if copy else s for s, copy in zip(own, copies, strict=True)]
        }
        advance = (max(s.newest for s in self.streams) - before[0]) / SECOND if before[1] else 0.0
        report |= self._predictions(replace(p, interval=advance or p.interval), advance)
        self._stored(p)
        metadata: dict[str, Any] = {}
        if self.order:
            report |= self.order.after(batch, p)
            metadata = self.order.metadata()
        self.running.collector_metadata = {
            "streams": [s.metadata() for s in self.streams],
            "stays": self.stays,
        } | metadata
        return report

    def _observe(self, batches: Sequence[Batch]) -> None:
        for stream, batch, arrivals in zip(self.streams, batches, self.running.arrivals, strict=False):
            share = arrivals.which.size / max(1, arrivals.rows.num_rows)
            closed = 0 if batch.punctuations is None else batch.punctuations.keys.num_rows
            size = round(arrivals.rows.nbytes * share)
            stream.observe(arrivals.times, arrivals.keys.words, arrivals.which, size, batch.seen, closed)

    def statistics(self) -> Parameters:
        """The measured statistics. The stay of a tuple is that of earlier batches, to predict this one from it."""
        p = measured(self.running.query, self.streams)
        if not self.join.algorithm.uses_punctuations:
            return p
        each = []
        for i, (s, (stored, came)) in enumerate(zip(p.streams, self.stays, strict=True)):
            lists = self.running.streams[i].lists
            if isinstance(lists, ValueLists):
                s = replace(s, set_size=float(lists.closed_keys))
            seen = came and memory.closed_rate(p, i)
            each.append(replace(s, stay=stored / came) if seen else s)
        return replace(p, streams=tuple(each))

    def _stored(self, p: Parameters) -> None:
        n = len(self.streams)
        for i, (stay, s) in enumerate(zip(self.stays, p.streams, strict=True)):
            stored = sum(len(state) for k, state in enumerate(self.running.streams) if k % n == i)
            stay[:] = [FADING * stay[0] + stored, FADING * stay[1] + s.rate]

    def _predictions(self, p: Parameters, advance: float) -> dict[str, Any]:
        """Predictions of the state after this batch and, if its length in time is known, of its work.

        `expected` are tuples and bytes of each stream; `predicted` is about all of them.
        """
        order = self.running.order if isinstance(self.running, RunningMultiway) else None
        try:
            cost = cost_of_join(self.join, p, order)
        except QueryError:  # the model does not cover such streams
            return {"predicted": {}}
        predicted = {"stored": sum(cost.tuples), "state_bytes": cost.bytes}
        if advance:
            constants = here().of(self.join.name)
            work = cost.work.times(advance)
            predicted |= {"probed": work.looked_at, "results": work.results}
            predicted["join_us"] = (constants.price(work) + constants.batch) / 1000
        report: dict[str, Any] = {
            "predicted": {n: round(value) for n, value in predicted.items() if math.isfinite(value)}
        }
        if all(map(math.isfinite, cost.tuples)):
            each = zip(cost.tuples, p.streams, strict=True)
            report["expected"] = [[round(tuples), round(tuples * s.row_bytes)] for tuples, s in each]
        return report


def watch(join: Operator, running: RunningJoin[Any], *, ended: bool) -> Watch | None:
    """The shard's statistics collector; None for WO-Join and stand-alone group-by."""
    if isinstance(join, GroupedJoin) and isinstance(running, RunningGroupedJoin):
        return watch(join.join, running.join, ended=ended)
    if not isinstance(join, Join) or isinstance(join.algorithm, WOJoin):
        return None
    return Watch(join, running, order_of(join, running, ended=ended))


def _as_dict(s: Statistics) -> dict[str, float]:
    values = {name: getattr(s, name) for name in (*SUMS, "row_bytes", "hottest", "stay")}
    return {name: float(f"{value:.6g}") for name, value in values.items() if value is not None}


def merged(s: Statistics, shards: Sequence[dict[str, float]]) -> Statistics:
    """The statistics of a stream from those of its shards, among which its keys are divided."""
    sums = {name: sum(f.get(name, 0.0) for f in shards) for name in SUMS}
    rate = sums["rate"]
    stays = [f for f in shards if "stay" in f]
    weight = sum(f["rate"] for f in stays)
    return replace(
        s,
        rate=rate,
        distinct=max(sums["distinct"], 1.0),
        tuples=sums["window_tuples"],
        punctuation_rate=sums["punctuation_rate"],
        set_size=sums["set_size"],
        row_bytes=max(f["row_bytes"] for f in shards),
        hottest=max(f.get("hottest", 0.0) * f["rate"] for f in shards) / rate if rate else 0.0,
        stay=sum(f["stay"] * f["rate"] for f in stays) / weight if weight else None,
    )
