"""From the text of a query to the query: its streams, what must hold between them, and what is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from watersmeet.errors import QueryError, WindowError
from watersmeet.model.windows import Window
from watersmeet.query.grammar import CQL, WINDOW, Bracket, parse
from watersmeet.query.names import Names, near, one_of_each, qualified
from watersmeet.query.pointing import Place, error, place_of
from watersmeet.query.queries import Column, Input, Query, streams_in

#: Parts of a SELECT that no stream of results has, the word they begin with, and what to do instead.
_NOT_HERE = {
    "with_": ("WITH", "name the streams in the call of wm.sql."),
    "distinct": ("DISTINCT", "GROUP BY the columns."),
    "order": ("ORDER", "results come as they are found; sort what you have written."),
    "sort": ("SORT", "results come as they are found; sort what you have written."),
    "limit": ("LIMIT", "a stream of results does not end."),
    "offset": ("OFFSET", "a stream of results does not end."),
    "qualify": ("QUALIFY", "use a window in brackets behind the stream."),
    "windows": ("WINDOW", "use a window in brackets behind the stream."),
    "laterals": ("LATERAL", "explode the column of a stream before the join."),
    "distribute": ("DISTRIBUTE", "the join divides its input by key itself."),
    "cluster": ("CLUSTER", "the join divides its input by key itself."),
}
_HOW = {("", ""): "inner", ("", "INNER"): "inner", ("", "CROSS"): "inner", ("LEFT", ""): "left", ("RIGHT", ""): "right"}
_HOW |= {("FULL", ""): "full", ("LEFT", "SEMI"): "semi", ("", "SEMI"): "semi", ("LEFT", "ANTI"): "anti"}
_HOW |= {(side, "OUTER"): side.lower() for side in ("LEFT", "RIGHT", "FULL")} | {("", "ANTI"): "anti"}
#: Inputs of which a condition may be asked before the join: of those in ON, and of those in WHERE.
_BELOW = {
    "inner": ((0, 1), (0, 1)),
    "left": ((1,), (0,)),
    "right": ((0,), (1,)),
    "full": ((), ()),
    "semi": ((0, 1), (0,)),
    "anti": ((1,), (0,)),
}


def read(
    text: str,
    streams: Mapping[str, Sequence[str]],
    windows: Mapping[str, Window] | None = None,
    *,
    case_sensitive: bool = False,
) -> Query:
    """The query that a text asks of `streams` (their columns by name); what is wrong with it is said and shown.

    `windows` are those of streams to which the query gives none.
    """
    return _Reader(text, streams, windows or {}, case_sensitive).query()


class _Reader:
    def __init__(
        self, text: str, streams: Mapping[str, Sequence[str]], windows: Mapping[str, Window], case_sensitive: bool
    ) -> None:
        self.text = text
        self.streams = streams
        self.windows = windows
        self.case_sensitive = case_sensitive
        self.slides: list[tuple[int, Place]] = []

    def query(self) -> Query:
        select, is_stream = self._select()
        tables = [select.args["from_"].this, *(j.this for j in select.args.get("joins") or ())]
        inputs = [self._input(table) for table in tables]
        self.names = Names(self.text, inputs, case_sensitive=self.case_sensitive)
        one_of_each(self.text, inputs, [place_of(t.args.get("alias") or t) for t in tables], self.names)
        how = self._how(select)
        equal, inputs, across, after = self._conditions(select, how, inputs)
        self._partitions(tables, equal)
        outputs = self._outputs(select, inputs if how not in ("semi", "anti") else inputs[:1], equal)
        aliases = dict(outputs)
        group = select.args.get("group")
        groups = [self.names.resolved(g, aliases) for g in (group.expressions if group else ())]
        having = select.args.get("having")
        told = None if having is None else self.names.resolved(having.this, aliases)
        query = Query(tuple(inputs), how, equal, outputs, across, after, tuple(groups), told, self._slide(), is_stream)
        self._check_told(query)
        return query

    # ------------------------------------------------------------ the SELECT and its streams

    def _select(self) -> tuple[exp.Select, bool]:
        tree, is_stream = parse(self.text), False
        if isinstance(tree, exp.Anonymous) and tree.name.upper() in ("ISTREAM", "DSTREAM", "RSTREAM"):
            if tree.name.upper() != "ISTREAM":
                said = f"{tree.name} is not computed; results are only ever added."
                raise self._error(place_of_word(tree), said, "use ISTREAM(SELECT …), or leave it out.")
            tree, is_stream = tree.expressions[0] if tree.expressions else tree, True
        if not isinstance(tree, exp.Select):
            raise self._error(place_of(tree), "a query is one SELECT … FROM … over streams.", "see docs/cql.md.")
        for part, (word, instead) in _NOT_HERE.items():
            if tree.args.get(part):
                raise self._error(self._word(word), f"{word} has no meaning for a stream of results.", instead)
        if not tree.args.get("from_") or not tree.args.get("joins"):
            raise self._error(self._word("FROM"), "a query joins two streams or more.", "FROM a, b WHERE a.k = b.k.")
        return tree, is_stream

    def _input(self, table: exp.Expr) -> Input:
        if not isinstance(table, exp.Table) or len(table.parts) != 1 or not isinstance(table.this, exp.Identifier):
            said = "FROM takes streams by their names."
            raise self._error(place_of(table), said, "join the result of another query with `as_stream`.")
        found = next((s for s in self.streams if s == table.name), None)
        if found is None and not self.case_sensitive:
            found = next((s for s in self.streams if s.lower() == table.name.lower()), None)
        if found is None:
            hint = near(table.name, list(self.streams), "given are") if self.streams else "wm.sql(query, name=stream)."
            raise self._error(place_of(table.this), f"no stream `{table.name}` is given.", hint)
        bracket: Bracket | None = table.meta.get(WINDOW)
        if bracket is not None and bracket.slide is not None:
            self.slides.append((bracket.slide, bracket.place))
        window = self.windows.get(found) if bracket is None else bracket.window
        return Input(found, table.alias or table.name, window, tuple(self.streams[found]))

    def _how(self, select: exp.Select) -> str:
        joins = select.args["joins"]
        for join in joins:
            place = place_of(join.this)
            if join.args.get("method") or (join.side, join.kind) not in _HOW:
                words = " ".join(filter(None, (join.method, join.side, join.kind)))
                raise self._error(place, f"{words} JOIN is not known here.", "say JOIN, LEFT JOIN, … with ON or USING.")
        kinds = [_HOW[join.side, join.kind] for join in joins]
        outer = next((n for n, how in enumerate(kinds) if how != "inner"), None)
        if outer is not None and len(joins) > 1:
            said = f"a {kinds[outer]} join among {len(joins) + 1} streams; rows without a partner are defined for two."
            raise self._error(place_of(joins[outer].this), said, "join two first, and the result with `as_stream`.")
        return "inner" if outer is None else kinds[outer]

    def _slide(self) -> int | None:
        for slide, place in self.slides[1:]:
            if slide != self.slides[0][0]:
                raise self._error(place, "two SLIDEs that differ; results come at one pace.", "make them equal.")
        return self.slides[0][0] if self.slides else None

    # ------------------------------------------------------------ what must hold

    def _conditions(
        self, select: exp.Select, how: str, inputs: list[Input]
    ) -> tuple[tuple[tuple[Column, ...], ...], list[Input], tuple[exp.Expr, ...], tuple[exp.Expr, ...]]:
        """Which columns are equal; the inputs with their own conditions; what is asked of combinations, of results."""
        where = select.args.get("where")
        on = [
            *self._using(select, inputs),
            *(c for j in select.args["joins"] for c in self._conjuncts(j.args.get("on"))),
        ]
        late = list(self._conjuncts(where.this if where else None))
        if how == "inner":
            on, late = on + late, []
        equal, left = _classes(on)
        common = [c for c in equal if {column.stream for column in c} >= {i.name for i in inputs}]
        joined = {column.stream for c in equal for column in c}
        alone = next((i for i in reversed(inputs) if i.name not in joined), None)
        if not common and (alone is not None or len(inputs) == 2):
            one = alone or inputs[1]
            said = f"no equality ties `{one.name}` to the other streams; all pairs would be results."
            raise self._error(self._word(one.name), said, f"WHERE {one.name}.… = {inputs[0].name}.….")
        across: list[exp.Expr] = []
        after: list[exp.Expr] = []
        for conditions, rest, places in ((left, across, _BELOW[how][0]), (late, after, _BELOW[how][1])):
            for condition in conditions:
                owner = self._owner(condition, inputs)
                allowed = owner is not None and (how == "inner" or owner in places)
                if owner is not None and allowed and not inputs[owner].counted:
                    inputs[owner] = replace(inputs[owner], filters=(*inputs[owner].filters, condition))
                else:
                    rest.append(condition)
        return tuple(equal), inputs, tuple(across), tuple(after)

    def _owner(self, condition: exp.Expr, inputs: Sequence[Input]) -> int | None:
        """The one input that a condition is about."""
        streams = streams_in(condition)
        return next((n for n, i in enumerate(inputs) if {i.name} == streams), None)

    def _conjuncts(self, condition: exp.Expr | None) -> Iterator[exp.Expr]:
        if condition is None:
            return
        resolved = self.names.resolved(condition).unnest()
        for aggregate in resolved.find_all(exp.AggFunc):
            raise self._error(place_of_word(aggregate), "an aggregate in WHERE or ON.", "say it in HAVING.")
        yield from (c.unnest() for c in resolved.flatten()) if isinstance(resolved, exp.And) else (resolved,)

    def _using(self, select: exp.Select, inputs: Sequence[Input]) -> Iterator[exp.Expr]:
        for n, join in enumerate(select.args["joins"], 1):
            for name in join.args.get("using") or ():
                sides = []
                for one in (inputs[0], inputs[n]):
                    column, _ = self.names.column([exp.to_identifier(one.name), name])
                    sides.append(qualified(column, name))
                yield exp.EQ(this=sides[0], expression=sides[1])

    def _partitions(self, tables: Sequence[exp.Expr], equal: Sequence[Sequence[Column]]) -> None:
        """Rows may be counted per join key, and by nothing else."""
        for table, one in zip(tables, self.names.inputs, strict=True):
            bracket: Bracket | None = table.meta.get(WINDOW)
            if bracket is None or not bracket.partition:
                continue
            own = Names(self.text, [one], case_sensitive=self.case_sensitive)
            by = {own.column([c.this])[0].name for c in bracket.partition if isinstance(c, exp.Column)}
            keys = {column.name for c in equal for column in c if column.stream == one.name}
            if by != keys:
                named, on = (", ".join(sorted(names)) for names in (by, keys))
                said = f"PARTITION BY names {named}, and `{one.name}` is joined on {on}."
                raise self._error(bracket.place, said, "rows are counted per join key, or all together.", WindowError)

    # ------------------------------------------------------------ what is told

    def _outputs(
        self, select: exp.Select, inputs: Sequence[Input], equal: Sequence[Sequence[Column]]
    ) -> tuple[tuple[str, exp.Expr], ...]:
        out: list[tuple[str, exp.Expr, Place]] = []
        for item in select.expressions:
            inner = item.unalias()
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                of = [self.names.input(inner.args["table"])] if isinstance(inner, exp.Column) else inputs
                out += [(name, column, place_of(item)) for name, column in _all_columns(of, equal)]
            else:
                name = item.alias or (inner.name if isinstance(inner, exp.Column) else inner.sql(CQL))
                out.append((name, self.names.resolved(inner), place_of(item)))
        for n, (name, _, place) in enumerate(out):
            if any(self.names.same(name, other) for other, _, _ in out[:n]):
                raise self._error(place, f"two columns of the result are called `{name}`.", "rename one: … AS other.")
        return tuple((name, expression) for name, expression, _ in out)

    def _check_told(self, query: Query) -> None:
        if query.updates and query.how != "inner" and not query.groups:
            said = f"ISTREAM of a {query.how} join: whether a row has no partner is known when it leaves, not at once."
            raise self._error(self._word("ISTREAM"), said, "leave ISTREAM out: such a row comes when that is certain.")
        for _, expression in query.outputs:
            for window in expression.find_all(exp.Window):
                said = "OVER ranks rows of a finished result."
                raise self._error(place_of(window), said, "use a window in brackets behind the stream.")
        aggregates = [a for _, e in query.outputs for a in e.find_all(exp.AggFunc)]
        if (aggregates or query.having is not None) and not query.groups:
            place = place_of_word(aggregates[0]) if aggregates else self._word("HAVING")
            raise self._error(place, "an aggregate without GROUP BY is never final.", "GROUP BY a column.")

    # ------------------------------------------------------------ pointing

    def _word(self, word: str) -> Place:
        tokens: list[Token] = CQL().tokenize(self.text)
        found = next((t for t in tokens if t.text.upper().split(" ")[0] == word.upper()), None)
        return (0, 0) if found is None else (found.start, found.end)

    def _error(self, place: Place, what: str, hint: str, kind: type[QueryError] = QueryError) -> QueryError:
        return error(self.text, place, what, hint, kind)


def place_of_word(node: exp.Expr) -> Place:
    """Where the word of a function stands."""
    return (node.meta["start"], node.meta["end"]) if "start" in node.meta else place_of(node)


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


def _all_columns(inputs: Sequence[Input], equal: Sequence[Sequence[Column]]) -> Iterator[tuple[str, exp.Expr]]:
    """What * means: all columns, those that are equal once; one whose name stands in two streams says of which."""
    seen: set[Column] = set()
    names = [c.lower() for i in inputs for c in i.columns]
    for one in inputs:
        for name in one.columns:
            column = Column(one.name, name)
            same = next((set(c) for c in equal if column in c), {column})
            if not same & seen:
                shared = names.count(name.lower()) > 1 and len(same) == 1
                yield f"{one.name}_{name}" if shared else name, qualified(column)
            seen.add(column)
