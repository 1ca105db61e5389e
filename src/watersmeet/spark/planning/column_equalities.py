"""Columns in `on=` of a join: `a.df.id == b.df.item_id` as the text "a.id = b.item_id", `eqNullSafe` with "<=>".

A Column shows its names, and not the DataFrames that they are of. Where names do not decide, Spark's analyser does: a
condition needs a column of a stream if it cannot be resolved when the stream is without it. This takes nothing but
public methods, so it works over Spark Connect as well.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import product
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame

from watersmeet.errors import QueryError
from watersmeet.spark.streams import Stream

#: A column of a stream, by the names of both.
Named = tuple[str, str]
#: Two columns that are equal, and the operator that says so: = or <=>.
Reading = tuple[Named, Named, str]

_EQUALITY = re.compile(r"(<=>|==?)\(([^(),']+), ([^(),']+)\)")
_EXAMPLE = 'on="a.id = b.item_id".'
_EXAMPLES = "on=a.df.id == b.df.item_id, or as text with the names of the streams: " + _EXAMPLE


def as_text(on: Any, streams: Sequence[Stream]) -> Any:
    """The argument `on` with Columns as texts; all else as it is."""
    if isinstance(on, Column):
        return _text(on, streams)
    if isinstance(on, list | tuple):
        return [_text(each, streams) if isinstance(each, Column) else each for each in on]
    return on


def _text(column: Column, streams: Sequence[Stream]) -> str:
    shown = str(column).removeprefix("Column<'").removesuffix("'>")
    pairs, rest = _EQUALITY.findall(shown), _EQUALITY.sub("E", shown)
    while rest != (shorter := rest.replace("and(E, E)", "E")):
        rest = shorter
    if rest != "E":
        if re.search(" (=|<=>) ", shown) and "(" not in shown:  # F.expr("a.id = b.item_id")
            return shown
        raise _no_equality(shown)
    conditions = [("<=>" if sign == "<=>" else "=", left, right) for sign, left, right in pairs]
    readings = [_readings(sign, _name(left), _name(right), streams) for sign, left, right in conditions]
    texts = [f"{left} {sign} {right}" for sign, left, right in conditions]
    meant = _meant(column, readings, streams, texts)
    return " AND ".join(f"`{a}`.`{x}` {sign} `{b}`.`{y}`" for (a, x), (b, y), sign in meant)


def _name(shown: str) -> tuple[str | None, str]:
    """The stream's name, if there is one, and the column's."""
    stream, _, column = shown.strip().rpartition(".")
    return stream.strip("`") or None, column.strip("`")


def _readings(
    sign: str, left: tuple[str | None, str], right: tuple[str | None, str], streams: Sequence[Stream]
) -> list[Reading]:
    """The columns of two streams that an equality of two names may mean."""
    first, second = (
        [(s.name, column) for s in streams if name in (None, s.name) and any(f.name == column for f in s.columns)]
        for name, column in (left, right)
    )
    pairs = {tuple(sorted(pair)) for pair in product(first, second) if pair[0][0] != pair[1][0]}
    return sorted((one, other, sign) for one, other in pairs)


def _meant(
    condition: Column,
    readings: Sequence[Sequence[Reading]],
    streams: Sequence[Stream],
    texts: Sequence[str],
) -> Sequence[Reading]:
    """The reading of each equality: the only one by its names, or those that together need what the condition needs."""
    nothing = next((text for text, found in zip(texts, readings, strict=True) if not found), None)
    if nothing is None and all(len(found) == 1 for found in readings) and not _is_connect(condition):
        return [found[0] for found in readings]
    candidates = {c for found in readings for reading in found for c in reading[:2]}
    needed = {c for c in candidates if _needs(condition, c, streams)}
    fitting = {frozenset(chosen) for chosen in product(*readings) if {c for one in chosen for c in one[:2]} == needed}
    frames = {s.name: s.df for s in streams}
    # streams that are made of one DataFrame share columns, which Spark cannot tell apart
    shared = any(not _needs(frames[name][column], (name, column), streams) for name, column in candidates)
    if len(fitting) == 1 and not shared:
        return sorted(*fitting)
    shown = " AND ".join(texts)
    if nothing is None and (fitting or shared):
        raise QueryError(
            f"`on` is a Column, {shown}, and several streams have columns of these names; it does not show which are "
            "meant.",
            hint="write it as text with the names of the streams: " + _EXAMPLE,
        )
    raise QueryError(
        f"`on` is a Column, {nothing or shown}, which is no equality between columns of two of the streams "
        f"{', '.join(s.name for s in streams)}; a Column belongs to the DataFrame that it was made of.",
        hint="take the columns of the streams' own DataFrames: " + _EXAMPLES,
    )


def _no_equality(shown: str) -> QueryError:
    return QueryError(
        f"`on` is a Column, {shown}; it is an equality of two columns, or several connected with &.",
        hint=_EXAMPLES + " Other conditions go to `where`; a computed key is a column of its own first: withColumn.",
    )


def _needs(condition: Column, column: Named, streams: Sequence[Stream]) -> bool:
    """Whether the condition cannot be resolved without this column."""
    frames = [(s.df.drop(column[1]) if s.name == column[0] else s.df).alias(s.name) for s in streams]
    return not _resolves(reduce(DataFrame.crossJoin, frames), condition)


def _is_connect(column: Column) -> bool:
    """Whether it is a Column of Spark Connect, which shows a literal like the name of a column."""
    return "connect" in type(column).__module__


def _resolves(df: DataFrame, condition: Column) -> bool:
    with _without_log():
        try:
            df.select(condition).columns  # noqa: B018 (analyses the plan)
        except AnalysisException:
            return False
    return True


@contextmanager
def _without_log() -> Iterator[None]:
    """Without the log of refused plans that PySpark writes over Spark Connect: here a refusal is an answer."""
    log = logging.getLogger("DataFrameQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
