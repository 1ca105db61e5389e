"""`on=` of a join: which columns of which streams are equal, and the operators that it takes to compare them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watersmeet.errors import QueryError
from watersmeet.spark.planning.arguments import kind_of

#: Columns that are equal, by the names of their streams; each stream has at most one of them.
Equal = Mapping[str, str]

_EQUALITY = re.compile(r"\s*`?([^`=]+?)`?\s*\.\s*`?([^`.=]+?)`?\s*==?\s*`?([^`=]+?)`?\s*\.\s*`?([^`.=]+?)`?\s*")
#: An equality by which a NULL equals a NULL.
_NULL_SAFE = re.compile(r"<=>|\bis\s+not\s+distinct\s+from\b", re.IGNORECASE)
_EXAMPLES = 'on="k", on=["k1", "k2"], or on=["a.x = b.x", "b.y = c.y"] with the names of the streams.'


@dataclass(frozen=True)
class Step:
    """Streams that meet in one operator: what was joined before (at first, the first stream), then `others`.

    `keys` has the key columns of each, those of what was joined before first, under the names they have in the result.
    """

    others: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]


def read(
    on: str | Sequence[str], columns: Mapping[str, Sequence[str]], *, ignore_case: bool = False
) -> tuple[list[Equal], list[bool]]:
    """The equal columns in `on`, and for each whether NULLs are equal as well.

    A name is a column of all streams, an equality one of two. NULLs are equal where all equalities are null-safe.
    """

    def spelled(named: set[tuple[str, str]]) -> set[tuple[str, str]]:
        return {(stream, _spelled(column, columns[stream])) for stream, column in named} if ignore_case else named

    if not isinstance(on, str | list | tuple):
        raise QueryError(f"`on` is {kind_of(on)}; it names the columns that are equal.", hint=_EXAMPLES)
    texts = [on] if isinstance(on, str) else list(on)
    if not texts:
        raise QueryError("`on` names no column; a join needs at least one key.")
    classes: list[set[tuple[str, str]]] = []
    plain: set[tuple[str, str]] = set()  # columns with an equality that is not null-safe
    for text in texts:
        if not isinstance(text, str):
            raise QueryError(f"`on` holds {kind_of(text)}; it names the columns that are equal.", hint=_EXAMPLES)
        is_name = "=" not in text and not _NULL_SAFE.search(text)
        if is_name or any(text in known for known in columns.values()):
            classes.append(spelled({(stream, text) for stream in columns}))
            plain |= classes[-1]
            continue
        for part in re.split(r"\s+and\s+", text.strip(), flags=re.IGNORECASE):
            classes.append(spelled(_equality(part, columns)))
            plain |= set() if _NULL_SAFE.search(part) else classes[-1]
    merged = _merged(classes)
    return [_one_column_each(found) for found in merged], [not found & plain for found in merged]


def _spelled(column: str, known: Sequence[str]) -> str:
    """The column as its stream writes it, in upper and lower case; one that it does not have stays as it is."""
    alike = [name for name in known if name.lower() == column.lower()]
    return column if column in known or len(alike) != 1 else alike[0]


def columns_of(stream: str, equal: Sequence[Equal], chosen: Sequence[bool]) -> frozenset[str]:
    """The columns of a stream in the equalities that are chosen."""
    return frozenset(e[stream] for e, is_chosen in zip(equal, chosen, strict=True) if is_chosen and stream in e)


def _equality(text: str, columns: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    found = _EQUALITY.fullmatch(_NULL_SAFE.sub("=", text))
    if found is None:
        raise QueryError(f"`on` has `{text}`, which is no equality of two columns.", hint=_EXAMPLES)
    sides = {(found[1], found[2]), (found[3], found[4])}
    for stream, _ in sides:
        if stream not in columns:
            raise QueryError(
                f"`on` has `{text}`, and no stream is called `{stream}`.",
                hint=f"they are called {', '.join(columns)}; wm.stream(…, name=…) gives a name.",
            )
    return sides


def _merged(classes: list[set[tuple[str, str]]]) -> list[set[tuple[str, str]]]:
    """Equalities with a common column, merged into one."""
    out: list[set[tuple[str, str]]] = []
    for found in classes:
        touching = [other for other in out if other & found]
        apart = [other for other in out if not other & found]
        out = [*apart, found.union(*touching)]
    return out


def _one_column_each(found: set[tuple[str, str]]) -> Equal:
    out: dict[str, str] = {}
    for stream, column in sorted(found):
        if stream in out:
            raise QueryError(
                f"`on` makes `{out[stream]}` and `{column}` of stream `{stream}` equal to each other.",
                hint=f'filter the stream first: df.where("{out[stream]} = {column}").',
            )
        out[stream] = column
    return out


def steps(names: Sequence[str], equal: Sequence[Equal]) -> list[Step]:
    """The operators, first to last: each takes in all streams that share its key with what was joined before."""
    called = {c: e[names[0]] for c, e in enumerate(equal) if names[0] in e}
    done, rest, out = [names[0]], list(names[1:]), []
    while rest:
        common = {s: [c for c in called if s in equal[c]] for s in rest}
        first = next((s for s in rest if common[s]), None)
        if first is None:
            raise QueryError(
                f"`on` has no equality between {_listed(done)} and {_listed(rest)}; all pairs would be results.",
                hint=_EXAMPLES,
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
    """Whether a stream has another equality with one of those taken, which this operator would not compare."""
    return any(stream in e and t in e for c, e in enumerate(equal) if c not in key for t in taken)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
