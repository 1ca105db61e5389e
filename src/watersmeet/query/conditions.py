"""What must hold: which columns are equal, and what is asked of a stream, of a combination, of a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.query.names import Names, qualified
from watersmeet.query.pointing import error, place_of, place_of_word
from watersmeet.query.queries import Column, Input, streams_in

#: Inputs of an outer join of which a condition may be asked before it: one in ON, one in WHERE.
_BELOW: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "left": ((1,), (0,)),
    "right": ((0,), (1,)),
    "full": ((), ()),
    "semi": ((0, 1), (0,)),
    "anti": ((1,), (0,)),
}

Conditions = tuple[exp.Expr, ...]


def conditions(
    select: exp.Select, how: str, inputs: Sequence[Input], names: Names
) -> tuple[tuple[tuple[Column, ...], ...], list[Input], Conditions, Conditions]:
    """Which columns are equal; the inputs with their own conditions; what is asked of combinations, and of results.

    Of an inner join ON and WHERE are one. Of an outer join a condition in ON makes a pair a match, one in WHERE filters
    what comes out, rows without a partner among it.
    """
    where, joins = select.args.get("where"), select.args["joins"]
    on = [*_using(joins, inputs, names), *(c for j in joins for c in _conjuncts(j.args.get("on"), names))]
    late = list(_conjuncts(where.this if where else None, names))
    if how == "inner":
        on, late = on + late, []
    equal, left = _classes(on)
    _refuse_untied(equal, inputs, [select.args["from_"].this, *(j.this for j in joins)], names)
    out = list(inputs)
    everywhere = tuple(range(len(out)))
    places = _BELOW.get(how, (everywhere, everywhere))
    across, after = (_asked_above(c, out, below) for c, below in zip((left, late), places, strict=True))
    return tuple(equal), out, across, after


def _asked_above(conditions: Sequence[exp.Expr], inputs: list[Input], below: Sequence[int]) -> Conditions:
    """Gives inputs the conditions that are about one of them and may be asked below the join; returns the others."""
    rest = []
    for condition in conditions:
        streams = streams_in(condition)
        owner = next((n for n in below if {inputs[n].name} == streams and not inputs[n].counted), None)
        if owner is None:
            rest.append(condition)
        else:
            inputs[owner] = replace(inputs[owner], filters=(*inputs[owner].filters, condition))
    return tuple(rest)


def _refuse_untied(
    equal: Sequence[Sequence[Column]], inputs: Sequence[Input], tables: Sequence[exp.Expr], names: Names
) -> None:
    tied = {column.stream for group in equal for column in group}
    for one, table in reversed(list(zip(inputs, tables, strict=True))):
        if one.name not in tied:
            said = f"no equality ties `{one.name}` to the other streams; all pairs would be results."
            other = next(i for i in inputs if i is not one)
            place = place_of(table.args.get("alias") or table)
            raise error(names.text, place, said, f"WHERE {one.name}.… = {other.name}.….")


def _conjuncts(condition: exp.Expr | None, names: Names) -> Iterator[exp.Expr]:
    if condition is None:
        return
    resolved = names.resolved(condition).unnest()
    for aggregate in resolved.find_all(exp.AggFunc):
        raise error(names.text, place_of_word(aggregate), "an aggregate in WHERE or ON.", "say it in HAVING.")
    yield from (c.unnest() for c in resolved.flatten()) if isinstance(resolved, exp.And) else (resolved,)


def _using(joins: Sequence[exp.Join], inputs: Sequence[Input], names: Names) -> Iterator[exp.Expr]:
    for join, one in zip(joins, inputs[1:], strict=True):
        for name in join.args.get("using") or ():
            sides = [names.column([exp.to_identifier(i.name), name])[0] for i in (inputs[0], one)]
            yield exp.EQ(this=qualified(sides[0], name), expression=qualified(sides[1], name))


def _classes(conditions: Sequence[exp.Expr]) -> tuple[list[tuple[Column, ...]], list[exp.Expr]]:
    """Columns that are equal, in classes with one column of each stream; and the conditions that say something else."""
    classes: list[list[Column]] = []
    rest: list[exp.Expr] = []
    for condition in conditions:
        sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ) else ()
        if len(sides) != 2 or not all(isinstance(s, exp.Column) for s in sides) or sides[0].table == sides[1].table:
            rest.append(condition)
            continue
        pair = [Column(s.table, s.name) for s in sides]
        touched = [c for c in classes if set(c) & set(pair)]
        merged = list(dict.fromkeys([column for c in touched for column in c] + pair))
        if len({column.stream for column in merged}) < len(merged):
            rest.append(condition)  # would make two columns of one stream equal: a condition of its own
            continue
        classes = [c for c in classes if c not in touched] + [merged]
    return [tuple(c) for c in classes], rest
