"""`wm.join`: reads what is asked, and has it planned as one operator or as a tree of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from watersmeet.errors import QueryError
from watersmeet.joins.orders import MOST_STREAMS
from watersmeet.model.windows import RowsWindow
from watersmeet.spark import equalities
from watersmeet.spark.conditions import Condition
from watersmeet.spark.oblivious import read_options, refuse_options, refuse_tree
from watersmeet.spark.pipeline import Asked, Joined, one_operator
from watersmeet.spark.streams import AUTO, Stream, parse_window
from watersmeet.spark.tree import tree


def join(
    *streams: Stream,
    on: str | Sequence[str],
    how: str = "inner",
    where: Condition | None = None,
    window: str | RowsWindow | None = None,
    algorithm: str = "auto",
    order: Sequence[Any] | None = None,
    max_matches_per_row: int | None = None,
    on_violation: str = "drop",
    allow_unbounded: bool = False,
    closed: bool = True,
    memory: str | int | None = None,
    strategy: str | None = None,
    shards: int | None = None,
    split_keys: Sequence[Any] | None = None,
    **options: Any,
) -> Joined:
    """Join two to eight streams on equal values of `on`, within their windows.

    A combination of one tuple of each stream is a result iff the keys are equal and, at the time of the newest of them,
    every other is in its own stream's window. Of two: b is at most b's window older than a, or a at most a's window
    older than b. The result is that of a batch join over all rows that did not come late. `closed=False` leaves out the
    edge of the window itself. Three streams or more are joined in one operator that stores nothing but their own
    tuples; the kinds of `how` other than "inner" are for two.

    `on` is a column that all streams have, several of them, or equalities with the names of the streams:
    ``on="a.id = b.item_id"``, ``on=["a.x = b.x", "b.y = c.y"]``. Equal columns are one in the result, called as in the
    first stream. Where no key is common to all streams, the join is a tree of operators with a shuffle between them:
    (a with b on x) with c on y. A tree of window joins is not the join of all at once: with windows of 10, a at 0, b at
    8 and c at 15, (a, b) is a pair, of time 8, and c is within 10 of that, but at 15 a is out of its window. So the
    operators find a little more than is asked for (pairs are kept for the shortest window among their parts), and a
    filter behind the last one keeps those combinations of which every tuple is in its window at the time of the newest:
    the result is the definition's. `explain` shows the tree. Windows of rows cannot be asked about afterwards and are
    refused there. Rows that come late to an inner operator are in `tagged` like all others, and counted in the progress
    under its own name (``wm.counters(progress, metrics="watersmeet_a_b")``).

    `where` is a condition that a combination must fulfil as well, over the columns of all streams (the key is called as
    in the first): one for which it is false or NULL is none, and a row without any other is unmatched. Comparisons and
    arithmetic (``"price >= reserve * 2 AND bidder <> seller"``) are evaluated inside the operator, as Spark would in
    ANSI mode. Any other SQL, or a Column, filters the results of an inner join, and is refused for the other kinds.

    `window` is that of the streams which have none of their own. With "auto" nobody has to say one: for a key that
    ascends in the long run (numbers, timestamps, dates; epochs, sequence numbers), the order of the keys tells how much
    to keep. All combinations with one key are results, whatever their times; a row that comes further behind than any
    of late finds what is there and is counted as `too_late`. No row is late by its time, unless its stream has a
    `delay`. `memory` ("256 MB", of all shards together) bounds what is held in memory, and `strategy` says how: "msf"
    sorts first, "dbf" leaves rows of a stream that leads in the state store until the others come near, "hybrid" does
    both, "auto" (the default where there is a `memory`) as little as will do. The results are the same. What does not
    fit even so stops the query, or with `shed=True` goes, and is counted. See docs/operators/wo_join.md for `buffer`,
    `scrambling` and `loss`.

    `algorithm` is "hash", "pwjoin", "pjoin", "nested_loop" for two streams, "general_lazy", "eager", "lazy", "hybrid",
    "naive_multiway" for two or more, with their options (`every`, `expiration`: durations; `index`). `order` names the
    streams, or gives their numbers, in the order in which a new tuple meets them, or such an order for each stream;
    without it the order of three streams and more follows the measured rates, from batch to batch. It changes the work,
    never the result. `max_matches_per_row` bounds the results of one new row (those for which `where` holds);
    what is beyond it is counted as `suppressed`.

    `shards` divides the keys (default: Spark's number of shuffle partitions; one where a window counts the rows of a
    whole stream); it is fixed for the life of a checkpoint. A key belongs to one shard. `split_keys` are keys that so
    many rows have that one shard would do most of the work: rows of the first stream that have one of them are spread
    over all shards, and those of the second are copied to each. The results are the same; the counters (rows_in, late,
    stored) count the copies. It is for inner, left, semi and anti joins of two streams with windows of time, on one
    column, and fixed for the life of a checkpoint as well.
    """
    if not 2 <= len(streams) <= MOST_STREAMS:
        raise QueryError(
            f"`join` takes two to {MOST_STREAMS} streams; {len(streams)} given.",
            hint="join some first, and the result with the others: wm.join(…).as_stream(…).",
        )
    for s in streams:
        if not isinstance(s, Stream):
            raise QueryError(
                f"`join` takes streams; got {type(s).__name__}.", hint='wrap it: wm.stream(df, time="…", window="…").'
            )
    if on_violation not in ("drop", "error"):
        raise QueryError(f'`on_violation` is "{on_violation}"; it is "drop" or "error".')
    names = [s.name for s in streams]
    twice = next((name for n, name in enumerate(names) if name in names[:n]), None)
    if twice is not None:
        raise QueryError(f"two streams are called `{twice}`; messages could not tell them apart.", hint="set `name`.")
    if window == AUTO or algorithm == "wo_join":
        algorithm, options = read_options(streams, algorithm, memory, strategy, options)
    else:
        refuse_options(memory, strategy, options)
        length = parse_window(window)
        streams = tuple(s if length is None or s.window is not None else replace(s, window=length) for s in streams)
    told = {"order": order, "max_matches_per_row": max_matches_per_row}
    options |= {name: value for name, value in told.items() if value is not None}
    asked = Asked(how, where, algorithm, on_violation, allow_unbounded, closed, shards, options, split_keys)
    equal = equalities.read(on, {s.name: [f.name for f in s.columns] for s in streams})
    steps = equalities.steps(names, equal)
    if split_keys is not None and (len(steps) > 1 or algorithm == "wo_join"):
        raise QueryError("`split_keys` is for one operator with windows of time.", hint="leave it out.")
    if len(steps) > 1 and algorithm == "wo_join":
        refuse_tree(streams)
    if len(steps) > 1:
        return tree(streams, steps, equal, asked)
    by_name = {s.name: s for s in streams}
    joined_in = (streams[0], *(by_name[name] for name in steps[0].others))
    return one_operator(joined_in, steps[0].keys, asked)
