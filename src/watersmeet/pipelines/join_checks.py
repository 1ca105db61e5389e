"""Checks of [join] against the columns of its streams, as far as these are known without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from watersmeet.errors import suggestion
from watersmeet.pipelines.columns import Columns, unknown_columns
from watersmeet.pipelines.diagnostics import Mistake
from watersmeet.query.expressions import parse_expression

_EQUALITY = re.compile(r"\s*(\w+)\.(\w+)\s*(?:<=>|==?|\bis\s+not\s+distinct\s+from\b)\s*(\w+)\.(\w+)\s*", re.IGNORECASE)
_ALIASES = {"BYTE": "TINYINT", "SHORT": "SMALLINT", "INTEGER": "INT", "LONG": "BIGINT", "REAL": "FLOAT"}
#: Types of one family can be compared. A type in no family can be compared with itself only.
_FAMILIES = (
    ("TINYINT", "SMALLINT", "INT", "BIGINT"),
    ("FLOAT", "DOUBLE"),
    ("STRING",),
    ("BOOLEAN",),
    ("BINARY",),
    ("DATE",),
    ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"),
)
Key = tuple[str, str]  # stream and column


def check(given: dict[str, Any], known: Mapping[str, Columns]) -> Iterator[Mistake]:
    """Mistakes in the join. Checks that need unknown columns are left to Spark."""
    join, streams = given["join"], given["streams"]
    names = join.get("streams", list(streams))
    keys, mistaken = [], False
    for text in [join["on"]] if isinstance(join["on"], str) else join["on"]:
        found: list[list[Key]] = []
        wrong = list(_equal(text, names, found))
        mistaken |= bool(wrong)
        yield from wrong
        for equal in found:
            absent = [(s, c) for s, c in equal if s in known and c not in known[s]]
            for stream, column in absent:
                hint = suggestion(column, list(known[stream]), "its columns are")
                message = f"stream `{stream}` has no column `{column}`."
                yield Mistake(("join", "on"), message, hint, value=True, part=column)
            if not absent:
                yield from _types(equal, streams, known)
            mistaken |= bool(absent)
            keys.append(equal)
    if not mistaken:
        yield from _constraints(streams, names, keys)
        yield from _twice(names, keys, known, join.get("how", "inner"))
        yield from _where(join, names, known)


def _equal(text: str, names: Sequence[str], found: list[list[Key]]) -> Iterator[Mistake]:
    """Adds the equal columns of `on` to `found`: one name for all streams, or `a.x = b.y`, connected by AND."""
    if "=" not in text and not _EQUALITY.search(text):
        found.append([(name, text) for name in names])
        return
    for part in re.split(r"\s+and\s+", text.strip(), flags=re.IGNORECASE):
        sides = _EQUALITY.fullmatch(part)
        if sides is None:
            hint = 'write on = "item_id", or on = "auction.id = bid.item_id".'
            yield Mistake(("join", "on"), f"`{part}` is no equality of two columns.", hint, value=True, part=part)
            continue
        for stream in (sides[1], sides[3]):
            if stream not in names:
                hint = suggestion(stream, list(names), "the streams are")
                yield Mistake(("join", "on"), f"no stream is called `{stream}`.", hint, value=True, part=stream)
        if sides[1] in names and sides[3] in names:
            found.append([(sides[1], sides[2]), (sides[3], sides[4])])


def _types(equal: Sequence[Key], streams: Mapping[str, Any], known: Mapping[str, Columns]) -> Iterator[Mistake]:
    """Key columns of types that cannot be compared. Types inferred from a CSV file are not certain enough."""
    kinds: dict[str, str] = {}
    for stream, column in equal:
        sure = "schema" in streams[stream] or streams[stream]["format"] != "csv"
        kind = known[stream].get(column) if stream in known and sure else None
        if kind is not None:
            kinds[stream] = _ALIASES.get(kind, kind)
    family = [next((n for n, f in enumerate(_FAMILIES) if kind in f), None) for kind in kinds.values()]
    if None not in family and len(set(family)) > 1:
        listed = ", ".join(f"{kind} in `{stream}`" for stream, kind in kinds.items())
        message = f"`{equal[0][1]}` is {listed}; values of these types cannot be compared as they are."
        hint = f'cast one of them: select = ["*", "CAST({equal[0][1]} AS BIGINT) AS …"], or mend the schema.'
        yield Mistake(("join", "on"), message, hint, value=True)


def _constraints(streams: Mapping[str, Any], names: Sequence[str], keys: Sequence[Sequence[Key]]) -> Iterator[Mistake]:
    """Constraints (`unique`, `clustered`, `ordered`) on a column that is not in the key."""
    for name in names:
        mine = [column for equal in keys for stream, column in equal if stream == name]
        rules = streams[name].get("punctuation", [])
        for n, rule in enumerate(rules if isinstance(rules, list) else [rules]):
            at = ("streams", name, "punctuation", n) if isinstance(rules, list) else ("streams", name, "punctuation")
            for key in ("unique", "clustered", "ordered"):
                if mine and key in rule and rule[key] not in mine:
                    message = f"`{key}` is about `{rule[key]}`, and the join of `{name}` is on {', '.join(mine)}."
                    yield Mistake((*at, key), message, suggestion(rule[key], mine, "it is about the key:"), value=True)


def _twice(
    names: Sequence[str], keys: Sequence[Sequence[Key]], known: Mapping[str, Columns], how: str
) -> Iterator[Mistake]:
    """Columns outside the key that two streams have: their names would be ambiguous in the result."""
    if how in ("semi", "anti"):
        return
    taken = {column: stream for equal in keys for stream, column in equal if stream == names[0]}
    for name in names:
        own = {column for equal in keys for stream, column in equal if stream == name}
        for column in known.get(name, ()):
            if column in taken and column not in own:
                message = f"column `{column}` stands in stream `{name}` and in `{taken[column]}`."
                hint = f'name it otherwise in one of them: select = ["…", "{column} AS {name}_{column}"].'
                yield Mistake(("streams", name), message, hint)
            elif column not in own:
                taken[column] = name


def _where(join: dict[str, Any], names: Sequence[str], known: Mapping[str, Columns]) -> Iterator[Mistake]:
    """Mistakes in `where`, if the columns of all streams are known."""
    if "where" not in join or any(name not in known for name in names):
        return
    tree = parse_expression(join["where"])
    if tree is None:
        text = join["where"]
        yield Mistake(("join", "where"), f"`{text}` is not an expression.", "write it in Spark SQL.", True, text)
    else:
        every: Columns = {column: None for name in names for column in known[name]}
        yield from unknown_columns(("join", "where"), tree, every | dict.fromkeys(names))
