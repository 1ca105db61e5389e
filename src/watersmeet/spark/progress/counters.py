"""Counters of a query's batches, from its progress."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from watersmeet.errors import QueryError
from watersmeet.spark.progress.other_shards import LISTED, bounded, listed_and_others, parsed

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

#: Name of the observed metrics in a query's progress, and of their only field: the reports of the shards.
METRICS, SHARDS = "watersmeet", "shards"
#: In counters: what the shards that are not listed reported, together.
OTHERS = "others"
_numbers = count(1)


def numbered(metrics: str) -> str:
    """The name of an operator's observed metrics: a query has each name once, and may have several joins."""
    return f"{metrics}#{next(_numbers)}"


def unnumbered(name: str) -> str | None:
    """The name without its number; None if it is not a numbered name."""
    metrics, mark, number = name.rpartition("#")
    return metrics if mark and number.isdigit() and metrics.startswith(METRICS) else None


def counters(
    progress: StreamingQueryProgress | Mapping[str, Any],
    *,
    metrics: str = METRICS,
    streams: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Counters of one batch, summed over the shards: rows_in, results, late, stored, state_bytes and so on.

    For a join without windows `too_late` counts rows that came after a tuple they match may have been evicted. Of each
    shard, `scrambling` is the number of rows by which each stream may be behind and `delays` the measured delays in
    microseconds. `worker_bytes` is the most memory that a Python worker of these shards has ever used.

    `progress` is what `query.recentProgress`, `query.lastProgress` or a listener's event gives. The field
    `predicted` has the predictions of the cost models (state after the batch, work of the batch), from the
    streams' statistics so far; `shards` has the counters of each shard. Of more than 64 shards it has those of the
    slowest, 64 or as many as take 128 KiB, and the field `others` has what the others counted together, and their
    number as `shards`; sums are those of all. A batch without counters (no shard was called) gives an empty
    dictionary.

    `metrics` is the operator: "watersmeet" for joins, "watersmeet_groups" for groups that have an operator of their
    own, "watersmeet_a_b" for the join a_b before another. Observed metrics have a number behind these names
    ("watersmeet#1"); with it `metrics` is that operator alone. Several joins of a query are summed; `streams` gives the
    names of the streams of the one that is meant.
    """
    if not isinstance(progress, Mapping) and not hasattr(progress, "observedMetrics"):
        raise QueryError(
            f"`progress` is {'None' if progress is None else f'a {type(progress).__name__}'}; counters are those of a "
            "batch, and come from a progress.",
            hint="give query.lastProgress (None before the first batch), or one of query.recentProgress.",
        )
    rows = progress["observedMetrics"] if isinstance(progress, Mapping) else progress.observedMetrics
    found = [row for name, row in rows.items() if metrics in (name, unnumbered(name))]
    operators = [[json.loads(report) for report in _reports(row)] for row in found]
    if streams is not None and len(operators) > 1:
        operators = [reports for reports in operators if reports and names_of(reports[0]) == list(streams)]
    return summed([report for reports in operators for report in reports])


def names_of(shard: Mapping[str, Any]) -> list[str]:
    """Names of the streams in a shard's report."""
    return [s["name"] for s in shard.get("streams", ())]


def _reports(row: Row | Mapping[str, Any] | None) -> list[str]:
    """The reports of all shards, as JSON, from observed metrics."""
    if row is None:
        return []
    fields = row if isinstance(row, Mapping) else row.asDict()
    # over Spark Connect a row has no names of fields
    reports = fields[SHARDS] if SHARDS in fields else fields["values"][0]
    return reports or []


def summed(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The same from the reports of all shards for one batch."""
    if not found:
        return {}
    listed, others = listed_and_others(found)
    shards = listed if others is None else [*listed, others]
    names = dict.fromkeys(name for s in shards for name, value in s.items() if type(value) is int)
    sums: dict[str, Any] = {name: sum(s.get(name, 0) for s in shards) for name in names}
    for name in ("shard", SHARDS):
        sums.pop(name, None)
    for name in ("idle", "worker_bytes"):  # of streams and of processes, not of shards
        sums[name] = max(s.get(name, 0) for s in shards)
    predictions = [s["predicted"] for s in shards if s.get("predicted")]
    if len(predictions) == len(shards):
        known = set.intersection(*map(set, predictions))
        sums["predicted"] = {name: sum(p[name] for p in predictions) for name in predictions[0] if name in known}
    sums[SHARDS] = sorted(listed, key=lambda s: int(s["shard"]))
    return sums if others is None else sums | {OTHERS: others}


def observed(kind: str, stats: int, detail: str, shards: int) -> Column:
    """The observed metrics: a single aggregate, because each one is evaluated for every result.

    It is an `if`: a CASE iterates over its branches for every result. It looks first whether there is a detail, which
    results have not: to compare their kinds takes longer.
    """
    many = shards > LISTED
    report = parsed(detail) if many else f"`{detail}`"
    reports = F.collect_list(F.expr(f"if(`{detail}` IS NOT NULL AND `{kind}` = {stats}, {report}, NULL)"))
    return (bounded(reports, shards) if many else reports).alias(SHARDS)
