"""Parser of queries: from text to a Query, with names resolved."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from watersmeet.errors import ColumnError, QueryError, WindowError, suggestion
from watersmeet.model.windows import Window
from watersmeet.query.grammar import CQL, WINDOW, Bracket, parse
from watersmeet.query.name_resolution import Names, one_of_each, qualified
from watersmeet.query.nesting_depth import nested
from watersmeet.query.parsed_query import Column, Input, Query, aggregates_in
from watersmeet.query.source_spans import Place, error, place_of, place_of_name, placed
from watersmeet.query.where_clause import conditions, refuse_ranking, together

#: Parts of a SELECT that a stream of results cannot have: their keyword, and what to do instead.
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
#: Kinds of ASOF JOIN.
_ASOF = ("inner", "left")


@nested("query")
def read(
    text: str,
    streams: Mapping[str, Sequence[str]],
    windows: Mapping[str, Window] | None = None,
    *,
    constrained: Collection[str] = (),
    case_sensitive: bool = False,
) -> Query:
    """The query in a text over `streams` (columns by name). An error shows the line and underlines the mistake.

    `windows` are the streams' own, for those without one in the query; `constrained` are streams with constraints.
    """
    return _Reader(text, streams, windows or {}, constrained, case_sensitive).query()


class _Reader:
    def __init__(
        self,
        text: str,
        streams: Mapping[str, Sequence[str]],
        windows: Mapping[str, Window],
        constrained: Collection[str],
        case_sensitive: bool,
    ) -> None:
        self.text = text
        self.streams = streams
        self.windows = windows
        self.constrained = constrained
        self.case_sensitive = case_sensitive
        self.slides: list[tuple[int, Place]] = []

    def query(self) -> Query:
        select, is_stream = self._select()
        tables = [select.args["from_"].this, *(j.this for j in select.args.get("joins") or ())]
        inputs = [self._input(table) for table in tables]
        self.names = Names(self.text, inputs, case_sensitive=self.case_sensitive)
        one_of_each(self.text, inputs, [i.place for i in inputs], self.names)
        how, asof = self._how(select), any(j.method for j in select.args["joins"])
        # WHERE filters the results of an as-of join: ON alone decides which row is the nearest
        matched = conditions(select, "left" if asof else how, inputs, self.names)
        equal, null_safe, inputs, across, after = matched
        self._partitions(tables, equal)
        outputs = self._outputs(select, inputs if how not in ("semi", "anti") else inputs[:1], equal, how)
        aliases = dict(outputs)
        group = select.args.get("group")
        groups = [self.names.resolved(g, aliases) for g in (group.expressions if group else ())]
        having = select.args.get("having")
        condition = None if having is None else self.names.resolved(having.this, aliases)
        parts = (tuple(inputs), how, equal, outputs, across, after, tuple(groups), condition)
        query = Query(*parts, self._slide(), is_stream, null_safe, asof)
        self._check_outputs(query)
        return query

    # ------------------------------------------------------------ the SELECT and its streams

    def _select(self) -> tuple[exp.Select, bool]:
        tree, is_stream = parse(self.text), False
        if isinstance(tree, exp.Anonymous) and tree.name.upper() in ("ISTREAM", "DSTREAM", "RSTREAM"):
            if tree.name.upper() != "ISTREAM":
                message = f"{tree.name} is not computed; results are only ever added."
                raise self._error(place_of_name(tree), message, "use ISTREAM(SELECT …), or leave it out.")
            tree, is_stream = tree.expressions[0] if len(tree.expressions) == 1 else tree, True
        if not isinstance(tree, exp.Select):
            raise self._error(place_of(tree), "a query is one SELECT … FROM … over streams.", "see docs/cql.md.")
        for part, (keyword, instead) in _NOT_HERE.items():
            if tree.args.get(part):
                raise self._error(self._keyword(keyword), f"{keyword} has no meaning for a stream of results.", instead)
        self._only(tree, ("expressions", "from_", "joins", "where", "group", "having"))
        if tree.args.get("group"):
            self._only(tree.args["group"], ("expressions",))
            for sets in tree.args["group"].find_all(exp.Rollup, exp.Cube, exp.GroupingSets):
                raise self._error(
                    place_of(sets), "groups within groups are not known here.", "write one query for each."
                )
        if not tree.args.get("from_") or not tree.args.get("joins"):
            raise self._error(self._keyword("FROM"), "a query joins two streams or more.", "FROM a, b WHERE a.k = b.k.")
        return tree, is_stream

    def _only(self, node: exp.Expr, parts: Sequence[str]) -> None:
        """Refuse parts of a node that sqlglot parses and this reader would ignore."""
        for part, value in node.args.items():
            if value and part not in parts:
                message = f"{part.strip('_').replace('_', ' ').upper()} is not known here."
                raise self._error(place_of(node), message, "see docs/cql.md for what a query may contain.")

    def _input(self, table: exp.Expr) -> Input:
        if not isinstance(table, exp.Table) or len(table.parts) != 1 or not isinstance(table.this, exp.Identifier):
            message = "FROM takes streams by their names."
            raise self._error(place_of(table), message, "join the result of another query with `as_stream`.")
        self._only(table, ("this", "alias"))
        if table.args.get("alias"):
            self._only(table.args["alias"], ("this",))
        found = next((s for s in self.streams if s == table.name), None)
        if found is None and not self.case_sensitive:
            found = next((s for s in self.streams if s.lower() == table.name.lower()), None)
        if found is None:
            hint = (
                suggestion(table.name, list(self.streams), "given are")
                if self.streams
                else "wm.sql(query, name=stream)."
            )
            raise self._error(place_of(table.this), f"no stream `{table.name}` is given.", hint)
        bracket: Bracket | None = table.meta.get(WINDOW)
        if bracket is not None and bracket.slide is not None:
            self.slides.append((bracket.slide, bracket.place))
        window = self.windows.get(found) if bracket is None else bracket.window
        columns, constrained = tuple(self.streams[found]), found in self.constrained
        place = place_of(table.args.get("alias") or table)
        return Input(found, table.alias or table.name, window, columns, constrained=constrained, place=place)

    def _how(self, select: exp.Select) -> str:
        joins = select.args["joins"]
        for join in joins:
            place = place_of(join.this)
            how = _HOW.get((join.side, join.kind))
            if how is None or (join.method and (join.method != "ASOF" or how not in _ASOF)):
                kind = " ".join(filter(None, (join.method, join.side, join.kind)))
                raise self._error(
                    place, f"{kind} JOIN is not known here.", "write JOIN, LEFT JOIN, … with ON or USING."
                )
            self._only(join, ("this", "method", "side", "kind", "match_condition", "on", "using"))
            if join.args.get("match_condition") and not join.method:
                message = "MATCH_CONDITION is that of an ASOF JOIN, and this is none."
                raise self._error(place, message, "write ASOF JOIN, or the condition in ON.")
            if join.method and len(joins) > 1:
                message = f"ASOF JOIN among {len(joins) + 1} streams; it is one of two."
                raise self._error(place, message, "join two first, with wm.join_asof(…).as_stream().")
        kinds = [_HOW[join.side, join.kind] for join in joins]
        outer = next((n for n, how in enumerate(kinds) if how != "inner"), None)
        if outer is not None and len(joins) > 1:
            message = (
                f"a {kinds[outer]} join among {len(joins) + 1} streams; rows without a partner are defined for two."
            )
            raise self._error(place_of(joins[outer].this), message, "join two first, and the result with `as_stream`.")
        return "inner" if outer is None else kinds[outer]

    def _slide(self) -> int | None:
        for slide, place in self.slides[1:]:
            if slide != self.slides[0][0]:
                raise self._error(place, "two SLIDEs that differ; results come at one pace.", "make them equal.")
        return self.slides[0][0] if self.slides else None

    # ------------------------------------------------------------ outputs

    def _partitions(self, tables: Sequence[exp.Expr], equal: Sequence[Sequence[Column]]) -> None:
        """Refuse PARTITION BY columns that are not the join key."""
        for table, one in zip(tables, self.names.inputs, strict=True):
            bracket: Bracket | None = table.meta.get(WINDOW)
            if bracket is None or not bracket.partition:
                continue
            own = Names(self.text, [one], case_sensitive=self.case_sensitive)
            by = {own.column([c.this])[0].name for c in bracket.partition if isinstance(c, exp.Column)}
            keys = {column.name for c in equal for column in c if column.stream == one.name}
            if by != keys:
                named, on = (", ".join(sorted(names)) for names in (by, keys))
                message = f"PARTITION BY names {named}, and `{one.name}` is joined on {on}."
                raise self._error(
                    bracket.place, message, "rows are counted per join key, or all together.", WindowError
                )

    def _outputs(
        self, select: exp.Select, inputs: Sequence[Input], equal: Sequence[Sequence[Column]], how: str
    ) -> tuple[tuple[str, exp.Expr], ...]:
        out: list[tuple[str, exp.Expr, Place]] = []
        for item in select.expressions:
            inner = item.unalias()
            if isinstance(inner, exp.Star) or (isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)):
                of = [self.names.input(inner.args["table"])] if isinstance(inner, exp.Column) else inputs
                all_columns = _all_columns(of, equal, how)
                out += [(name, placed(column, item), place_of(item)) for name, column in all_columns]
            else:
                name = item.alias or (inner.name if isinstance(inner, exp.Column) else inner.sql(CQL))
                out.append((name, self.names.resolved(inner), place_of(item)))
        for n, (name, _, place) in enumerate(out):
            if any(self.names.same(name, other) for other, _, _ in out[:n]):
                raise self._error(place, f"two columns of the result are called `{name}`.", "rename one: … AS other.")
        return tuple((name, expression) for name, expression, _ in out)

    def _check_outputs(self, query: Query) -> None:
        if query.updates and query.how != "inner" and not query.groups:
            message = (
                f"ISTREAM of a {query.how} join: whether a row has no partner is known when it leaves, not at once."
            )
            raise self._error(
                self._keyword("ISTREAM"), message, "leave ISTREAM out: such a row comes when that is certain."
            )
        expressions = [*query.after, *(e for _, e in query.outputs), *query.groups]
        expressions += [query.having] if query.having is not None else []
        for expression in expressions:
            refuse_ranking(expression, self.names)
        for column in (c for e in expressions for c in e.find_all(exp.Column)) if query.how in ("semi", "anti") else ():
            if column.table != query.inputs[0].name:
                what = (
                    f"LEFT {query.how.upper()} JOIN gives rows of `{query.inputs[0].name}`, without `{column.table}`."
                )
                raise self._error(place_of(column), what, f"use `{column.table}` in ON only.", ColumnError)
        aggregates = [a for _, e in query.outputs for a in aggregates_in(e)]
        if (aggregates or query.having is not None) and not query.groups:
            place = place_of_name(aggregates[0]) if aggregates else self._keyword("HAVING")
            raise self._error(place, "an aggregate without GROUP BY is never final.", "GROUP BY a column.")

    # ------------------------------------------------------------ errors

    def _keyword(self, keyword: str) -> Place:
        tokens: list[Token] = CQL().tokenize(self.text)
        found = next((t for t in tokens if t.text.upper().split(" ")[0] == keyword.upper()), None)
        return (0, 0) if found is None else (found.start, found.end)

    def _error(self, place: Place, what: str, hint: str, kind: type[QueryError] = QueryError) -> QueryError:
        return error(self.text, place, what, hint, kind)


def _all_columns(
    inputs: Sequence[Input], equal: Sequence[Sequence[Column]], how: str
) -> Iterator[tuple[str, exp.Expr]]:
    """The columns of *: equal columns once; a name that two streams have gets its stream's name as a prefix."""
    here = {i.name for i in inputs}
    seen: set[Column] = set()
    names = [c.lower() for i in inputs for c in i.columns]
    for one in inputs:
        for name in one.columns:
            column = Column(one.name, name)
            same = next((set(c) for c in equal if column in c), {column})
            if not same & seen:
                shared = names.count(name.lower()) > 1 and len(same) == 1
                others = [c for c in same - {column} if c.stream in here]
                meant = together(column, others[0], how) if others else qualified(column)
                yield f"{one.name}_{name}" if shared else name, meant
            seen.add(column)
