"""Statistics of a query's streams: measured, or assumed where nothing is measured yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.model.punctuations import Unique
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import Interval, RowsWindow, TimeWindow, Tumbling, Window
from watersmeet.state.statistics.stream import SECOND, StreamStatistics

#: Assumed of a stream: tuples per second, and tuples of a key in a window.
RATE, PER_KEY_TUPLES = 1000.0, 4.0
#: Bytes of a tuple in the lists, and assumed bytes of a value without a fixed length.
LIST_BYTES, VALUE_BYTES = 40, 32


def assumed(query: JoinQuery, interval: float = 1.0) -> Parameters:
    """Parameters of a query without measurements: the streams differ in their windows and widths only."""
    return Parameters(tuple(assumed_stream(s) for s in query.streams), interval=interval)


def assumed_stream(spec: StreamSpec, rate: float = RATE) -> Statistics:
    """Statistics of a stream without measurements, for an assumed or given rate."""
    return _counted(spec, _assumed(spec, rate))


def measured(query: JoinQuery, streams: Sequence[StreamStatistics], interval: float = 1.0) -> Parameters:
    """Parameters of a query from the statistics of its streams (`StreamStatistics.merge` of their shards).

    A stream without rows so far has the rate 0; its other statistics are assumed.
    """
    each = [measured_stream(spec, s) for spec, s in zip(query.streams, streams, strict=True)]
    elapsed = max((s.elapsed for s in streams), default=0.0)
    return Parameters(tuple(each), interval=interval, elapsed=elapsed or math.inf)


def measured_stream(spec: StreamSpec, s: StreamStatistics) -> Statistics:
    """Statistics of one stream for the cost models, from the measured ones."""
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
        punctuation_rate=s.punctuation_rate + _punctuated(spec, s),
        tuples=None if isinstance(spec.window, Interval | Tumbling) else s.tuples,
        keys_seen=max(s.keys_seen, 1.0),
        hottest=max((share for _, share in s.hot.hottest(1)), default=0.0),
    )


def _punctuated(spec: StreamSpec, s: StreamStatistics) -> float:
    """Keys per second that a stream closes by its constraints: each key once, when the next one comes."""
    return s.keys_seen / s.elapsed if spec.constraints and s.elapsed else 0.0


def _counted(spec: StreamSpec, s: Statistics) -> Statistics:
    """The same; a window of rows holds at most that many tuples."""
    if not isinstance(spec.window, RowsWindow):
        return s
    most = spec.window.rows * (s.distinct if spec.window.per_key else 1.0)
    tuples = most if s.tuples is None else min(s.tuples, most)
    return replace(s, tuples=tuples, distinct=max(min(s.distinct, tuples), 1.0))


def _assumed(spec: StreamSpec, rate: float = RATE) -> Statistics:
    window, wait = _lengths(spec.window)
    keys = rate * (window if math.isfinite(window) else 60.0) / PER_KEY_TUPLES
    unique = any(isinstance(p, Unique) for p in spec.constraints)
    return Statistics(
        spec.name,
        rate=rate,
        window=window,
        distinct=max(keys, 1.0),
        delay=spec.delay / SECOND,
        wait=wait,
        punctuation_rate=rate if unique else rate / PER_KEY_TUPLES if spec.constraints else 0.0,
        row_bytes=row_bytes(spec.schema),
    )


def _lengths(window: Window) -> tuple[float, float]:
    """Seconds in which arrivals of the other stream meet a tuple, and seconds before them."""
    if isinstance(window, Interval):
        met = window.upper - max(window.lower, 0)  # 0 and less: partners arrive before the tuple, in order
        return max(met, 0) / SECOND, (max(window.lower, 0) if met >= 0 else window.upper) / SECOND
    if isinstance(window, Tumbling):
        return window.length / 2 / SECOND, 0.0  # on average, to the end of the piece
    return window.length / SECOND if isinstance(window, TimeWindow) else math.inf, 0.0


def _width(kind: pa.DataType) -> float:
    try:
        return float(kind.bit_width / 8)
    except ValueError:  # no fixed width
        return VALUE_BYTES
