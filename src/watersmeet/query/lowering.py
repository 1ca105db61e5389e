"""Lowering of a query to a join: columns and filters below it, its condition, and the computation above it.

Conditions and computed columns of one stream are evaluated below the join, and only columns that are used above it pass
through, so that fewer bytes are packed, sent and stored. Above the join every column has a unique name.

Two exceptions. Where rows affect other rows (constraints, windows of rows) no row is filtered out below the join: a
condition becomes a boolean column, and the join evaluates that. Where the bytes of a row break ties of time, all of its
columns pass through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count

from sqlglot import exp

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.asof import AsOf
from watersmeet.model.grouping import Aggregate, Bucket
from watersmeet.model.windows import Interval, TimeWindow, Unbounded, Window
from watersmeet.query import time_bounds
from watersmeet.query.expressions import is_column
from watersmeet.query.grammar import CQL
from watersmeet.query.nesting_depth import nested
from watersmeet.query.parsed_query import PADDED, Auto, Column, Input, Query, aggregates_in, is_mean, streams_in
from watersmeet.query.source_spans import Place, error, place_of, place_of_name, placed
from watersmeet.query.spark_sql import ARGUMENTS

_KINDS: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.Avg: "mean",
    exp.First: "first",
    exp.FirstValue: "first",
    exp.Last: "last",
    exp.LastValue: "last",
    exp.ArrayAgg: "collect_list",
}
KNOWN_AGGREGATES = "known are count, count(DISTINCT …), sum, min, max, avg, first, last and collect_list."
#: Clauses behind an aggregate.
_MODIFIERS = exp.Filter | exp.IgnoreNulls | exp.RespectNulls | exp.WithinGroup
#: Comparisons of event times: whether the first is the later one, and whether it may be the same.
_COMPARED: dict[type[exp.Expr], tuple[bool, bool]] = {
    exp.GTE: (True, True),
    exp.GT: (True, False),
    exp.LTE: (False, True),
    exp.LT: (False, False),
}
#: Aggregates for which the order of results matters.
_IN_ORDER = (exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.ArrayAgg)


@dataclass(frozen=True, slots=True)
class Side:
    """A stream below the join: its filter, and its columns by their names above the join.

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
class LoweredQuery:
    """The arguments of the join, and the computation on its results. Expressions are over the columns of the results.

    `equal` has the equal columns, by stream. `by` and `aggregates` define groups; with groups, `having` and `outputs`
    are over the columns of the groups. `auto`: no windows, every stream is [AUTO]. Where conditions bound the time
    between the rows of two streams, they and the windows become `between`. `asof`: of an as-of join.
    """

    sides: tuple[Side, ...]
    equal: tuple[Mapping[str, str], ...]
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
    between: Interval | None = None  # of the second stream's time around the first one's, in place of windows
    null_safe: frozenset[str] = frozenset()  # columns in `equal` of which NULLs are equal
    asof: AsOf | None = None
    places: Mapping[str, Place] = field(default_factory=dict)  # positions of aggregates in the text


@dataclass(frozen=True, slots=True)
class DeclaredStream:
    """Properties of a stream that are not in the query: time column, tie-breaking column, unique keys."""

    time: str
    order_by: str | None = None
    unique: bool = False


@nested("query")
def lower(text: str, query: Query, streams: Mapping[str, DeclaredStream]) -> LoweredQuery:
    """The query as a join of `streams` (by their names in the query)."""
    return _Lowering(text, query, streams).lowered()


