"""Joins without equality: which columns are compared, which punctuations they use, and which stream is divided.

Rows of one stream are divided among the shards by a hash of the row, those of the others are copied to every shard, so
that every combination meets exactly once. A row of the divided stream meets all of its partners in one place, so it is
the one that may be preserved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from watersmeet.errors import ColumnError, QueryError
from watersmeet.joins.closed_partners import partner_bounds
from watersmeet.model.linear_bounds import bounds_of, columns_in, conjuncts
from watersmeet.model.predicates import Predicate
from watersmeet.model.punctuations import Ordered
from watersmeet.model.queries import HOW, JoinQuery, StreamSpec
from watersmeet.spark.planning import conditions
from watersmeet.spark.planning.key_punctuations import compared_rule
from watersmeet.spark.punctuations import CLOSES_KEYS, ColumnConstraint, PunctuationRule
from watersmeet.spark.streams import Stream

if TYPE_CHECKING:
    from watersmeet.spark.joined import JoinRequest

_EXAMPLE = 'wm.join(a, b, where="abs(a.x - b.y) <= 5").'


@dataclass(frozen=True)
class ThetaInputs:
    """The streams of a join without equality, and its query."""

    streams: tuple[Stream, ...]
    query: JoinQuery


def refuse(request: JoinRequest) -> None:
    """Refuse what a join without equality cannot be."""
    if request.where is None:
        raise QueryError(
            "`on` is None; and there is no `where`, so that all pairs of rows would be results.",
            hint=f'give on="k", or the condition that a pair must fulfil: {_EXAMPLE}',
        )
    if request.between is not None:
        raise QueryError(
            "`between` is for joins on a key; a join without equality has windows.",
            hint="give the streams windows, and write bounds of times in `where`.",
        )
    if request.split_keys is not None:
        raise QueryError("`split_keys` is for joins on a key; here all rows are divided anyway.", hint="leave it out.")


def inputs(streams: tuple[Stream, ...], request: JoinRequest) -> ThetaInputs:
    """The streams with the punctuations that the join uses, and the query with its predicate."""
    refuse(request)
    bare = [replace(s, rules=(), constraints=()).spec((), closed=request.closed == "both") for s in streams]
    JoinQuery(tuple(bare), request.how)  # refuses wrong streams before `where` is read
    where, _ = conditions.predicate(request.where, streams, bare, request.how, by_spark=False)
    assert where is not None, "a condition was given"
    _refuse_untied(where, bare)
    fitted, specs = [], []
    for i, s in enumerate(streams):
        column = _closed_column(s, _compared(where, streams, i))
        fitted.append(_fitted(s, column))
        specs.append(fitted[-1].spec((), closed=request.closed == "both", compared=column))
    return ThetaInputs(tuple(fitted), JoinQuery(tuple(specs), request.how, where, spread(request.how)))


def _refuse_untied(where: Predicate, specs: Sequence[StreamSpec]) -> None:
    """Refuse a stream that no condition compares with the others, directly or by way of others."""
    owner = {column: s.name for s in specs for column in s.schema.names}
    ties = [{owner[column] for column in columns_in(node)} for node in conjuncts(where.root)]
    tied = {specs[0].name}
    for _ in specs:
        tied = tied.union(*(tie for tie in ties if tie & tied))
    loose = next((s.name for s in specs if s.name not in tied), None)
    if loose is not None:
        raise QueryError(
            f"`where` ({where.text}) has no condition between `{loose}` and the other streams; all pairs would be "
            "results.",
            hint=f"compare a column of it with one of theirs: {_EXAMPLE}",
        )


def spread(how: str) -> int:
    """The stream whose rows are divided: the preserved one, else the first. A checkpoint belongs to it."""
    preserved = HOW[how]
    return preserved[0] if preserved else 0


def _compared(where: Predicate, streams: Sequence[Stream], i: int) -> list[str]:
    """Columns of stream i that are bounded by another stream, each by itself."""
    names = [[f.name for f in s.columns] for s in streams]
    found = (b.attribute.column for b in bounds_of(where, names) if b.attribute.stream == i)
    return list(dict.fromkeys(column for column in found if column is not None))


def _closed_column(s: Stream, compared: Sequence[str]) -> str | None:
    """The column whose values the stream's punctuations close; None if it has none. Refuses what closes nothing."""
    about: list[str] = []
    if s.upstream is not None:
        return None  # what a join propagates is about its own key
    about += [_about(s, constraint, compared) for constraint in s.constraints]
    about += [_about(s, rule, compared) for rule in s.rules if rule.kind in CLOSES_KEYS]
    if len(set(about)) > 1:
        raise QueryError(
            f"`punctuation` of stream `{s.name}` is about {' and '.join(dict.fromkeys(about))}; a join without "
            "equality uses those about one column.",
            hint="keep the one by which more can be purged.",
        )
    return about[0] if about else None


