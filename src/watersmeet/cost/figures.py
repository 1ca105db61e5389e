"""Figures of a query's streams: as measured, or as assumed where nothing is known yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.model.punctuations import Unique
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.state.statistics import SECOND, StreamStatistics

#: What is assumed of a stream: tuples per second, and partners that a key has in a window.
RATE, PER_KEY_TUPLES = 1000.0, 4.0
#: Bytes that the lists take for a tuple, and that are assumed of a value of no fixed length.
LIST_BYTES, VALUE_BYTES = 40, 32


def assumed(query: JoinQuery, interval: float = 1.0) -> Parameters:
    """Parameters of a query of which nothing has been measured: all streams alike but for windows and widths."""
    return Parameters(tuple(assumed_stream(s) for s in query.streams), interval=interval)


def assumed_stream(spec: StreamSpec, rate: float = RATE) -> Statistics:
    """Figures of a stream of which nothing is known but, perhaps, its rate."""
    return _counted(spec, _assumed(spec, rate))


def measured(query: JoinQuery, streams: Sequence[StreamStatistics], interval: float = 1.0) -> Parameters:
    """Parameters of a query from the statistics of its streams (`StreamStatistics.merge` of their shards).

    A stream that has shown nothing yet has the rate 0 and else what is assumed.
    """
    each = [measured_stream(spec, s) for spec, s in zip(query.streams, streams, strict=True)]
    elapsed = max((s.elapsed for s in streams), default=0.0)
    return Parameters(tuple(each), interval=interval, elapsed=elapsed or math.inf)


def measured_stream(spec: StreamSpec, s: StreamStatistics) -> Statistics:
    """Figures of one stream from its statistics."""
    return _counted(spec, _measured(spec, s))


def row_bytes(schema: pa.Schema) -> float:
    """Bytes of a stored tuple with these columns."""
    return float(LIST_BYTES + sum(_width(f.type) for f in schema))


def _measured(spec: StreamSpec, s: StreamStatistics) -> Statistics:
    assumed = _assumed(spec)
    if not s.rows:
        return replace(assumed, rate=0.0, tuples=0.0, keys_seen=1.0)
    return replace(
        assumed,
        rate=s.rate,
        distinct=max(s.distinct, 1.0),
        row_bytes=LIST_BYTES + s.row_bytes,
        punctuation_rate=s.punctuation_rate + _promised(spec, s),
        tuples=s.tuples,
        keys_seen=max(s.keys_seen, 1.0),
        hottest=max((share for _, share in s.hot.hottest(1)), default=0.0),
    )


def _promised(spec: StreamSpec, s: StreamStatistics) -> float:
    """Keys per second that a stream closes by what is known of it: each once, when the next one comes."""
    return s.keys_seen / s.elapsed if spec.promises and s.elapsed else 0.0


def _counted(spec: StreamSpec, s: Statistics) -> Statistics:
    """The same, where the window is one of rows: it holds no more than those."""
    if not isinstance(spec.window, RowsWindow):
        return s
    most = spec.window.rows * (s.distinct if spec.window.per_key else 1.0)
    tuples = most if s.tuples is None else min(s.tuples, most)
    return replace(s, tuples=tuples, distinct=max(min(s.distinct, tuples), 1.0))


def _assumed(spec: StreamSpec, rate: float = RATE) -> Statistics:
    window = spec.window.length / SECOND if isinstance(spec.window, TimeWindow) else math.inf
    keys = rate * (window if math.isfinite(window) else 60.0) / PER_KEY_TUPLES
    unique = any(isinstance(p, Unique) for p in spec.promises)
    return Statistics(
        spec.name,
        rate=rate,
        window=window,
        distinct=max(keys, 1.0),
        delay=spec.delay / SECOND,
        punctuation_rate=rate if unique else rate / PER_KEY_TUPLES if spec.promises else 0.0,
        row_bytes=row_bytes(spec.schema),
    )


def _width(kind: pa.DataType) -> float:
    try:
        return float(kind.bit_width / 8)
    except ValueError:  # no fixed width
        return VALUE_BYTES