class _Lowering:
    def __init__(self, text: str, query: Query, streams: Mapping[str, DeclaredStream]) -> None:
        self.text = text
        self.query = query
        self.streams = streams
        self.padded = {query.inputs[i].name for i in PADDED.get(query.how, ())}
        self.computed: dict[str, list[tuple[str, exp.Expr]]] = {i.name: [] for i in query.inputs}
        self.keys = {column for group in query.equal for column in group}
        expressions = [e for _, e in query.outputs] + ([] if query.having is None else [query.having])
        in_order = any(e.find(*_IN_ORDER) for e in expressions)
        self.whole = {i.name for i in query.inputs if in_order or i.counted or streams[i.name].unique}
        self.whole |= {query.inputs[1].name} if query.asof else set()
        self.taken: set[str] = set()
        self.places: dict[str, Place] = {}
        self.names = self._names()
        self.used = {Column(i, c) for i, k in streams.items() for c in (k.time, k.order_by) if c is not None}
        self.used |= self.keys | {Column(i.name, c) for i in query.inputs if i.name in self.whole for c in i.columns}

    def lowered(self) -> LoweredQuery:
        query = self.query
        outputs, having, late = query.outputs, query.having, list(query.after)
        by: list[str | Bucket] = []
        aggregates: dict[str, Aggregate] = {}
        if query.groups:
            groups = [(g, self._group(g)) for g in query.groups]
            by = [b for _, b in groups]
            named = {g: b if isinstance(b, str) else b.name for g, b in groups}
            outputs = tuple((name, self._of_group(e, named, aggregates)) for name, e in outputs)
            having = None if having is None else self._of_group(having, named, aggregates)
            own, late = self._by_stream(late, [i.name for i in query.inputs if i.name not in self.padded])
            # group by the condition, too, and keep the groups where it is true: same groups, no row filtered
            by += [c.name for c in own]
            having = _all_of([*([] if having is None else [having]), *own])
            if not aggregates:
                aggregates[self._fresh("agg_0")] = Aggregate(
                    "count"
                )  # no aggregate in the query: count, so that groups exist
        else:
            outputs = tuple((name, self._above(e)) for name, e in outputs)
        asof = self._asof() if query.asof else None
        between, across = self._between() if asof is None else (None, ())
        own, rest = self._by_stream(across, [i.name for i in query.inputs])
        where, after = _all_of([*own, *map(self._pair, rest)]), _all_of(list(map(self._above, late)))
        auto = self._is_auto()
        sides = tuple(self._side(i if between is None else replace(i, window=None)) for i in query.inputs)
        aggs = tuple(aggregates.items())
        parts = (sides, self._equal(), query.how, where, after, outputs, tuple(by), aggs, having)
        null_safe = frozenset(self.names[column] for column in query.null_safe)
        return LoweredQuery(*parts, query.slide, query.updates, auto, between, null_safe, asof, self.places)

    def _between(self) -> tuple[Interval | None, tuple[exp.Expr, ...]]:
        """The bounds between the times of two streams, if there are any, and the other conditions on pairs."""
        inputs = self.query.inputs
        if len(inputs) != 2 or self.query.slide is not None:
            return None, self.query.across
        first, second = (Column(i.name, self.streams[i.name].time) for i in inputs)
        return time_bounds.interval(self.query.across, (first, second), [i.window for i in inputs])

    def _asof(self) -> AsOf:
        """Direction from the comparison of the event times in ON, tolerance from the window of the second stream."""
        left, right = (Column(i.name, self.streams[i.name].time) for i in self.query.inputs)
        found: list[tuple[str, bool]] = []
        for condition in self.query.across:
            sides = [Column(c.table, c.name) for c in (condition.this, condition.expression) if is_column(c)]
            if type(condition) not in _COMPARED or sides not in ([left, right], [right, left]) or found:
                message = "ON of an ASOF JOIN has equalities and one comparison of the event times."
                raise self._error(condition, message, f"… AND {_dotted(left)} >= {_dotted(right)}.")
            after, exact = _COMPARED[type(condition)]
            found.append(("backward" if after == (sides[0] == left) else "forward", exact))
        if not found:
            message = "ASOF JOIN without a comparison of the event times; nothing says where the nearest row is."
            hint = f"ON … AND {_dotted(left)} >= {_dotted(right)}."
            raise error(self.text, self.query.inputs[1].place, message, hint)
        first, second = self.query.inputs
        for one, allowed in ((first, (Unbounded,)), (second, (Unbounded, TimeWindow))):
            if one.window is not None and not isinstance(one.window, allowed):
                message = f"`{one.name}` has a window that an ASOF JOIN does not know."
                hint = f"[RANGE 10 SECONDS] behind `{second.name}` is how far away its row may be, at most."
                raise error(self.text, one.place, message, hint, WindowError)
        ((direction, exact),) = found
        return AsOf(direction, second.window.length if isinstance(second.window, TimeWindow) else None, exact)

    def _is_auto(self) -> bool:
        """Whether all streams are [AUTO]; refuses a mixture."""
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
        """The name above the join of each column that may be needed there: its own name, if that is free."""
        query = self.query
        expressions = [*query.across, *query.after, *query.groups, *(e for _, e in query.outputs)]
        expressions += [query.having] if query.having is not None else []
        needed = [Column(c.table, c.name) for e in expressions for c in e.find_all(exp.Column)]
        needed += [Column(i, c) for i, known in self.streams.items() for c in (known.time, known.order_by) if c]
        needed += [Column(i.name, c) for i in query.inputs if i.name in self.whole for c in i.columns]
        names: dict[Column, str] = {}
        for group in query.equal:
            names |= dict.fromkeys(group, self._free(group[0].name, group))
        rest = [column for column in dict.fromkeys(needed) if column not in names]
        shared = Counter(column.name.lower() for column in rest)
        for column in rest:
            own = column.name if shared[column.name.lower()] == 1 else f"{column.stream}_{column.name}"
            names[column] = self._free(own, [column])
        return names

    def _free(self, name: str, columns: Sequence[Column]) -> str:
        """Take a name that is free, ignoring case, and that no other column of these streams has."""
        inputs = ((self.query.input(column.stream), column) for column in columns)
        others = {name.lower() for one, column in inputs for name in one.columns if name != column.name}
        otherwise = f"{columns[0].stream}_{columns[0].name}"
        tries = chain((name, otherwise), (f"{otherwise}_{n}" for n in count(2)))
        found = next(n for n in tries if n.lower() not in self.taken | others)
        self.taken.add(found.lower())
        return found

    def _fresh(self, name: str) -> str:
        """Take a name that no column of a stream or of the results has."""
        every = self.taken | {column.lower() for i in self.query.inputs for column in i.columns}
        found = next(n for n in chain((name,), (f"{name}_{n}" for n in count(2))) if n.lower() not in every)
        self.taken.add(found.lower())
        return found

    def _equal(self) -> tuple[Mapping[str, str], ...]:
        return tuple({c.stream: self.names[group[0]] for c in group} for group in self.query.equal)

    # ------------------------------------------------------------ above the join

    def _pair(self, expression: exp.Expr) -> exp.Expr:
        """The expression over a combination of tuples; equal columns have one name there."""
        return expression.transform(lambda n: self._named(n) if isinstance(n, exp.Column) else n)

    def _by_stream(
        self, conditions: Sequence[exp.Expr], streams: Sequence[str]
    ) -> tuple[list[exp.Column], list[exp.Expr]]:
        """Conditions on a single one of these streams, as one computed column per stream; and the other conditions."""
        own = {s: [c for c in conditions if streams_in(c) == {s}] for s in streams}
        rest = [c for c in conditions if not any(c is mine for of in own.values() for mine in of)]
        columns = []
        for stream, of in own.items():
            whole = _all_of(of)
            if whole is not None:
                truth = exp.And(this=exp.Paren(this=whole), expression=exp.true())  # Spark refuses it unless boolean
                columns.append(placed(_bare(self._compute(stream, truth)), whole))
        return columns, rest

    def _above(self, expression: exp.Expr) -> exp.Expr:
        """The expression over a result. The key of a stream without a tuple in the result is NULL there."""

        def one(node: exp.Expr) -> exp.Expr:
            key = self._key_of_either(node)
            if key is not None:
                return placed(_bare(key), node)
            if not isinstance(node, exp.Column):
                return node
            named = self._named(node)
            if node.table in self.padded and Column(node.table, node.name) in self.keys:
                present = _bare(self._payload(node.table))
                return exp.Case(ifs=[exp.If(this=present.is_(exp.null()).not_(), true=named)])
            return named

        return expression.transform(one)

    def _payload(self, stream: str) -> str:
        """A column that is NULL in a result if and only if the stream has no tuple in it."""
        time = Column(stream, self.streams[stream].time)
        return self.names[time] if time not in self.keys else self._compute(stream, exp.true())

    def _key_of_either(self, node: exp.Expr) -> str | None:
        """The name of the result's key if the node is COALESCE of exactly its columns, else None."""
        if not isinstance(node, exp.Coalesce) or not all(isinstance(e, exp.Column) for e in node.iter_expressions()):
            return None
        columns = {Column(c.table, c.name) for c in node.find_all(exp.Column)}
        return next((self.names[group[0]] for group in self.query.equal if columns == set(group)), None)

    def _named(self, node: exp.Column) -> exp.Column:
        column = Column(node.table, node.name)
        self.used.add(column)
        return placed(_bare(self.names[column]), node)

    # ------------------------------------------------------------ groups

    def _group(self, expression: exp.Expr) -> str | Bucket:
        if isinstance(expression, exp.Anonymous) and expression.name.upper() == "BUCKET":
            arguments = expression.expressions
            if len(arguments) != 2 or not (isinstance(arguments[1], exp.Literal) and arguments[1].is_string):
                message = "BUCKET takes a time and a duration."
                raise self._error(expression, message, "BUCKET(b.bid_at, '1 minute').")
            try:
                length = durations.parse(arguments[1].name, "BUCKET")
            except WindowError as wrong:
                message = f"'{arguments[1].name}' is not a duration of fixed length."
                raise self._error(expression, message, "e.g. '1 minute', '2 hours'.", WindowError) from wrong
            if length <= 0:
                raise self._error(expression, "a bucket holds at least a microsecond.", "e.g. '1 minute'.", WindowError)
            column = self._column(arguments[0])
            return Bucket(column, length, self._fresh(f"{column}_bucket"))
        if isinstance(expression, exp.Literal):
            raise self._error(expression, "GROUP BY takes columns, not their numbers.", "write the column's name.")
        return self._column(expression)

    def _column(self, expression: exp.Expr) -> str:
        """The name above the join of a column, or of an expression over one stream (computed below the join)."""
        key = self._key_of_either(expression)
        if key is not None:
            return key
        streams, star = streams_in(expression), expression.find(exp.Star)
        if len(streams) != 1 or star or any(aggregates_in(expression)):
            message = "groups and aggregates are over columns or expressions of one stream."
            raise self._error(expression, message, "name a column, and compute what is of several before the join.")
        (stream,) = streams
        if not isinstance(expression, exp.Column):
            if stream in self.padded:
                message = (
                    f"`{stream}` has no row in some results of a {self.query.how} join; this is NULL there, or not."
                )
                raise self._error(expression, message, f"take a column of `{stream}` as it is, or of the other stream.")
            return self._compute(stream, expression)
        if stream in self.padded and Column(stream, expression.name) in self.keys:
            return self._compute(stream, expression)  # a copy: the key itself is not NULL without this stream's tuple
        return self._named(expression).name

    def _compute(self, stream: str, expression: exp.Expr) -> str:
        """The name of an expression that is computed below the join; equal expressions share one."""
        known = next((name for name, e in self.computed[stream] if e == expression), None)
        if known is None:
            known = self._fresh(f"{stream}_computed_{len(self.computed[stream])}")
            self.computed[stream].append((known, expression))
        return known

    def _of_group(self, expression: exp.Expr, groups: Mapping[exp.Expr, str], known: dict[str, Aggregate]) -> exp.Expr:
        """The expression over a group: grouping columns and aggregates are replaced by their names."""

        def one(node: exp.Expr) -> exp.Expr:
            if node in groups:
                return placed(_bare(groups[node]), node)
            if isinstance(node, exp.AggFunc) or is_mean(node):
                aggregate = self._aggregate(node)
                name = next((n for n, a in known.items() if a == aggregate), None) or self._fresh(f"agg_{len(known)}")
                known[name] = aggregate
                self.places.setdefault(name, place_of_name(node))
                return placed(_bare(name), node)
            if isinstance(node, exp.Column) and node.table:
                message = f"`{node.table}.{node.name}` is neither grouped by nor within an aggregate."
                raise self._error(node, message, "add it to GROUP BY, or take min(…) of it.", ColumnError)
            return node

        return expression.transform(one)

    def _aggregate(self, node: exp.Expr) -> Aggregate:
        kind, of, arguments = _KINDS.get(type(node)), node.this, node.meta.get(ARGUMENTS, 1)
        if is_mean(node):
            kind, of, arguments = "mean", (node.expressions or [None])[0], len(node.expressions)
        hint = KNOWN_AGGREGATES
        modified = isinstance(node.parent, _MODIFIERS)
        if kind is None or modified:
            whole = node.parent if modified and node.parent is not None else node
            raise self._error(node, f"{whole.sql(CQL)} is no aggregate that groups of a join have.", hint)
        if arguments != 1:
            message = f"{kind.replace('mean', 'avg')} takes one argument, and has {arguments}."
            raise self._error(node, message, "name one column, or compute one of several before the join.")
        if isinstance(of, exp.Order):
            raise self._error(node, "ORDER BY is not known in an aggregate.", "results are ordered by time.")
        if isinstance(of, exp.Distinct):
            if kind != "count" or len(of.expressions) != 1:
                raise self._error(node, "DISTINCT is known of count, over one column.", hint)
            return Aggregate("count_distinct", self._column(of.expressions[0]))
        if kind == "count" and isinstance(of, exp.Star | exp.Literal | exp.Boolean):
            return Aggregate("count")
        if not streams_in(of):
            message = f"{of.sql(CQL)} is the same in all rows; an aggregate is over a column."
            raise self._error(node, message, "count(*) counts rows.")
        return Aggregate(kind, self._column(of))

    # ------------------------------------------------------------ below the join

    def _side(self, one: Input) -> Side:
        columns: dict[str, exp.Expr] = {}
        for column, name in self.names.items():
            if column.stream == one.name and column in self.used:
                columns.setdefault(name, _bare(column.name))
        if one.name in self.whole:  # in the stream's order, which is the order of the row's bytes
            columns = {self.names[c]: _bare(c.name) for c in (Column(one.name, name) for name in one.columns)}
        columns |= {name: _own(e) for name, e in self.computed[one.name]}
        known = self.streams[one.name]
        where = _all_of([_own(f) for f in one.filters])
        time = self.names[Column(one.name, known.time)]
        order_by = None if known.order_by is None else self.names[Column(one.name, known.order_by)]
        window = None if isinstance(one.window, Auto) or self.query.asof else one.window
        return Side(one.stream, one.name, window, time, order_by, tuple(columns.items()), where)

    def _error(self, node: exp.Expr, what: str, hint: str, kind: type[QueryError] = QueryError) -> QueryError:
        return error(self.text, place_of(node), what, hint, kind)


def _dotted(column: Column) -> str:
    return f"{column.stream}.{column.name}"


def _bare(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _own(expression: exp.Expr) -> exp.Expr:
    """The expression over the unqualified columns of its one stream."""
    return expression.transform(lambda n: placed(_bare(n.name), n) if isinstance(n, exp.Column) else n)


def _all_of(conditions: Sequence[exp.Expr]) -> exp.Expr | None:
    wrapped = [exp.Paren(this=c) if isinstance(c, exp.Or) else c for c in conditions]
    return reduce(lambda a, b: exp.And(this=a, expression=b), wrapped) if wrapped else None
