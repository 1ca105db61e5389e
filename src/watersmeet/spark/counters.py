"""The work of a query as its progress tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Name of the observed metrics in a query's progress, and of the one field they have: what each shard said.
METRICS, SHARDS = "watersmeet", "shards"


def counters(progress: StreamingQueryProgress | Mapping[str, Any], *, metrics: str = METRICS) -> dict[str, Any]:
    """Counters of one batch, summed over the shards: rows_in, results, late, stored, state_bytes and so on.

    Of a join without windows `too_late` counts rows that came when something they match may have been forgotten; of
    each shard `scrambling` tells by how many rows each stream may come behind, and where a delay is measured `delays`
    tells it in microseconds. `worker_bytes` is the most memory that a Python worker of these shards has ever used.

    `progress` is what `query.recentProgress`, `query.lastProgress` or a listener's event gives. The field
    `predicted` has what the cost models say of some of them (state after the batch, work of the batch), from the
    streams' figures so far; `shards` has the counters of each shard. A batch without them (no shard was called) gives
    an empty dictionary.
    """
    told = progress["observedMetrics"] if isinstance(progress, Mapping) else progress.observedMetrics
    return summed([json.loads(note) for note in _notes(told.get(metrics))])


def _notes(said: Row | Mapping[str, Any] | None) -> list[str]:
    """What each shard said, of what was observed."""
    if said is None:
        return []
    fields = said if isinstance(said, Mapping) else said.asDict()
    notes = fields[SHARDS] if SHARDS in fields else fields["values"][0]  # over Spark Connect a row has lost its names
    return notes or []


def summed(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """The same from what each shard said of one batch."""
    if not shards:
        return {}
    names = dict.fromkeys(name for s in shards for name, value in s.items() if type(value) is int)
    sums: dict[str, Any] = {name: sum(s.get(name, 0) for s in shards) for name in names}
    del sums["shard"]  # and a shard without results emitted nothing
    for name in ("idle", "worker_bytes"):  # of streams and of processes, not of shards
        sums[name] = max(s.get(name, 0) for s in shards)
    foretold = [s["predicted"] for s in shards if s.get("predicted")]
    if len(foretold) == len(shards):
        known = set.intersection(*map(set, foretold))
        sums["predicted"] = {name: sum(f[name] for f in foretold) for name in foretold[0] if name in known}
    return sums | {SHARDS: sorted(shards, key=lambda s: int(s["shard"]))}


def observed(kind: str, stats: int, note: str) -> Column:
    """What is observed: one aggregate over all rows, because every one is asked about every result.

    An `if`, because a CASE goes through a list of its branches, for every result.
    """
    return F.collect_list(F.expr(f"if(`{kind}` = {stats}, `{note}`, NULL)")).alias(SHARDS)
