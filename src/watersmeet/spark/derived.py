"""`joined.as_stream()`: the output of a join as the input of a further one, its promises carried along.

Results are tuples with the event time of their newest part. A finished key is a closing; it is effective at once,
after the rows of its batch. A range that a shard has finished is about that shard's keys, so it goes to the same shard
of the further join, and only where that joins on the same key. Progress comes by heartbeats alone: the least of what
all shards say in a batch. Late and violating rows pass through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from watersmeet.errors import ColumnError
from watersmeet.model.windows import RowsWindow
from watersmeet.spark import operators
from watersmeet.spark.counters import METRICS
from watersmeet.spark.kinds import KIND, NOTE, PUNCTUATION, RESULT, STATS
from watersmeet.spark.punctuations import Sign
from watersmeet.spark.streams import Stream, Upstream, parse_window

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined

TIME = "event_time"


def as_stream(joined: Joined, name: str | None, window: str | RowsWindow | int | None, time: str = TIME) -> Stream:
    """See `Joined.as_stream`."""
    query = joined.query
    if time in query.schema.names:
        raise ColumnError(
            f"`as_stream` adds the column `{time}`, and the results have one already.",
            hint=f'rename it before the join: df.withColumnRenamed("{time}", "…").',
        )
    name = name or "_".join(s.name for s in joined.streams)
    rows = joined._run(f"{METRICS}_{name}").where(F.col(KIND) != STATS)
    times = [operators.quoted(s.time) for s in query.streams if s.time in query.schema.names]
    now = F.greatest(*times) if len(times) > 1 else times[0]
    df = rows.select("*", F.when(F.col(KIND) == RESULT, now).alias(time))
    upstream = Upstream(query.streams[0].key, joined.ids)
    length = window if isinstance(window, int) else parse_window(window)
    hidden = (KIND, NOTE, *joined.hidden)
    return Stream(df, name, time, length, 0, _signs(joined), hidden=hidden, upstream=upstream)


def _signs(joined: Joined) -> tuple[Sign, ...]:
    key = joined.query.streams[0].key
    schema = {f.name: f.dataType for f in joined._columns}
    values = [_said(f"key[{n}]") for n in range(len(key))]
    parts = [F.unbase64(v) if isinstance(schema[k], BinaryType) else v for k, v in zip(key, values, strict=True)]
    below = _said("range.below")
    return (
        Sign("value", _tells("key"), tuple(parts)),
        Sign("range", _tells("range") & below.isNull(), (_said("range.low"), _said("range.high"))),
        Sign("range", below.isNotNull(), (_said("range.low"), below), high_closed=False),
        Sign("heartbeat", _tells("heartbeat"), (F.timestamp_micros(_said("heartbeat").cast("bigint")),)),
        Sign("end", _tells("end")),
    )


def _said(path: str) -> Column:
    return F.get_json_object(NOTE, f"$.row.{path}")


def _tells(path: str) -> Column:
    return (F.col(KIND) == PUNCTUATION) & _said(path).isNotNull()
