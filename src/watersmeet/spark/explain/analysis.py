"""Measurements of a query over a join: the counters of its batches."""

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
from watersmeet.spark.planning.arguments import kind_of
from watersmeet.spark.progress.counters import METRICS
from watersmeet.spark.progress.summary import BatchSummary
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, STATS

#: The `lastProgress` of a query, one of its `recentProgress`, or the same as a dictionary.
Progress = StreamingQueryProgress | Mapping[str, Any]
#: The argument `analyze`: None, False, True (the running query), a query, a progress or a list of progresses.
Analyze = Any


@dataclass(frozen=True)
class Analysis:
    """The batches of an operator, first to last."""

    batches: Sequence[BatchSummary]

    def statistics(self) -> list[list[dict[str, float]]] | None:
        """The last statistics of the streams, of each shard."""
        for batch in reversed(self.batches):
            found = [s["statistics"] for s in batch.reports if "statistics" in s]
            if found:
                return found
        return None

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Sums over the batches, the state after the last, and the predictions of the cost models."""
        last = self.batches[-1].counters
        work = ("rows_in", "late", "violations", "lookups", "probed", "results", "inserted", "expired", "purged")
        sums = {name: sum(b.count(name) for b in self.batches) for name in (*work, "groups", "join_us", "save_us")}
        state = {name: last.get(name, 0) for name in ("stored", "state_bytes", "spilled_bytes", "open_groups")}
        facts: dict[str, Any] = {"batches": len(self.batches), **sums, **state}
        facts["idle"] = sum(bool(b.count("idle")) for b in self.batches)
        # the work of a batch is predicted when its length is known, so only those batches are compared
        known = [b.counters for b in self.batches if "join_us" in b.counters.get("predicted", {})]
        predicted = {name: last["predicted"][name] for name in ("stored", "state_bytes") if last.get("predicted")}
        compared = {}
        for name in ("probed", "results", "join_us") if known else ():
            predicted[name] = sum(b["predicted"][name] for b in known)
            compared[name] = sum(b.get(name, 0) for b in known)
        return facts | {"predicted": predicted, "compared": compared}


def analysis(
    analyze: Analyze, rows: DataFrame, names: Sequence[str], *, streaming: bool, metrics: str = METRICS
) -> Analysis | None:
    """The batches to analyse; None if there is nothing to analyse. `rows` is the whole output of the operator."""
    if analyze is None or analyze is False:
        return None
    if analyze is True and not streaming:
        return _batches([_run(rows)])
    given = _active(rows.sparkSession, names, metrics) if analyze is True else analyze
    if hasattr(given, "recentProgress"):
        given = given.recentProgress
    if not isinstance(given, Mapping | StreamingQueryProgress | list | tuple):
        raise QueryError(
            f"`analyze` is {kind_of(analyze)}; it is a query, a progress, or a list of progresses.",
            hint="explain(analyze=query), or explain(analyze=query.lastProgress) after its first batch.",
        )
    several = [given] if isinstance(given, Mapping | StreamingQueryProgress) else list(given)
    return _batches([BatchSummary.of(progress, metrics=metrics, streams=names) for progress in several])


def _batches(found: list[BatchSummary | None]) -> Analysis:
    some = [batch for batch in found if batch is not None]
    if not some:
        raise QueryError(
            "`analyze` is a query, or a progress, that has no counters of this join; no batch has run yet.",
            hint="wait for its first batch: query.lastProgress is not None.",
        )
    return Analysis(some)


def _run(rows: DataFrame) -> BatchSummary | None:
    """Run a static join, and keep its counters only."""
    shards = rows.where(F.col(KIND) == STATS).select(DETAIL).collect()
    return BatchSummary.of_shards([json.loads(row[DETAIL]) for row in shards])


def _active(spark: SparkSession, names: Sequence[str], metrics: str) -> Any:
    """The running query over these streams."""
    found = []
    for query in spark.streams.active:
        batches = (BatchSummary.of(progress, metrics=metrics, streams=names) for progress in query.recentProgress)
        first = next((batch for batch in batches if batch is not None), None)
        if first is not None and first.streams == list(names):
            found.append(query)
    if len(found) != 1:
        many = f"{len(found)} queries" if found else "no query that has run a batch"
        raise QueryError(
            f"`analyze` is True, and {many} of this session joins {', '.join(names)}.",
            hint="say which: explain(analyze=query), or a progress of it, explain(analyze=query.lastProgress).",
        )
    return found[0]
