"""Figures of a join's streams, for plans: given, measured by a query, read from its checkpoint, sampled, or assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from watersmeet.cost.figures import PER_KEY_TUPLES, RATE, assumed, assumed_stream, measured, measured_stream
from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.errors import QueryError
from watersmeet.model.batches import NO_TIME, micros
from watersmeet.spark.analysis import Analysis
from watersmeet.spark.operators import quoted
from watersmeet.spark.watching import merged
from watersmeet.state.keys import encode
from watersmeet.state.log import Header
from watersmeet.state.statistics import StreamStatistics

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined

#: Figures that a user may give, and what they are called here.
GIVEN = {
    "rate": "rate",
    "keys": "distinct",
    "closings": "punctuation_rate",
    "row_bytes": "row_bytes",
    "tuples": "tuples",
    "hottest": "hottest",
}
#: Rows of a stream that a sample looks at.
SAMPLED = 100_000

#: Figures of each stream by its name, a static DataFrame with some of its rows, a checkpoint's folder, or "sample".
Given = Mapping[str, Mapping[str, float] | DataFrame] | str | Path


@dataclass(frozen=True)
class Known:
    """Figures, and where they come from: in a word, and in a sentence."""

    parameters: Parameters
    source: str
    text: str


def known(joined: Joined, analysis: Analysis | None, statistics: Given | None) -> Known:
    """What is known of the streams of a join."""
    if statistics is not None:
        return _given(joined, statistics)
    said = analysis.figures() if analysis is not None else None
    if said is None:
        text = f"nothing is measured yet; assumed are {RATE:,.0f} rows a second of each stream and "
        return Known(_assumed(joined), "assumed", f"{text}{PER_KEY_TUPLES:.0f} rows of a key in a window")
    p = _assumed(joined)
    streams = tuple(merged(s, each) for s, each in zip(p.streams, zip(*said, strict=True), strict=True))
    return Known(replace(p, streams=streams), "measured", "measured by the query")


def _assumed(joined: Joined) -> Parameters:
    """As of a query, and that streams with punctuations close their keys."""
    specs = joined.query.streams
    return replace(assumed(joined.query), streams=tuple(_guessed(joined, i, RATE) for i in range(len(specs))))


def _guessed(joined: Joined, i: int, rate: float) -> Statistics:
    s = assumed_stream(joined.query.streams[i], rate)
    stream = joined.streams[i]  # the output of a join can close keys, and mostly has none to close
    closes = stream.upstream is None and any(sign.kind in ("value", "list", "range") for sign in stream.signs)
    return replace(s, punctuation_rate=rate / PER_KEY_TUPLES) if closes and not s.punctuation_rate else s


def _given(joined: Joined, statistics: Given) -> Known:
    if isinstance(statistics, Mapping):
        return _told(joined, statistics)
    if statistics == "sample":
        if joined.streaming:
            raise QueryError(
                '`statistics` is "sample", and the streams are streaming; only static rows can be looked at twice.',
                hint='give a static DataFrame for each stream: statistics={"a": spark.read.parquet("…")}.',
            )
        sampled = [_sampled(joined, i, s.df) for i, s in enumerate(joined.streams)]
        return Known(measured(joined.query, sampled), "sampled", f"sampled from {SAMPLED:,} rows of a stream at most")
    return _remembered(joined, str(statistics))


def _told(joined: Joined, statistics: Mapping[str, Mapping[str, float] | DataFrame]) -> Known:
    p, names = _assumed(joined), [s.name for s in joined.streams]
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
        strange = [figure for figure in about if figure not in GIVEN]
        if strange:
            raise QueryError(
                f"`statistics` of stream `{name}` have `{strange[0]}`, which is no figure of a stream.",
                hint=f"figures are {', '.join(GIVEN)}: rows, keys closed in a second, keys in a window, …",
            )
        begun = _guessed(joined, i, float(about.get("rate", RATE)))
        changed: dict[str, Any] = {GIVEN[figure]: float(value) for figure, value in about.items()}
        each[i] = replace(begun, **changed)
    rest = [name for name in names if name not in statistics]
    text = "as given" + (f"; assumed for {', '.join(rest)}" if rest else "")
    return Known(replace(p, streams=tuple(each)), "given", text)


def _sampled(joined: Joined, i: int, df: DataFrame) -> StreamStatistics:
    """Statistics of a stream from its first rows, as they stand in a static DataFrame."""
    spec = joined.query.streams[i]
    columns = list(dict.fromkeys([spec.time, *spec.key]))
    rows = df.select(*map(quoted, columns)).limit(SAMPLED).toArrow().combine_chunks()
    times = micros(rows.column(spec.time).combine_chunks())
    keys = encode([rows.column(k).combine_chunks() for k in spec.key])
    which = np.flatnonzero(keys.valid & (times != NO_TIME))
    found = StreamStatistics(spec.window.reach, spec.delay)
    order = which[np.argsort(times[which], kind="stable")]
    width = sum(f.type.bit_width / 8 if _fixed(f.type) else 32 for f in to_arrow_schema(df.schema, timezone="UTC"))
    for part in np.array_split(order, 64):  # as if they came one after the other
        found.observe(times, keys.words, part, round(width * part.size))
    return found


def _fixed(kind: Any) -> bool:
    try:
        return bool(kind.bit_width)
    except ValueError:
        return False


def _remembered(joined: Joined, checkpoint: str) -> Known:
    """What the state of a query, running or not, remembers of the streams."""
    for header_rows in _headers(joined, checkpoint):
        headers = [Header.unpack(bytes(row)) for row in header_rows]
        names = [s["name"] for s in headers[0].query["streams"]]
        notes = [h.notes.get("remarks", {}) for h in headers]
        if names != [s.name for s in joined.streams] or not all("streams" in note for note in notes):
            continue
        by_stream = zip(*(note["streams"] for note in notes), strict=True)
        streams = [StreamStatistics.merge([_recalled(n) for n in each]) for each in by_stream]
        p = measured(joined.query, streams)
        stays = [_stay([note["stays"][i] for note in notes]) for i in range(len(names))]
        each = tuple(_with_stay(s, stay) for s, stay in zip(p.streams, stays, strict=True))
        return Known(replace(p, streams=each), "remembered", f"remembered in the state, {headers[0].batches} batches")
    raise QueryError(
        f"`statistics` is {checkpoint}; no state there remembers figures of "
        f"{', '.join(s.name for s in joined.streams)}.",
        hint="give the checkpoint folder of a query over this join that has run a batch.",
    )


def _headers(joined: Joined, checkpoint: str) -> Any:
    """The headers of all shards, of one stateful operator of the query after the other."""
    spark = joined.streams[0].df.sparkSession
    for operator in count():
        reader = spark.read.format("statestore").option("path", checkpoint).option("operatorId", operator)
        try:
            rows = reader.option("stateVarName", "header").load().select("value.data").collect()
        except PySparkException as error:
            if operator:
                return
            raise QueryError(
                f"`statistics` is {checkpoint}, where no state of a query can be read.",
                hint="give figures by stream, or the checkpoint folder of a query that has run a batch.",
            ) from error
        if rows:
            yield [row["data"] for row in rows]


def _recalled(note: dict[str, Any]) -> StreamStatistics:
    found = StreamStatistics(note["reach"], note["delay"])
    found.recall(note)
    return found


def _stay(shards: Sequence[Sequence[float]]) -> float | None:
    stored, came = (sum(s[k] for s in shards) for k in (0, 1))
    return stored / came if came else None


def _with_stay(s: Statistics, stay: float | None) -> Statistics:
    return replace(s, stay=stay) if stay is not None else s
