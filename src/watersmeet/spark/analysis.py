"""What a query over a join has measured: counters of its batches, found where the user says or by themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryProgress

from watersmeet.errors import QueryError
from watersmeet.spark.counters import METRICS, counters, summed
from watersmeet.spark.kinds import KIND, NOTE, STATS

#: Of a running query: its `lastProgress`, one of its `recentProgress`, or the same as a dictionary.
Progress = StreamingQueryProgress | Mapping[str, Any]
#: What `explain` may be asked to analyse: nothing, the query that runs, a query, a progress or several of them.
Analyze = Any


@dataclass(frozen=True)
class Analysis:
    """Counters of the batches that an operator has seen, first to last."""

    batches: Sequence[dict[str, Any]]

    def figures(self) -> list[list[dict[str, float]]] | None:
        """What each shard last said of the streams' figures."""
        for batch in reversed(self.batches):
            said = [s["figures"] for s in batch["shards"] if "figures" in s]
            if said:
                return said
        return None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Sums over the batches, the state after the last, and what the cost models said of them."""
        last = self.batches[-1]
        work = ("rows_in", "late", "violations", "lookups", "probed", "results", "inserted", "invalidated", "purged")
        sums = {name: sum(b.get(name, 0) for b in self.batches) for name in (*work, "groups", "join_us", "save_us")}
        state = {name: last.get(name, 0) for name in ("stored", "state_bytes", "open_groups")}
        facts: dict[str, Any] = {"batches": len(self.batches), **sums, **state}
        facts["idle"] = sum(bool(b["idle"]) for b in self.batches)
        # work of a batch is foretold when it is known how long it was, so only those batches are compared
        told = [b for b in self.batches if "join_us" in b.get("predicted", {})]
        predicted = {name: last["predicted"][name] for name in ("stored", "state_bytes") if last.get("predicted")}
        compared = {}
        for name in ("probed", "results", "join_us") if told else ():
            predicted[name] = sum(b["predicted"][name] for b in told)
            compared[name] = sum(b.get(name, 0) for b in told)
        return facts | {"predicted": predicted, "compared": compared}


def analysis(
    analyze: Analyze, rows: DataFrame, names: Sequence[str], *, streaming: bool, metrics: str = METRICS
) -> Analysis | None:
    """What is to be analysed; None if nothing is. `rows` is all that the operator of the streams `names` says."""
    if analyze is None or analyze is False:
        return None
    if analyze is True and not streaming:
        return _batches([_run(rows)])
    told = _active(rows.sparkSession, names, metrics) if analyze is True else analyze
    if hasattr(told, "recentProgress"):
        told = told.recentProgress
    several = [told] if isinstance(told, Mapping | StreamingQueryProgress) else list(told)
    return _batches([counters(progress, metrics=metrics) for progress in several])


def _batches(found: list[dict[str, Any]]) -> Analysis:
    some = [batch for batch in found if batch]
    if not some:
        raise QueryError(
            "`analyze` is a query, or a progress, that has no counters of this join; no batch has run yet.",
            hint="wait for its first batch: query.lastProgress is not None.",
        )
    return Analysis(some)


def _run(rows: DataFrame) -> dict[str, Any]:
    """Run a static join, and keep its counters only."""
    said = rows.where(F.col(KIND) == STATS).select(F.col(NOTE).alias("said")).collect()
    return summed([json.loads(row["said"]) for row in said])


def _active(spark: SparkSession, names: Sequence[str], metrics: str) -> Any:
    """The running query over these streams."""
    found = []
    for query in spark.streams.active:
        batches = (counters(progress, metrics=metrics) for progress in query.recentProgress)
        shards = next((batch["shards"] for batch in batches if batch), ())
        if any([s["name"] for s in shard.get("streams", ())] == list(names) for shard in shards):
            found.append(query)
    if len(found) != 1:
        many = f"{len(found)} queries" if found else "no query that has run a batch"
        raise QueryError(
            f"`analyze` is True, and {many} of this session joins {', '.join(names)}.",
            hint="say which: explain(analyze=query), or a progress of it, explain(analyze=query.lastProgress).",
        )
    return found[0]