def _about(s: Stream, source: ColumnConstraint | PunctuationRule, compared: Sequence[str]) -> str:
    is_constraint = isinstance(source, ColumnConstraint)
    columns = (source.column,) if isinstance(source, ColumnConstraint) else source.about
    used = isinstance(source.constraint, Ordered) if isinstance(source, ColumnConstraint) else source.kind == "range"
    if not used:
        what = f"`{source.function}`" if is_constraint else "`when` about single values"
        raise QueryError(
            f"`punctuation` of stream `{s.name}` is {what}, and the join has no key; a row may match many values, and "
            "is not needed any more when all of them are closed.",
            hint='close ranges, wm.when("…", low="…", high="…", on="…"), or use wm.ordered("…").',
        )
    if not compared:
        raise ColumnError(
            f"`punctuation` of stream `{s.name}` closes values, and no condition bounds a column of it by another "
            "stream.",
            hint="leave the punctuation out; windows evict the rows.",
        )
    column = columns[0] if len(columns) == 1 else compared[0] if not columns and len(compared) == 1 else None
    if column is None:
        raise QueryError(
            f"`low` and `high` of `when` of stream `{s.name}` are values of one column, and it is compared by "
            f"{', '.join(compared)}; it is not clear which of them is meant.",
            hint=f'name it: wm.when(…, on="{compared[0]}").',
        )
    if column not in compared:
        raise ColumnError(
            f"`punctuation` of stream `{s.name}` is about column `{column}`, but `where` compares "
            f"{', '.join(compared)}; only values of these can be closed.",
            hint=f'close values of "{compared[0]}", or leave the punctuation out.',
        )
    return column


def open_ended(query: JoinQuery, streams: Sequence[Stream], i: int) -> str | None:
    """Which stream never closes all values of which column that rows of stream i may match; None if all others may.

    With ``a.x < b.y`` rows of a match any y above x: that b ascends in y never ends them.
    """
    open_yet = (j for j in range(len(streams)) if j != i and not _may_close(query, streams[j], i, j))
    return next(
        (f"`{streams[j].name}` never closes all values of `{query.streams[j].compared}`" for j in open_yet), None
    )


def _may_close(query: JoinQuery, other: Stream, i: int, j: int) -> bool:
    """Whether stream j, if it closes values of a compared column, may close all that a row of stream i may match."""
    column = query.streams[j].compared
    if column is None or any(rule.kind == "end" for rule in other.rules):
        return True
    bounds = [b for a, some in partner_bounds(query)[i].items() if (a.stream, a.column) == (j, column) for b in some]
    has_lower, has_upper = (any(b.upper is upper for b in bounds) for upper in (False, True))
    # which ends of the values that a row may match must be bounded for a closed range to hold them all
    closed = [(False, True) for _ in other.constraints]
    closed += [(low is not None, high is not None) for low, high in _ranges(other)]
    return any(has_lower >= low and has_upper >= high for low, high in closed)


def _ranges(s: Stream) -> list[tuple[Any, Any]]:
    """Both ends of the ranges that punctuations of a stream close; None for an end without a bound."""
    return [(rule.columns[0], rule.columns[1]) for rule in s.rules if rule.kind == "range"]


def _fitted(s: Stream, column: str | None) -> Stream:
    """The stream with its punctuations checked against the compared column."""
    if column is None:
        return replace(s, rules=tuple(rule for rule in s.rules if rule.kind not in CLOSES_KEYS))
    rules = tuple(compared_rule(s, rule, column) if rule.kind in CLOSES_KEYS else rule for rule in s.rules)
    return replace(s, rules=rules)
