"""A query as a join is told it: which columns each stream brings, what is asked where, what is computed afterwards.

Conditions and computed columns of one stream go below the join, and of its columns only those that something above
names, so that fewer bytes are packed, sent and kept. Above the join every column has one name of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, count

from sqlglot import exp

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.grouping import Aggregate, Bucket
from watersmeet.model.windows import Window
from watersmeet.query.grammar import CQL
from watersmeet.query.pointing import error, place_of
from watersmeet.query.queries import PADDED, Auto, Column, Input, Query, streams_in

_KINDS: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "mean",
    exp.First: "first",
    exp.Last: "last",
    exp.ArrayAgg: "collect_list",
}


@dataclass(frozen=True, slots=True)
class Side:
    """A stream below the join: which tuples take part, and its columns by the names they have above.

    Expressions are over the stream's own columns.
    """

    stream: str
    name: str
    window: Window | None
    time: str
    order_by: str | None
    columns: tuple[tuple[str, exp.Expr], ...]
    where: exp.Expr | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the join is told, and what is done with its results. Expressions are over the columns of the results.

    `on` are columns that all streams have, or equalities of two of them. `aggregates` and `by` are those of the groups;
    `having` and `outputs` are over the groups then, else over the results. `auto`: there are no windows.
    """

    sides: tuple[Side, ...]
    on: tuple[str, ...]
    how: str
    where: exp.Expr | None
    after: exp.Expr | None
    outputs: tuple[tuple[str, exp.Expr], ...]
    by: tuple[str | Bucket, ...] = ()
    aggregates: tuple[tuple[str, Aggregate], ...] = ()
    having: exp.Expr | None = None
    every: int | None = None
    updates: bool = False
    auto: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a stream beside the query: its time column, the column that breaks ties."""

    time: str
    order_by: str | None = None


def lower(text: str, query: Query, streams: Mapping[str, Known]) -> Plan:
    """The plan of a query over `streams`, by their names in the query."""
    return _Lowering(text, query, streams).plan()


class _Lowering:
    def __init__(self, text: str, query: Query, streams: Mapping[str, Known]) -> None:
        self.text = text
        self.query = query
        self.streams = streams
        self.padded = {query.inputs[i].name for i in PADDED.get(query.how, ())}
        self.computed: dict[str, list[tuple[str, exp.Expr]]] = {i.name: [] for i in query.inputs}
        self.names = self._names()
        self.used = {Column(i, c) for i, k in streams.items() for c in (k.time, k.order_by) if c is not None}
        self.used |= {column for group in query.equal for column in group}

    def plan(self) -> Plan:
        query = self.query
        outputs, having = query.outputs, query.having
        by: list[str | Bucket] = []
        aggregates: dict[str, Aggregate] = {}
        if query.groups:
            groups = [(g, self._group(g)) for g in query.groups]
            by = [b for _, b in groups]
            named = {g: b if isinstance(b, str) else b.name for g, b in groups}
            outputs = tuple((name, self._of_group(e, named, aggregates)) for name, e in outputs)
            having = None if having is None else self._of_group(having, named, aggregates)
            if not aggregates:
                aggregates["agg_0"] = Aggregate("count")  # a group is there if it has results
        else:
            outputs = tuple((name, self._above(e)) for name, e in outputs)
        where, after = (
            _all_of([f(e) for e in es]) for f, es in ((self._pair, query.across), (self._above, query.after))
        )
        auto = self._is_auto()
        sides = tuple(self._side(i) for i in query.inputs)
        aggs = tuple(aggregates.items())
        told = (sides, self._on(), query.how, where, after, outputs, tuple(by), aggs, having)
        return Plan(*told, query.slide, query.updates, auto)

    def _is_auto(self) -> bool:
        """Whether what is kept follows from the keys: of all streams, or of none."""
        auto = [i.name for i in self.query.inputs if isinstance(i.window, Auto)]
        others = [i.name for i in self.query.inputs if i.name not in auto]
        if auto and others:
            raise QueryError(
                f"stream `{auto[0]}` has the window [AUTO], and `{others[0]}` has not; how much to keep of one stream "
                "follows from the keys of all others.",
                hint="write [AUTO] behind every stream, or give every one a window.",
            )
        return bool(auto)

    # ------------------------------------------------------------ names above the join

    def _names(self) -> dict[Column, str]:
        """The name of each column that something above the join may need: its own, where that is free."""
        query = self.query
        told = [*query.across, *query.after, *query.groups, *(e for _, e in query.outputs)]
        told += [query.having] if query.having is not None else []
        needed = [Column(c.table, c.name) for e in told for c in e.find_all(exp.Column)]
        needed += [Column(i, c) for i, known in self.streams.items() for c in (known.time, known.order_by) if c]
        names: dict[Column, str] = {}
        taken: set[str] = set()
        for group in query.equal:
            names |= dict.fromkeys(group, self._free(group[0].name, group, taken))
        rest = [column for column in dict.fromkeys(needed) if column not in names]
        shared = Counter(column.name.lower() for column in rest)
        for column in rest:
            own = column.name if shared[column.name.lower()] == 1 else f"{column.stream}_{column.name}"
            names[column] = self._free(own, [column], taken)
        return names

    def _free(self, name: str, columns: Sequence[Column], taken: set[str]) -> str:
        """A name that is not taken and no other column of these streams has, in upper or lower case; taken then."""
        inputs = ((self.query.input(column.stream), column) for column in columns)
        others = {name.lower() for one, column in inputs for name in one.columns if name != column.name}
        otherwise = f"{columns[0].stream}_{columns[0].name}"
        tries = chain((name, otherwise), (f"{otherwise}_{n}" for n in count(2)))
        found = next(n for n in tries if n.lower() not in taken | others)
        taken.add(found.lower())
        return found

    def _on(self) -> tuple[str, ...]:
        out = []
        for group in self.query.equal:
            name, streams = self.names[group[0]], [column.stream for column in group]
            if len(streams) == len(self.query.inputs):
                out.append(name)
            else:
                out += [f"{streams[0]}.{name} = {other}.{name}" for other in streams[1:]]
        return tuple(out)

    # ------------------------------------------------------------ above the join

    def _pair(self, expression: exp.Expr) -> exp.Expr:
        """Over a combination, in which equal columns are one."""
        return expression.transform(lambda n: self._named(n) if isinstance(n, exp.Column) else n)

    def _above(self, expression: exp.Expr) -> exp.Expr:
        """Over a result: the key of a stream that has no tuple in it is NULL, though the result's is not."""
        keys = {column for group in self.query.equal for column in group}

        def one(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            named = self._named(node)
            if node.table in self.padded and Column(node.table, node.name) in keys:
                time = _bare(self.names[Column(node.table, self.streams[node.table].time)])
                return exp.Case(ifs=[exp.If(this=time.is_(exp.null()).not_(), true=named)])
            return named

        return expression.transform(one)

    def _named(self, node: exp.Column) -> exp.Column:
        column = Column(node.table, node.name)
        self.used.add(column)
        return _bare(self.names[column])

    # ------------------------------------------------------------ groups

    def _group(self, expression: exp.Expr) -> str | Bucket:
        if isinstance(expression, exp.Anonymous) and expression.name.upper() == "BUCKET":
            arguments = expression.expressions
            if len(arguments) != 2 or not (isinstance(arguments[1], exp.Literal) and arguments[1].is_string):
                said = "BUCKET takes a time and a duration."
                raise self._error(expression, said, "BUCKET(b.bid_at, '1 minute').")
            try:
                length = durations.parse(arguments[1].name, "BUCKET")
            except WindowError as wrong:
                said = f"'{arguments[1].name}' is not a duration of fixed length."
                raise self._error(expression, said, "e.g. '1 minute', '2 hours'.", WindowError) from wrong
            if length <= 0:
                raise self._error(expression, "a bucket holds at least a microsecond.", "e.g. '1 minute'.", WindowError)
            column = self._column(arguments[0])
            return Bucket(column, length, f"{column}_bucket")
        if isinstance(expression, exp.Literal):
            raise self._error(expression, "GROUP BY takes columns, not their numbers.", "write the column's name.")
        return self._column(expression)

    def _column(self, expression: exp.Expr) -> str:
        """The name above the join of a column, or of an expression over one stream, which is computed below."""
        streams = streams_in(expression)
        if len(streams) != 1:
            said = "groups and aggregates are over columns or expressions of one stream."
            raise self._error(expression, said, "compute the other stream's part as a column of its own.")
        (stream,) = streams
        keys = {column for group in self.query.equal for column in group}
        keyed = any(Column(stream, c.name) in keys for c in expression.find_all(exp.Column))
        if stream in self.padded and (keyed or not isinstance(expression, exp.Column)):
            said = f"`{stream}` has no tuple in some results of a {self.query.how} join; this is NULL or not, there."
            raise self._error(expression, said, "take a column of the other stream, or one that is no key.")
        if isinstance(expression, exp.Column):
            return self._named(expression).name
        known = next((name for name, e in self.computed[stream] if e == expression), None)
        if known is None:
            known = f"{stream}_computed_{len(self.computed[stream])}"
            self.computed[stream].append((known, expression))
        return known

    def _of_group(self, expression: exp.Expr, groups: Mapping[exp.Expr, str], known: dict[str, Aggregate]) -> exp.Expr:
        """Over a group: its columns and its aggregates by their names."""

        def one(node: exp.Expr) -> exp.Expr:
            if node in groups:
                return _bare(groups[node])
            if isinstance(node, exp.AggFunc):
                aggregate = self._aggregate(node)
                name = next((n for n, a in known.items() if a == aggregate), f"agg_{len(known)}")
                known[name] = aggregate
                return _bare(name)
            if isinstance(node, exp.Column) and node.table:
                said = f"`{node.table}.{node.name}` is neither grouped by nor within an aggregate."
                raise self._error(node, said, "add it to GROUP BY, or take min(…) of it.", ColumnError)
            return node

        return expression.transform(one)

    def _aggregate(self, node: exp.AggFunc) -> Aggregate:
        kind, of = _KINDS.get(type(node)), node.this
        hint = "known are count, count(DISTINCT …), sum, min, max, avg, first, last and collect_list."
        if kind is None or isinstance(node.parent, exp.Filter | exp.IgnoreNulls):
            whole = node.parent if isinstance(node.parent, exp.Filter | exp.IgnoreNulls) else node
            raise self._error(node, f"{whole.sql(CQL)} is no aggregate that groups of a join have.", hint)
        if isinstance(of, exp.Distinct):
            if kind != "count" or len(of.expressions) != 1:
                raise self._error(node, "DISTINCT is known of count, over one column.", hint)
            return Aggregate("count_distinct", self._column(of.expressions[0]))
        if kind == "count" and not streams_in(of):
            return Aggregate("count")
        return Aggregate(kind, self._column(of))

    # ------------------------------------------------------------ below the join

    def _side(self, one: Input) -> Side:
        columns: dict[str, exp.Expr] = {}
        for column, name in self.names.items():
            if column.stream == one.name and column in self.used:
                columns.setdefault(name, _bare(column.name))
        columns |= {name: _own(e) for name, e in self.computed[one.name]}
        known = self.streams[one.name]
        where = _all_of([_own(f) for f in one.filters])
        time = self.names[Column(one.name, known.time)]
        order_by = None if known.order_by is None else self.names[Column(one.name, known.order_by)]
        window = None if isinstance(one.window, Auto) else one.window
        return Side(one.stream, one.name, window, time, order_by, tuple(columns.items()), where)

    def _error(self, node: exp.Expr, what: str, hint: str, kind: type[QueryError] = QueryError) -> QueryError:
        return error(self.text, place_of(node), what, hint, kind)


def _bare(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _own(expression: exp.Expr) -> exp.Expr:
    """Over the columns of the one stream that it is about."""
    return expression.transform(lambda n: _bare(n.name) if isinstance(n, exp.Column) else n)


def _all_of(conditions: Sequence[exp.Expr]) -> exp.Expr | None:
    wrapped = [exp.Paren(this=c) if isinstance(c, exp.Or) else c for c in conditions]
    return reduce(lambda a, b: exp.And(this=a, expression=b), wrapped) if wrapped else None
