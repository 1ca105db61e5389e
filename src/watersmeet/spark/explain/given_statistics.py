"""Statistics of a join's streams, for a new plan: given, measured by a query, read from its checkpoint, or sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from watersmeet.cost.measured_parameters import RATE, measured, measured_stream
from watersmeet.cost.parameters import Statistics
from watersmeet.errors import QueryError
from watersmeet.model.batches import NO_TIME, micros
from watersmeet.optimizer.plan import PlanStatistics
from watersmeet.spark.checkpoints.checkpoint_folder import lack
from watersmeet.spark.checkpoints.file_system import reached
from watersmeet.spark.explain.analysis import Analysis
from watersmeet.spark.planning.arguments import kind_of
from watersmeet.spark.planning.plan_join import assumed_of, assumed_statistics
from watersmeet.spark.progress.shard_statistics import merged
from watersmeet.spark.runtime.output_columns import quoted
from watersmeet.spark.runtime.spark_versions import arrow_schema, state_source
from watersmeet.state.durable.log import Header
from watersmeet.state.keys import encode_key, one_key
from watersmeet.state.statistics.stream import StreamStatistics

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined

#: Statistics that a user may give, and their names in `Statistics`.
GIVEN = {
    "rate": "rate",
    "keys": "distinct",
    "closed_keys": "punctuation_rate",
    "row_bytes": "row_bytes",
    "tuples": "tuples",
    "hottest": "hottest",
}
#: Rows of a stream that a sample looks at.
SAMPLED = 100_000

#: Statistics of each stream by its name, a static DataFrame with some of its rows, a checkpoint's folder, or "sample".
GivenStatistics = Mapping[str, Mapping[str, float] | DataFrame] | str | Path


def statistics_of(joined: Joined, analysis: Analysis | None, given: GivenStatistics | None) -> PlanStatistics | None:
    """Statistics of the streams of a join; None if nothing is given or measured."""
    if given is not None:
        return _given(joined, given)
    shards = analysis.statistics() if analysis is not None else None
    if shards is None:
        return None
    p = assumed_statistics(joined.query, joined.streams).parameters
    streams = tuple(merged(s, each) for s, each in zip(p.streams, zip(*shards, strict=True), strict=True))
    return PlanStatistics(replace(p, streams=streams), "measured", "measured by the query")


def _given(joined: Joined, statistics: GivenStatistics) -> PlanStatistics:
    if isinstance(statistics, Mapping):
        return _by_stream(joined, statistics)
    if statistics == "sample":
        if joined.streaming:
            raise QueryError(
                '`statistics` is "sample", and the streams are streaming; only static rows can be looked at twice.',
                hint='give a static DataFrame for each stream: statistics={"a": spark.read.parquet("…")}.',
            )
        sampled = [_sampled(joined, i, s.df) for i, s in enumerate(joined.streams)]
        return PlanStatistics(
            measured(joined.query, sampled), "sampled", f"sampled from {SAMPLED:,} rows of a stream at most"
        )
    if not isinstance(statistics, str | Path):
        raise QueryError(
            f"`statistics` is {kind_of(statistics)}; they are given by stream, or by the folder of a checkpoint.",
            hint='statistics={"a": {"rate": 500, "keys": 2000}}, "sample", or a checkpoint.',
        )
    return _from_checkpoint(joined, str(statistics))


def _by_stream(joined: Joined, statistics: Mapping[str, Mapping[str, float] | DataFrame]) -> PlanStatistics:
    p, names = assumed_statistics(joined.query, joined.streams).parameters, [s.name for s in joined.streams]
    unknown = [name for name in statistics if name not in names]
    if unknown:
        raise QueryError(
            f"`statistics` are of `{unknown[0]}`, and the streams are {', '.join(names)}.", hint="name the streams."
        )
    each = list(p.streams)
    for i, name in enumerate(names):
        about = statistics.get(name, {})
        if isinstance(about, DataFrame):
            each[i] = measured_stream(joined.query.streams[i], _sampled(joined, i, about))
            continue
        strange = [s for s in about if s not in GIVEN]
        if strange:
            raise QueryError(
                f"`statistics` of stream `{name}` have `{strange[0]}`, which is no statistic of a stream.",
                hint=f"statistics are {', '.join(GIVEN)}: rows, keys closed in a second, keys in a window, …",
            )
        begun = assumed_of(joined.query, joined.streams, i, float(about.get("rate", RATE)))
        changed: dict[str, Any] = {GIVEN[s]: float(value) for s, value in about.items()}
        each[i] = replace(begun, **changed)
    rest = [name for name in names if name not in statistics]
    text = "as given" + (f"; assumed for {', '.join(rest)}" if rest else "")
    return PlanStatistics(replace(p, streams=tuple(each)), "given", text)


def _sampled(joined: Joined, i: int, df: DataFrame) -> StreamStatistics:
    """Statistics of a stream from its first rows, as they stand in a static DataFrame."""
    spec = joined.query.streams[i]
    columns = list(dict.fromkeys([spec.time, *spec.key]))
    rows = df.select(*map(quoted, columns)).limit(SAMPLED).toArrow().combine_chunks()
    times = micros(rows.column(spec.time).combine_chunks())
    keyed = [rows.column(k).combine_chunks() for k in spec.key]
    keys = encode_key(keyed, spec.null_safe) if keyed else one_key(rows.num_rows)
    which = np.flatnonzero(keys.valid & (times != NO_TIME))
    found = StreamStatistics(spec.window.reach, spec.delay)
    order = which[np.argsort(times[which], kind="stable")]
    width = sum(f.type.bit_width / 8 if _fixed(f.type) else 32 for f in arrow_schema(df.schema))
    for part in np.array_split(order, 64):  # as if they came one after the other
        found.observe(times, keys.words, part, round(width * part.size))
    return found


def _fixed(kind: Any) -> bool:
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


def _from_checkpoint(joined: Joined, checkpoint: str) -> PlanStatistics:
    """The statistics stored in the state of a query, running or stopped."""
    for header_rows in _headers(joined, checkpoint):
        headers = [Header.unpack(bytes(row)) for row in header_rows]
        names = [s["name"] for s in headers[0].query["streams"]]
        metadata = [h.metadata.get("collector_metadata", {}) for h in headers]
        if names != [s.name for s in joined.streams] or not all("streams" in shard for shard in metadata):
            continue
        by_stream = zip(*(shard["streams"] for shard in metadata), strict=True)
        streams = [StreamStatistics.merge([_from_metadata(n) for n in each]) for each in by_stream]
        p = measured(joined.query, streams)
        stays = [_stay([shard["stays"][i] for shard in metadata]) for i in range(len(names))]
        each = tuple(_with_stay(s, stay) for s, stay in zip(p.streams, stays, strict=True))
        return PlanStatistics(replace(p, streams=each), "stored", f"stored in the state, {headers[0].batches} batches")
    raise QueryError(
        f"`statistics` is {checkpoint}; no state there has statistics of {', '.join(s.name for s in joined.streams)}.",
        hint="give the checkpoint folder of a query over this join that has run a batch.",
    )


def _headers(joined: Joined, checkpoint: str) -> Any:
    """The headers of all shards, of one stateful operator of the query after the other."""
    spark = joined.streams[0].df.sparkSession
    for operator in count():
        reader = state_source(spark).option("path", checkpoint).option("operatorId", operator)
        try:
            rows = reader.option("stateVarName", "header").load().select("value.data").collect()
        except PySparkException as error:
            if operator:
                return
            wrong = lack(reached(spark, checkpoint))
            why = "" if wrong is None else f": it {wrong.what}"
            raise QueryError(
                f"`statistics` is {checkpoint}, where no state of a query can be read{why}.",
                hint="give them by stream, or the checkpoint folder of a query that has run a batch.",
            ) from error
        if rows:
            yield [row["data"] for row in rows]


def _from_metadata(metadata: dict[str, Any]) -> StreamStatistics:
    found = StreamStatistics(metadata["reach"], metadata["delay"])
    found.load_metadata(metadata)
    return found


def _stay(shards: Sequence[Sequence[float]]) -> float | None:
    stored, came = (sum(s[k] for s in shards) for k in (0, 1))
    return stored / came if came else None


def _with_stay(s: Statistics, stay: float | None) -> Statistics:
    return replace(s, stay=stay) if stay is not None else s
