"""Joins of two streams over stored tuples: which pairs match, and the results made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.joins.base import RunningJoin
from watersmeet.model.predicates import Kept, Predicate
from watersmeet.state.index import Int32s
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.segments import pieces, widths
from watersmeet.state.value_lists import UNASKED, ValueLists

#: Positions of rows in a batch.
Rows = Int32s | Int64s
Join = RunningJoin[Any]


def probe(join: RunningJoin[ValueLists], i: int, *, track: bool = False, closed: Bools = UNASKED) -> Iterator[Int32s]:
    """Pairs of stream i's new rows with stored tuples of the other: row, slot, segment number, row there.

    With `track` the stored tuples found are marked as matched. `closed` receives which of the new rows have a key that
    the other stream has closed as a single one.
    """
    own, other = join.query.streams[i], join.query.streams[1 - i]
    arrivals, state = join.arrivals[i], join.streams[1 - i]
    before = state.lists.looked_at
    yield from state.probe(arrivals, arrivals.which, other.window.reach, own.window.reach, track, closed)
    join.counters.probed += state.lists.looked_at - before


def holds(join: Join, i: int, rows: Rows, numbers: Int32s, positions: Int32s) -> Bools | None:
    """For which pairs of new rows of stream i with stored ones the predicate is true; None: there is none."""
    where = join.query.where
    if where is None:
        return None
    some = _pieces(join, i, rows, numbers, positions)
    return np.concatenate([_true_of(join, where, i, rows[s], numbers[s], positions[s]) for s in some])


def _true_of(join: Join, where: Predicate, i: int, rows: Rows, numbers: Int32s, positions: Int32s) -> Bools:
    names = join.query.called(i)
    assert set(where.columns) <= {*names, *join.query.streams[1 - i].payload}, "a column of the pair is a key or single"

    def take(columns: Sequence[str], kept: Kept) -> list[pa.Array]:
        mine, theirs = ([c for c in columns if (c in names) is own] for own in (True, False))
        new = join.arrivals[i].rows.select([names[c] for c in mine])
        out = dict(zip(mine, new.take(pa.array(rows[kept])).columns, strict=True)) if mine else {}
        if theirs:
            stored = join.streams[1 - i].segments.take(numbers[kept], positions[kept], theirs)
            out |= zip(theirs, (c.combine_chunks() for c in stored.columns), strict=True)
        return [out[c] for c in columns]

    return where.holds_among(rows.size, take)


def fitting(join: Join, i: int, rows: Rows, numbers: Int32s, positions: Int32s) -> Iterator[pa.Table]:
    """Results of those pairs for which the predicate, if there is one, is true."""
    fits = holds(join, i, rows, numbers, positions)
    if fits is not None:
        rows, numbers, positions = rows[fits], numbers[fits], positions[fits]
    yield from results(join, i, rows, numbers, positions)


def results(join: Join, i: int, rows: Rows, numbers: Int32s, positions: Int32s) -> Iterator[pa.Table]:
    """New rows of stream i beside the stored ones of the other they match, which are grouped by segment number."""
    if not rows.size:
        return
    join.counters.results += rows.size
    for some in _pieces(join, i, rows, numbers, positions):
        mine = join.arrivals[i].rows.take(pa.array(rows[some]))
        theirs = join.streams[1 - i].segments.take(numbers[some], positions[some], _stored_columns(join, i))
        yield _combine(join, mine, theirs, i)


def _stored_columns(join: Join, i: int) -> Sequence[str]:
    """Columns that the stored tuple gives to a result found by one of stream i."""
    other = join.query.streams[1 - i]
    return [*other.key, *other.payload] if i == 1 else other.payload


def _pieces(join: Join, i: int, rows: Rows, numbers: Int32s, positions: Int32s) -> Iterator[slice]:
    """Pairs in pieces that are bounded in bytes, too; their number is bounded already."""
    if not join.varies:
        yield slice(0, rows.size)
        return
    theirs = join.streams[1 - i].segments.widths(numbers, positions, _stored_columns(join, i))
    yield from pieces(widths(join.arrivals[i].rows, rows) + theirs)


def _combine(join: Join, mine: pa.RecordBatch, theirs: pa.Table, i: int) -> pa.Table:
    """Columns of the result; key values are those of the first stream's tuple."""
    first, second = join.query.streams
    sides = (mine, theirs) if i == 0 else (theirs, mine)
    names = [(0, c) for c in first.key] + [(0, c) for c in first.payload] + [(1, c) for c in second.payload]
    schema = join.query.schema
    return pa.table([sides[side].column(c) for side, c in names], names=schema.names)
