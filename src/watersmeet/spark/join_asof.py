"""`wm.join_asof`: each row of one stream with the nearest row of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from watersmeet.errors import QueryError
from watersmeet.model import durations
from watersmeet.model.asof import AsOf
from watersmeet.model.durations import Duration
from watersmeet.model.queries import join_kind
from watersmeet.spark.joined import Joined, JoinRequest, one_operator, repeatable
from watersmeet.spark.planning import column_equalities, equalities
from watersmeet.spark.planning.arguments import require_bool, require_list, require_streams, require_text
from watersmeet.spark.planning.columns import RESERVED, ignores_case, require
from watersmeet.spark.planning.equalities import Equal
from watersmeet.spark.planning.spark_words import refuses_in_sentences
from watersmeet.spark.planning.stream_kinds import refuse_two_kinds_of_time
from watersmeet.spark.planning.wo_join_options import memory_bytes
from watersmeet.spark.streams import Stream, named, stream_label

#: The key of a join without one: all rows have the same.
ALL_ROWS = RESERVED + "all rows"


@refuses_in_sentences
def join_asof(
    left: Stream,
    right: Stream,
    *,
    on: str | Column | Sequence[str | Column] | None = None,
    direction: str = "backward",
    tolerance: Duration | None = None,
    allow_exact: bool = True,
    how: str = "left",
    order_by: str | Sequence[str] | None = None,
    memory: str | None = None,
    shards: int | None = None,
) -> Joined:
    """Join each row of `left` with at most one row of `right`: the nearest in event time among those with equal `on`.

    ::

        trades = wm.stream(trade_df, time="traded_at", delay="2 seconds")
        quotes = wm.stream(quote_df, time="quoted_at", delay="5 seconds")
        wm.join_asof(trades, quotes, on="symbol", tolerance="1 minute").df

    `direction` is "backward" (the last row of `right` that is not after the left one), "forward" (the first that is not
    before it) or "nearest" (of both the nearer; on equal distance the earlier). `tolerance` bounds the distance.
    Without `allow_exact` a row of the same event time is no answer. With how="left" a row without an answer comes out
    with NULLs, with how="inner" it does not. Of several rows of one event time the answer is the last by the columns
    `order_by` of `right` (by default its own `order_by`), then by the bytes of the row.

    A left row comes out when no row that could win can still come: backward once the watermark of `right` has passed
    it, forward and nearest once it has passed the first candidate after it, or the tolerance; at once where a
    punctuation of `right` closes its key. Rows of `right` are kept while they may be an answer. Without a tolerance the
    newest version of each key stays: a table. Punctuations of `left` remove it. The result does not depend on the
    batches or on disorder within the delays; the same call over static DataFrames gives the same.

    `on` and `memory` are as in `wm.join`. Without `on` all rows meet in one shard. Streams have no windows here.
    """
    return _join_asof((left, right), on, direction, tolerance, allow_exact, how, order_by, memory, shards)


def _join_asof(
    streams: Sequence[Stream],
    on: str | Column | Sequence[str | Column] | None,
    direction: str,
    tolerance: Duration | None,
    allow_exact: bool,
    how: str,
    order_by: str | Sequence[str] | None,
    memory: str | None,
    shards: int | None,
) -> Joined:
    streams = tuple(streams)
    require_streams(streams)
    require_bool(allow_exact, "allow_exact")
    require_text(how, "how", "the kind of the join")
    require_text(direction, "direction", "where the answer is looked for")
    listed = (order_by,) if isinstance(order_by, str) else order_by
    require_list(listed, "order_by")
    streams = named(streams)
    right, label = streams[1], stream_label(streams[1].name)
    columns = tuple(require(right.df, column, "order_by", label) for column in listed or ())
    reach = None if tolerance is None else durations.parse(tolerance, "tolerance")
    asof = AsOf(direction, reach, allow_exact, columns)
    request = JoinRequest(join_kind(how), shards=shards, asof=asof, memory=memory_bytes(memory))
    if on is None:
        return join_asof_streams(streams, [], request)
    texts = column_equalities.as_text(on, streams)
    names = {s.name: [f.name for f in s.columns] for s in streams}
    equal, null_safe = equalities.read(texts, names, ignore_case=ignores_case(streams[0].df))
    request = replace(request, null_safe=equalities.columns_of(streams[0].name, equal, null_safe))
    return join_asof_streams(streams, equal, request)


@repeatable
def join_asof_streams(streams: Sequence[Stream], equal: Sequence[Equal], request: JoinRequest) -> Joined:
    """The as-of join of two named streams on equal columns: the common path of `wm.join_asof` and `wm.sql`."""
    streams = tuple(streams)
    if streams[0].name == streams[1].name:
        name = streams[0].name
        raise QueryError(f"two streams are called `{name}`; messages could not tell them apart.", hint="set `name`.")
    refuse_two_kinds_of_time(streams)
    if request.null_safe:
        raise QueryError(
            f"`on` joins NULLs of `{min(request.null_safe)}`; in an as-of join a row without a key has no answer.",
            hint="use = in place of <=>, or replace NULLs before the join: coalesce(…).",
        )
    if equal:
        (step,) = equalities.steps([s.name for s in streams], equal)
        return one_operator(streams, step.keys, request)
    if request.shards not in (None, 1):
        raise QueryError(
            f"`shards` is {request.shards}, and there is no `on`; without a key all rows meet in one shard.",
            hint="leave `shards` out, or give a key that divides the rows.",
        )
    streams = tuple(s.with_df(s.df.withColumn(ALL_ROWS, F.lit(0))) for s in streams)
    joined = one_operator(streams, ((ALL_ROWS,), (ALL_ROWS,)), replace(request, shards=1))
    return replace(joined, hidden=(ALL_ROWS,))
