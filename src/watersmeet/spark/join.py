"""`wm.join`: reads the arguments, and plans one operator or a tree of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column

from watersmeet.errors import QueryError, WindowError
from watersmeet.joins import Algorithm
from watersmeet.joins.algorithm import MOST_STREAMS
from watersmeet.model.durations import Duration, Micros, bare
from watersmeet.model.grouping import Bucket
from watersmeet.model.queries import join_kind
from watersmeet.model.windows import RowsWindow, closed_ends
from watersmeet.spark.joined import Joined, JoinRequest, one_operator, repeatable
from watersmeet.spark.planning import column_equalities, equalities, intervals, tumbling_windows, without_equality
from watersmeet.spark.planning.arguments import require_bool, require_list, require_streams, require_text
from watersmeet.spark.planning.columns import ignores_case
from watersmeet.spark.planning.conditions import Condition
from watersmeet.spark.planning.equalities import Equal
from watersmeet.spark.planning.intervals import Between
from watersmeet.spark.planning.operator_tree import tree
from watersmeet.spark.planning.spark_words import refuses_in_sentences
from watersmeet.spark.planning.stream_kinds import refuse_two_kinds_of_time
from watersmeet.spark.planning.wo_join_options import read_options, refuse_options, refuse_tree, windowed_memory
from watersmeet.spark.streams import AUTO, Stream, named, parse_window

#: Columns that are equal in all streams, equalities, and at most one bucket of event times.
On = str | Column | Bucket | Sequence[str | Column | Bucket]


@refuses_in_sentences
def join(
    *streams: Stream,
    on: On | None = None,
    how: str = "inner",
    where: Condition | None = None,
    window: Duration | RowsWindow | None = None,
    between: Between | None = None,
    algorithm: str | Algorithm[Any] = "auto",
    order: Sequence[Any] | None = None,
    max_matches_per_row: int | None = None,
    on_violation: str = "drop",
    allow_unbounded: bool = False,
    closed: str | bool = "both",
    memory: str | int | None = None,
    strategy: str | None = None,
    shards: int | None = None,
    split_keys: Sequence[Any] | None = None,
) -> Joined:
    """Join two to eight streams on equal values of `on`, within their windows.

    A combination of one tuple of each stream is a result iff the keys are equal and, at the time of the newest of them,
    every other is in its own stream's window. Of two: b is at most b's window older than a, or a at most a's window
    older than b. The result is that of a batch join over all rows that did not come late. Three streams or more are
    joined in one operator that stores nothing but their own tuples.

    `streams`: what Spark joins as DataFrames with a watermark; here each is a `wm.stream`.

    `on`: Spark's `on` of `DataFrame.join`; an equality of columns, which are one column in the result. It is a column
    that all streams have, several of them, equalities with the names of the streams, ``on="a.id = b.item_id"``,
    ``on=["a.x = b.x", "b.y = c.y"]``, or Columns, ``on=a.df.id == b.df.item_id``, ``on=F.col("a.id") ==
    F.col("b.item_id")``. Equal columns are called as in the first stream. With ``on="a.k <=> b.k"``, IS NOT DISTINCT
    FROM or ``a.df.k.eqNullSafe(b.df.k)`` a NULL equals a NULL. A bucket among them, ``on=["k", wm.bucket("at", "10
    seconds")]`` with `at` the time of one stream, joins rows of two streams whose event times lie in the same ten
    seconds; its start is a column of the result, and a row is kept until the other stream is past the end of it. Where
    no key is common to all streams, the join is a tree of operators with a shuffle between them: (a with b on x) with c
    on y. A tree of window joins is not the join of all at once: with windows of 10, a at 0, b at 8 and c at 15, (a, b)
    is a pair, of time 8, and c is within 10 of that, but at 15 a is out of its window. So the operators find a little
    more than the result (pairs are kept for the shortest window among their parts), and a filter behind the last one
    keeps those combinations of which every tuple is in its window at the time of the newest: the result is the
    definition's. `explain` shows the tree. Windows of rows cannot be checked afterwards and are refused there. Rows
    that come late to an inner operator are in `tagged` like all others, and counted in the progress under its own name
    (``wm.counters(progress, metrics="watersmeet_a_b")``).

    Without `on` there is no equality, and `where` alone decides: ``where="abs(a.x - b.y) <= 5"``,
    ``where="a.low <= b.v AND b.v < a.high"``. It must be one that the operator evaluates. Where it bounds columns of
    two streams by each other (a band, an interval, an inequality), sorted indexes find the matches ("band"), otherwise
    all rows of the windows are compared ("theta"). Rows of the first stream are divided among the shards, those of the
    others are copied to each; so `how` is "inner" or, for two streams, "left", "semi" or "anti". Punctuations, of two
    streams, are about a compared column: ranges of it (`wm.when` with `low` and `high`), or `wm.ordered`.

    `how`: Spark's `how`, with its names (left_outer, outer, leftsemi, …) beside "inner", "left", "right", "full",
    "semi" and "anti". Kinds other than "inner" are for two streams.

    `where`: what Spark adds to `on` as a further condition; over the columns of all streams (the key is called as in
    the first; ``a.x`` names a column with its stream). A combination for which it is false or NULL is none, and a row
    without any other is unmatched. Comparisons and arithmetic (``"price >= reserve * 2 AND bidder <> seller"``) are
    evaluated inside the operator, as Spark would in ANSI mode. Any other SQL, or a Column, filters the results of an
    inner join, and is refused for the other kinds.

    `window`: what Spark writes as a condition on event times (``b_at BETWEEN a_at AND a_at + INTERVAL 10 MINUTES``);
    the window of the streams which have none of their own. With "auto" no window is needed: for a key that
    ascends in the long run (numbers, timestamps, dates; epochs, sequence numbers), the order of the keys decides how
    much is kept. All combinations with one key are results, whatever their times; a row further behind than any recent
    one is joined with the tuples that are still kept, and counted as `too_late`. No row is late by its time, unless its
    stream has a `delay`.

    `between`: what Spark writes as ``b_at BETWEEN a_at + INTERVAL 1 HOUR AND a_at + INTERVAL 2 HOURS``; bounds for two
    streams instead of windows, ``between=("1 hour", "2 hours")``, either of which may be negative. A row is kept as
    long as a partner may come: a until b is past a.time + upper, b until a is past b.time - lower.

    `closed`: whether Spark's condition on event times would have <= or <; the ends that belong to the
    interval of `between`: "both", "left", "right" or "neither". Of a window: "both" (or True), or "right" (or False)
    without the edge itself.

    `memory`: Spark has no bound of a join's state; "256 MB" bounds the lists and rows of all shards together, in equal
    shares. Beyond it the oldest rows are spilled to files on a local disk and read from there: the results are the
    same. Lists stay in memory, and so does a batch while it is joined; a tree of operators divides the memory among
    them. The counter `spilled_bytes` shows what is on the disk, `explain` from when on that is expected.

    `strategy`: nothing in Spark; with ``window="auto"`` it chooses how to stay within `memory`: "msf" sorts first,
    "dbf" leaves rows of a stream that leads in the state store until the others come near, "hybrid" does both, "auto"
    (the default where there is a `memory`) as little as will do. The results are the same. State that still does not
    fit stops the query there; with `shed` it is dropped and counted. `wm.WOJoin` has this and the other options.

    `algorithm`: what Spark chooses with join hints (``df.hint("shuffle_hash")``); a name, or an algorithm with options
    of its own. Names are "hash", "pwjoin", "pjoin", "nested_loop" for two streams, "band" for two without `on`, "theta"
    for two or more without it, "general_lazy", "eager", "lazy", "hybrid", "naive_multiway" for two or more, "wo_join".
    With options: ``algorithm=wm.LazyJoin(every="10 seconds")``, ``algorithm=wm.WOJoin(memory="256 MB",
    strategy="dbf")``.

    `order`: what Spark's cost-based optimiser does as join reordering; names the streams, or gives their numbers, in
    the order in which a new tuple meets them, or such an order for each. Without it the order of three streams and more
    follows the measured rates, from batch to batch. It changes the work, never the result.

    `max_matches_per_row`: Spark has no such bound; of the results of one new row (those for which `where` holds). What
    is beyond it is counted as `suppressed`.

    `on_violation`: Spark has no punctuations; a row against one of its own stream is set apart ("drop") or stops the
    query ("error").

    `allow_unbounded`: Spark joins streams without watermarks and keeps all rows; here that must be allowed.

    `shards`: Spark divides keys among its shuffle partitions; here among shards, of which a task may run several: those
    of the session by default, one where a window counts the rows of a whole stream. `wm.evolve_state` changes it for a
    checkpoint. A key belongs to one shard.

    `split_keys`: what Spark's adaptive execution does as skew join; keys that so many rows have that one shard would do
    most of the work. Rows of the first stream that have one of them are spread over all shards, and those of the second
    are copied to each. The results are the same; the counters (rows_in, late, stored) count the copies. It is for
    inner, left, semi and anti joins of two streams with windows of time, on one column, and changed in a checkpoint as
    the number of shards is.
    """
    require_list(order, "order")
    given = {"order": order, "max_matches_per_row": max_matches_per_row, "memory": memory, "strategy": strategy}
    options = {name: value for name, value in given.items() if value is not None}
    if isinstance(algorithm, Algorithm):
        own = algorithm.given_options()
        twice = next((name for name in options if name in own), None)
        if twice is not None:
            raise QueryError(
                f"`{twice}` is given to `join` and to {type(algorithm).__name__}.", hint="give it to one of them."
            )
        algorithm, options = algorithm.name, own | options
    return join_with(
        streams,
        options,
        on=on,
        how=how,
        where=where,
        window=window,
        between=between,
        algorithm=algorithm,
        on_violation=on_violation,
        allow_unbounded=allow_unbounded,
        closed=closed,
        shards=shards,
        split_keys=split_keys,
    )


def join_with(
    streams: Sequence[Stream],
    options: dict[str, Any],
    *,
    on: On | None,
    how: str = "inner",
    where: Condition | None = None,
    window: Duration | RowsWindow | None = None,
    between: Between | None = None,
    algorithm: str = "auto",
    on_violation: str = "drop",
    allow_unbounded: bool = False,
    closed: str | bool = "both",
    shards: int | None = None,
    split_keys: Sequence[Any] | None = None,
) -> Joined:
    """`join` with the options of the algorithm as a dictionary; `algorithm` is a name, or "auto"."""
    streams = tuple(streams)
    require_streams(streams)
    require_count(streams)
    if on_violation not in ("drop", "error"):
        raise QueryError(f'`on_violation` is "{on_violation}"; it is "drop" or "error".')
    require_text(how, "how", "the kind of the join")
    require_text(algorithm, "algorithm", "the name of an algorithm")
    require_list(split_keys, "split_keys")
    ends = closed_ends(closed)
    require_bool(allow_unbounded, "allow_unbounded")
    refuse_bare_durations(options)
    streams = named(streams)
    request = JoinRequest(
        join_kind(how), where, algorithm, on_violation, allow_unbounded, ends, shards, options, split_keys
    )
    request = replace(request, between=intervals.read(between, ends))
    return _join_named(streams, None if on is None else column_equalities.as_text(on, streams), request, window)


@repeatable
def _join_named(
    streams: Sequence[Stream], on: Any, request: JoinRequest, window: Duration | RowsWindow | None
) -> Joined:
    """The join of named streams; `on` has no Columns any more, which would be those of one DataFrame."""
    if on is None:
        return join_streams(streams, [], request, window)
    columns, bucket = tumbling_windows.without_bucket(on)
    if bucket is not None:
        bounded_by = tumbling_windows.given(window, request.between, request.algorithm)
        streams = tumbling_windows.bucketed(streams, bucket, bounded_by)
    names = {s.name: [f.name for f in s.columns] for s in streams}
    equal, null_safe = equalities.read(columns, names, ignore_case=ignores_case(streams[0].df))
    request = replace(request, null_safe=equalities.columns_of(streams[0].name, equal, null_safe))
    return join_streams(streams, equal, request, window)


def join_streams(
    streams: Sequence[Stream],
    equal: Sequence[Equal],
    request: JoinRequest,
    window: Duration | RowsWindow | None = None,
) -> Joined:
    """The join of named streams on equal columns, or without any: the common path of `wm.join` and `wm.sql`."""
    require_count(streams)
    names = [s.name for s in streams]
    twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if twice is not None:
        raise QueryError(f"two streams are called `{twice}`; messages could not tell them apart.", hint="set `name`.")
    refuse_two_kinds_of_time(streams)
    streams = tuple(streams)
    if request.between is not None:
        streams = intervals.bounded(streams, request.between, window, request.algorithm)
    else:
        refuse_open_now(request.closed)
    if (isinstance(window, str) and window == AUTO) or request.algorithm == "wo_join":
        algorithm, options = read_options(streams, request.algorithm, request.options)
        request = replace(request, algorithm=algorithm, options=options)
    else:
        memory, options = windowed_memory(request.options)
        request = replace(request, memory=memory, options=options)
        refuse_options(options)
        length = parse_window(window)
        streams = tuple(s if length is None or s.window is not None else replace(s, window=length) for s in streams)
    if not equal:
        without_equality.refuse(request)
        return one_operator(streams, [()] * len(streams), request)
    steps = equalities.steps(names, equal)
    if request.null_safe and (len(steps) > 1 or request.algorithm == "wo_join" or request.split_keys is not None):
        raise QueryError(
            f"`on` joins NULLs of `{min(request.null_safe)}`, which is for one operator with windows, without "
            "`split_keys`.",
            hint="use = in place of <=>, or replace NULLs before the join: coalesce(…).",
        )
    without_windows = request.algorithm == "wo_join"
    if request.split_keys is not None and (len(steps) > 1 or without_windows):
        raise QueryError("`split_keys` is for one operator with windows of time.", hint="leave it out.")
    if len(steps) > 1 and without_windows:
        refuse_tree(streams)
    if len(steps) > 1:
        return tree(streams, steps, equal, request)
    by_name = {s.name: s for s in streams}
    joined_in = (streams[0], *(by_name[name] for name in steps[0].others))
    return one_operator(joined_in, steps[0].keys, request)


def refuse_bare_durations(options: dict[str, Any]) -> None:
    """Refuse intervals of an algorithm that are numbers without a unit; inside the engine those are microseconds."""
    for name in ("every", "expiration"):
        given = options.get(name)
        if isinstance(given, int | float) and not isinstance(given, Micros):
            raise bare(given, name)


def refuse_open_now(ends: str) -> None:
    """Refuse a window without its upper end: that is the newest row itself."""
    if ends not in ("both", "right"):
        raise WindowError(
            f'`closed` is "{ends}"; a window reaches from its length ago to the newest row of a combination, which is '
            "in it.",
            hint='use closed="both", or closed="right" to leave out rows that are exactly the length older.',
        )


def require_count(streams: Sequence[Stream]) -> None:
    if not 2 <= len(streams) <= MOST_STREAMS:
        raise QueryError(
            f"`join` takes two to {MOST_STREAMS} streams; {len(streams)} given.",
            hint="join some first, and the result with the others: wm.join(…).as_stream(…).",
        )
