"""The tables of hot keys of a query: decided on the driver before each batch, from the reports of the one before.

Spark calls the function of `foreachBatch` in the thread of the query, before it runs the batch: there the table is put
in force. The reports of the batch before are complete by then. Where they are not there, the table stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.model.queries import JoinQuery
from watersmeet.spark.joined import Joined
from watersmeet.spark.progress.summary import BatchSummary
from watersmeet.spark.runtime.spark_versions import reads_states
from watersmeet.spark.runtime.table_in_force import put_in_force
from watersmeet.state.durable.log import Header
from watersmeet.state.hot_keys.phases import HOT_KEYS, Phase, Reached, Table, as_json, from_json, may_split
from watersmeet.state.hot_keys.rule import Decision, Load, Rule

#: The rule by which keys are split and merged.
RULE = Rule()


class HasShards(Protocol):
    """A join as the tables see it."""

    @property
    def query(self) -> JoinQuery: ...

    @property
    def ids(self) -> tuple[int, ...]: ...


class HotKeyTables:
    """The table of each batch. The first one is that of the state; without `splits` all keys of it are merged."""

    def __init__(self, joined: HasShards, headers: Sequence[Header], *, splits: bool = True) -> None:
        query = joined.query
        self.table: Table = next(
            (from_json(h.metadata.get(HOT_KEYS, [])) for h in headers if h.digest == query.digest()), {}
        )
        self.names = [s.name for s in query.streams]
        self.decision = Decision(len(joined.ids), may_split(query) if splits else (), RULE)
        self.run: StreamingQuery | None = None

    def before(self, batch: DataFrame, number: int) -> None:
        """Put the table of a batch in force; it has not run yet."""
        progress = None if self.run is None else self.run.lastProgress
        if progress is not None and progress.batchId == number - 1:
            self.follow(BatchSummary.of(progress, streams=self.names))
        put_in_force(batch.sparkSession, self.table)

    def follow(self, batch: BatchSummary | None) -> None:
        """Decide the next table by the reports of the last batch, if they are about its table."""
        reports: list[dict[str, Any]] = [] if batch is None else [s[HOT_KEYS] for s in batch.shards if HOT_KEYS in s]
        if not reports or reports[0]["table"] != as_json(self.table):
            return
        assert batch is not None, "it has reports"
        reached = Reached(tuple(reports[0]["newest"]), tuple(reports[0]["alive_from"]))
        self.table = self.decision.next(self.table, reached, self._loads(reports), batch.count("rows_in"))

    def _loads(self, reports: Sequence[dict[str, Any]]) -> dict[int, Load]:
        """Rows of keys, summed over the shards. Of a key that is spread the shards that are not listed have as many."""
        counted: dict[int, tuple[str, int, int]] = {}
        for word, key, a, b in (load for report in reports for load in report["loads"]):
            _, more_a, more_b = counted.get(word, (key, 0, 0))
            counted[word] = (key, a + more_a, b + more_b)
        share = len(reports) / self.decision.shards
        loads = {}
        for word, (key, *rows) in counted.items():
            hot = self.table.get(word)
            if hot is not None and hot.phase == Phase.SPREAD:
                rows[hot.spread] = round(rows[hot.spread] / share)
            loads[word] = Load(key, (rows[0], rows[1]))
        return loads


def tables_for(joined: Any, headers: Sequence[Header], *, splits: bool) -> HotKeyTables | None:
    """The tables of a query; None where no key may be split: in other operators, over Connect, and on Spark 4.0."""
    if not isinstance(joined, Joined) or not joined.splits:
        return None
    spark = joined.streams[0].df.sparkSession
    if not reads_states(spark) or not hasattr(spark, "_jsparkSession"):
        return None
    tables = HotKeyTables(joined, headers, splits=splits)
    return tables if splits or tables.table else None
