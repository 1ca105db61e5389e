"""A stored state, opened without the program that wrote it: the header says what it is a state of.

What a state depends on stands in the header in plain words (`JoinQuery.describe`), and which family of joins it is of
shows in the notes. That is not enough to run the query again (predicates and promises are not read), but enough to
have the state exactly as the query would find it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from watersmeet.errors import StateFormatError
from watersmeet.joins import Join
from watersmeet.joins.counting import POSITION
from watersmeet.joins.general_lazy import GeneralLazyJoin
from watersmeet.joins.group_by import GroupedJoin, GroupsOf
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.running import RunningJoin
from watersmeet.joins.wo_join import WOJoin
from watersmeet.model.arrow_types import parse_type
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.state import log

#: More than any state takes: what reads a state is not to say that it does not fit.
_ENOUGH = 1 << 60


def reopen(header: log.Header, store: log.Store) -> RunningJoin[Any]:
    """The join with the state that the store holds."""
    join = operator_of(header, query_of(header, schemas_of(header, store))).start()
    log.rebuild(join, header, store)
    return join


def operator_of(header: log.Header, query: JoinQuery) -> Join:
    """A join that has this header's kind of state. Joins that differ only in how they match are one here."""
    notes = header.notes
    if isinstance(query, GroupedQuery):
        if "said" in notes:
            return GroupsOf(query, len(notes["said"]))
        return GroupedJoin(operator_of(header, query.join), query)
    if "floor" in notes:
        asked = notes["strategy"][0]
        memory = None if asked == "none" else _ENOUGH
        return WOJoin(query, buffer=notes["buffers"]["rule"], strategy=asked, memory=memory)
    if "order" in notes:
        return GeneralLazyJoin(query, every=notes.get("every"))
    return PWJoin(query) if "promises" in notes else HashJoin(query)


def kind_of(header: log.Header) -> str:
    """Which family of joins, by the name of one of them; behind it, if groups are kept, `groups`."""
    notes = header.notes
    if "said" in notes:
        return "groups"
    names = [("floor", "wo_join"), ("order", "general_lazy"), ("promises", "pwjoin")]
    name = next((name for note, name in names if note in notes), "hash")
    return f"{name}, groups" if "group_by" in header.query else name


def schemas_of(header: log.Header, store: log.Store) -> dict[int, pa.Schema]:
    """Columns of each stream of which rows are stored, by its number in the state."""
    first = {entry.stream: entry for entry in reversed(header.segments) if entry.kind == "rows"}
    return {stream: log.read(entry, store).rows.schema for stream, entry in first.items()}


def query_of(header: log.Header, schemas: Mapping[int, pa.Schema] | None = None) -> JoinQuery:
    """The query as the header describes it; types that no stored row shows are read from their names."""
    said = header.query
    try:
        specs = tuple(_spec(s, (schemas or {}).get(i)) for i, s in enumerate(said["streams"]))
        if "group_by" not in said:
            return JoinQuery(specs, said["how"])
        group_by = _group_by(said["group_by"])
        return GroupedQuery(specs, said["how"], group_by=group_by, filtered_by=said.get("filtered_by"))
    except (KeyError, TypeError, SyntaxError) as error:
        raise StateFormatError(
            f"the state's header describes a query in a way that this version does not know ({error!r}).",
            hint="use the version that wrote it.",
        ) from error


def _spec(said: dict[str, Any], stored: pa.Schema | None) -> StreamSpec:
    kinds = {} if stored is None else {f.name: f.type for f in stored if f.name != POSITION}
    if list(kinds) != list(said["columns"]):  # groups, or nothing stored: then any type will do where none is known
        kinds = {name: parse_type(text) or pa.null() for name, text in said["columns"].items()}
    return StreamSpec(
        said["name"],
        pa.schema(list(kinds.items())),
        said["time"],
        tuple(said["key"]),
        _window(said),
        said["delay"],
        tellers=said.get("tellers", 0),
        order_by=said.get("order_by"),
        idle_after=said.get("idle_after"),
        late_share=said.get("late_share"),
    )


def _window(said: dict[str, Any]) -> Window:
    if "rows" in said:
        return RowsWindow(said["rows"], said["per key"])
    return Unbounded() if said["window"] is None else TimeWindow(said["window"], said["closed"])


_RECORDS: dict[str, type[Any]] = {"GroupBy": GroupBy, "Bucket": Bucket, "Aggregate": Aggregate}


def _group_by(text: str) -> GroupBy:
    """What ``repr`` wrote; records and plain values, nothing is run."""
    found = _value(ast.parse(text, mode="eval").body)
    if not isinstance(found, GroupBy):
        raise TypeError(f"groups by {text}")
    return found


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
        return _RECORDS[node.func.id](**{str(k.arg): _value(k.value) for k in node.keywords})
    return ast.literal_eval(node)
