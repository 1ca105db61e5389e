"""`on=` of a join: which columns of which streams are equal, and the operators that it takes to compare them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watersmeet.errors import QueryError

#: Columns that are equal, by the names of their streams; each stream has at most one of them.
Equal = dict[str, str]

_EQUALITY = re.compile(r"\s*`?([^`=]+?)`?\s*\.\s*`?([^`.=]+?)`?\s*==?\s*`?([^`=]+?)`?\s*\.\s*`?([^`.=]+?)`?\s*")
_HOW_TO_SAY = 'on="k", on=["k1", "k2"], or on=["a.x = b.x", "b.y = c.y"] with the names of the streams.'


@dataclass(frozen=True)
class Step:
    """Streams that meet in one operator: what was joined before (at first, the first stream), then `others`.

    `keys` has the key columns of each, those of what was joined before first, under the names they have in the result.
    """

    others: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]


def read(on: str | Sequence[str], columns: Mapping[str, Sequence[str]]) -> list[Equal]:
    """What `on` says about streams with these columns: a name is one of all streams, an equality one of two."""
    texts = [on] if isinstance(on, str) else list(on)
    if not texts:
        raise QueryError("`on` names no column; a join needs at least one key.")
    classes: list[set[tuple[str, str]]] = []
    for text in texts:
        if not isinstance(text, str):
            raise QueryError(f"`on` holds a {type(text).__name__}; it says which columns are equal.", hint=_HOW_TO_SAY)
        if "=" not in text or any(text in known for known in columns.values()):
            classes.append({(stream, text) for stream in columns})
            continue
        for part in re.split(r"\s+and\s+", text.strip(), flags=re.IGNORECASE):
            classes.append(_equality(part, columns))
    return [_one_column_each(found) for found in _merged(classes)]


def _equality(text: str, columns: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    found = _EQUALITY.fullmatch(text)
    if found is None:
        raise QueryError(f"`on` says `{text}`, which is no equality of two columns.", hint=_HOW_TO_SAY)
    sides = {(found[1], found[2]), (found[3], found[4])}
    for stream, _ in sides:
        if stream not in columns:
            raise QueryError(
                f"`on` says `{text}`, and no stream is called `{stream}`.",
                hint=f"they are called {', '.join(columns)}; wm.stream(…, name=…) gives a name.",
            )
    return sides


def _merged(classes: list[set[tuple[str, str]]]) -> list[set[tuple[str, str]]]:
    """Equal to the same is equal."""
    out: list[set[tuple[str, str]]] = []
    for found in classes:
        touching = [other for other in out if other & found]
        apart = [other for other in out if not other & found]
        out = [*apart, found.union(*touching)]
    return out


def _one_column_each(found: set[tuple[str, str]]) -> Equal:
    out: Equal = {}
    for stream, column in sorted(found):
        if stream in out:
            raise QueryError(
                f"`on` makes `{out[stream]}` and `{column}` of stream `{stream}` equal to each other.",
                hint=f'filter the stream first: df.where("{out[stream]} = {column}").',
            )
        out[stream] = column
    return out


def steps(names: Sequence[str], equal: Sequence[Equal]) -> list[Step]:
    """The operators, first to last: each takes in all streams that what was joined before has the same key with."""
    called = {c: e[names[0]] for c, e in enumerate(equal) if names[0] in e}
    done, rest, out = [names[0]], list(names[1:]), []
    while rest:
        common = {s: [c for c in called if s in equal[c]] for s in rest}
        first = next((s for s in rest if common[s]), None)
        if first is None:
            raise QueryError(
                f"`on` has no equality between {_listed(done)} and {_listed(rest)}; all pairs would be results.",
                hint=_HOW_TO_SAY,
            )
        key, taken = common[first], [first]
        for s in rest:
            if s not in taken and common[s] == key and not _share_more(equal, key, s, taken):
                taken.append(s)
        out.append(
            Step(tuple(taken), (tuple(called[c] for c in key), *(tuple(equal[c][s] for c in key) for s in taken)))
        )
        called |= {c: e[s] for s in taken for c, e in enumerate(equal) if s in e and c not in called}
        done, rest = done + taken, [s for s in rest if s not in taken]
    return out


def _share_more(equal: Sequence[Equal], key: Sequence[int], stream: str, taken: Sequence[str]) -> bool:
    """Whether a stream has another equality with one of those taken, which this operator would not ask for."""
    return any(stream in e and t in e for c, e in enumerate(equal) if c not in key for t in taken)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
