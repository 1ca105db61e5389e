"""What a shard of a join sees of its streams, batch by batch, and what that lets expect of the join.

The figures are remembered with the join's notes, so that a restart, or an explanation from a checkpoint, goes on with
them. They decide about orders and tell about costs; no result depends on them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from watersmeet.cost import memory
from watersmeet.cost.figures import measured
from watersmeet.cost.machine import here
from watersmeet.cost.options import cost_of_join
from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.errors import QueryError
from watersmeet.joins import JOINS, Join, listens, name_of
from watersmeet.joins.group_by import GroupedJoin, RunningGroupedJoin
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.running import RunningJoin
from watersmeet.joins.wo_join import WOJoin
from watersmeet.model.batches import Batch
from watersmeet.spark.ordering import FixedOrder, FollowedOrder, order_of
from watersmeet.state.statistics import SECOND, StreamStatistics
from watersmeet.state.value_lists import ValueLists

#: How much of what was stored in a batch counts in the next for how long a tuple stays.
FADING = 0.8
#: Figures of a shard of which the sum over all shards is that of the whole stream.
SUMS = ("rate", "distinct", "window_tuples", "punctuation_rate", "remembered")


class Watch:
    """Statistics of a shard's streams, the order that follows from them, and predictions to compare with counters."""

    def __init__(self, join: Join, running: RunningJoin[Any], order: FixedOrder | FollowedOrder | None) -> None:
        self.join, self.running, self.order = join, running, order
        known = running.remarks
        self.streams = [StreamStatistics(s.window.reach, s.delay) for s in running.query.streams]
        for stream, note in zip(self.streams, known.get("streams", ()), strict=False):
            stream.recall(note)
        self.stays = [list(s) for s in known.get("stays", [[0.0, 0.0]] * len(self.streams))]

    def after(self, batch: int, batches: Sequence[Batch]) -> dict[str, Any]:
        """Take note of a batch; what the shard says of it."""
        before = max(s.newest for s in self.streams), any(s.rows for s in self.streams)
        self._observe(batches)
        p = self.figures()
        said: dict[str, Any] = {"figures": [_said(s) for s in p.streams]}
        advance = (max(s.newest for s in self.streams) - before[0]) / SECOND if before[1] else 0.0
        said |= self._foretold(replace(p, interval=advance or p.interval), advance)
        self._stored(p)
        notes: dict[str, Any] = {}
        if self.order:
            said |= self.order.after(batch, p)
            notes = self.order.notes()
        self.running.remarks = {"streams": [s.notes() for s in self.streams], "stays": self.stays} | notes
        return said

    def _observe(self, batches: Sequence[Batch]) -> None:
        for stream, news, arrivals in zip(self.streams, batches, self.running.arrivals, strict=False):
            share = arrivals.which.size / max(1, arrivals.rows.num_rows)
            closed = 0 if news.closings is None else news.closings.keys.num_rows
            size = round(arrivals.rows.nbytes * share)
            stream.observe(arrivals.times, arrivals.keys.words, arrivals.which, size, news.seen, closed)

    def figures(self) -> Parameters:
        """As measured; the stay of a tuple is that of earlier batches, so that this one's can be foretold from it."""
        p = measured(self.running.query, self.streams)
        if not listens(self.join):
            return p
        each = []
        for i, (s, (stored, came)) in enumerate(zip(p.streams, self.stays, strict=True)):
            lists = self.running.streams[i].lists
            if isinstance(lists, ValueLists):
                s = replace(s, remembered=float(lists.closings))
            seen = came and memory.closing_rate(p, i)
            each.append(replace(s, stay=stored / came) if seen else s)
        return replace(p, streams=tuple(each))

    def _stored(self, p: Parameters) -> None:
        n = len(self.streams)
        for i, (stay, s) in enumerate(zip(self.stays, p.streams, strict=True)):
            stored = sum(len(state) for k, state in enumerate(self.running.streams) if k % n == i)
            stay[:] = [FADING * stay[0] + stored, FADING * stay[1] + s.rate]

    def _foretold(self, p: Parameters, advance: float) -> dict[str, Any]:
        """What the models say of the state after this batch and, if it is known how long it was, of its work.

        `expected` are tuples and bytes of each stream; `predicted` is about all of them.
        """
        order = self.running.order if isinstance(self.running, RunningMultiway) else None
        try:
            cost = cost_of_join(self.join, p, order)
        except QueryError:  # a model that knows nothing of such streams
            return {"predicted": {}}
        told = {"stored": sum(cost.tuples), "state_bytes": cost.bytes}
        if advance:
            constants = here().of(name_of(self.join))
            work = cost.work.times(advance)
            told |= {"probed": work.looked_at, "results": work.results}
            told["join_us"] = (constants.price(work) + constants.batch) / 1000
        said: dict[str, Any] = {"predicted": {n: round(value) for n, value in told.items() if math.isfinite(value)}}
        if all(map(math.isfinite, cost.tuples)):
            each = zip(cost.tuples, p.streams, strict=True)
            said["expected"] = [[round(tuples), round(tuples * s.row_bytes)] for tuples, s in each]
        return said


def watch(join: Join, running: RunningJoin[Any], *, ended: bool) -> Watch | None:
    """Who watches a join at work: nobody where keys, not times, say what is kept, or where groups alone are kept."""
    if isinstance(join, GroupedJoin) and isinstance(running, RunningGroupedJoin):
        return watch(join.join, running.join, ended=ended)
    if isinstance(join, WOJoin) or type(join) not in JOINS.values():
        return None
    return Watch(join, running, order_of(join, running, ended=ended))


def _said(s: Statistics) -> dict[str, float]:
    told = {name: getattr(s, name) for name in (*SUMS, "row_bytes", "hottest", "stay")}
    return {name: float(f"{value:.6g}") for name, value in told.items() if value is not None}


def merged(s: Statistics, shards: Sequence[dict[str, float]]) -> Statistics:
    """The figures of a stream from those of its shards, among which its keys are divided."""
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
        remembered=sums["remembered"],
        row_bytes=max(f["row_bytes"] for f in shards),
        hottest=max(f.get("hottest", 0.0) * f["rate"] for f in shards) / rate if rate else 0.0,
        stay=sum(f["stay"] * f["rate"] for f in stays) / weight if weight else None,
    )
