"""Opens a stored state without the program that wrote it, from the description in its header.

The header names the operator with its options (`Algorithm.describe`) and describes the query (`JoinQuery.describe`),
both as JSON. That is not enough to run the query again (predicates and constraints are not parsed), but enough to load
the state exactly as the query would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from watersmeet import joins
from watersmeet.errors import StateError, StateFormatError
from watersmeet.joins import Join, Operator
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.group_by.operator import GROUPED_JOIN, GROUPS, GroupedJoin, GroupsOf
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.joins.wo_join.tree import ROOT, WORoot
from watersmeet.model.arrow_types import parse_type
from watersmeet.model.asof import AsOf
from watersmeet.model.grouping import GroupBy, GroupedQuery
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import Interval, RowsWindow, TimeWindow, Tumbling, Unbounded, Window
from watersmeet.state.durable import log
from watersmeet.state.row_windows import POSITION

#: More memory than any state takes: reading a state never fails for a memory limit.
_ENOUGH = 1 << 60


def reopen(header: log.Header, store: log.Store) -> RunningJoin[Any]:
    """The join with the state that the store holds."""
    join = operator_of(header, query_of(header, schemas_of(header, store))).start()
    log.attach(join, header, store)  # spilled rows stay in the store: reading writes no files
    log.rebuild(join, header, store)
    return join


def operator_of(header: log.Header, query: JoinQuery) -> Operator:
    """The operator whose state this is."""
    return _operator(header.operator, query)


def _operator(stored: dict[str, Any], query: JoinQuery) -> Operator:
    with _described("operator"):
        if isinstance(query, GroupedQuery):
            if stored["name"] == GROUPS:
                return GroupsOf(query, stored["options"]["shards"])
            return GroupedJoin(_operator(stored["join"], query.join), query)
        if stored["name"] == ROOT:
            return WORoot(query)
        algorithm = joins.stored(stored)
        if isinstance(algorithm, WOJoin) and algorithm.memory is not None:
            algorithm = replace(algorithm, memory=_ENOUGH)
        return Join(query, algorithm)


def kind_of(header: log.Header) -> str:
    """The name of the algorithm, followed by `groups` if there are groups."""
    stored = header.operator
    return f"{stored['join']['name']}, groups" if stored["name"] == GROUPED_JOIN else str(stored["name"])


def schemas_of(header: log.Header, store: log.Store) -> dict[int, pa.Schema]:
    """Schemas of the streams with stored rows, by number in the state."""
    first = {entry.stream: entry for entry in reversed(header.segments) if entry.kind == "rows"}
    return {stream: log.read(entry, store).rows.schema for stream, entry in first.items()}


def query_of(header: log.Header, schemas: Mapping[int, pa.Schema] | None = None) -> JoinQuery:
    """The query that the header describes; without stored rows, types are parsed from their names."""
    stored = header.query
    with _described("query"):
        specs = tuple(_spec(s, (schemas or {}).get(i)) for i, s in enumerate(stored["streams"]))
        asof = AsOf.described(stored["asof"]) if "asof" in stored else None
        if "group_by" not in stored:
            return JoinQuery(specs, stored["how"], spread=stored.get("spread", 0), asof=asof)
        group_by = GroupBy.described(stored["group_by"])
        filtered_by = stored.get("filtered_by")
        return GroupedQuery(specs, stored["how"], asof=asof, group_by=group_by, filtered_by=filtered_by)


@contextmanager
def _described(what: str) -> Iterator[None]:
    """Refuse a description that this version does not know."""
    try:
        yield
    except StateError:
        raise
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StateFormatError(
            f"the state's header describes {'an operator' if what == 'operator' else 'a query'} in a way that this "
            f"version does not know ({error!r}).",
            hint="use the version that wrote it.",
        ) from error


def _spec(described: dict[str, Any], stored: pa.Schema | None) -> StreamSpec:
    kinds = {} if stored is None else {f.name: f.type for f in stored if f.name != POSITION}
    if list(kinds) != list(described["columns"]):  # groups, or no stored rows: an unknown type may be any
        kinds = {name: parse_type(text) or pa.null() for name, text in described["columns"].items()}
    return StreamSpec(
        described["name"],
        pa.schema(list(kinds.items())),
        described["time"],
        tuple(described["key"]),
        window_of(described),
        described["delay"],
        upstream_shards=described.get("upstream_shards", 0),
        order_by=described.get("order_by"),
        idle_after=described.get("idle_after"),
        late_share=described.get("late_share"),
        idle_clock=described.get("idle_clock"),
        null_safe=tuple(described.get("null_safe", ())),
        compared=described.get("compared"),
    )


def window_of(described: dict[str, Any]) -> Window:
    """The window of a stream that is described."""
    if "rows" in described:
        return RowsWindow(described["rows"], described["per_key"])
    if "interval" in described:
        return Interval(**described["interval"])
    if "tumbling" in described:
        return Tumbling(described["tumbling"])
    return Unbounded() if described["window"] is None else TimeWindow(described["window"], described["closed"])
