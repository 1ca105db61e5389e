"""The punctuations of a stream that an operator uses: those about its key there, in any order of the columns.

A punctuation about other columns does not close the key. It is refused, unless these columns are compared elsewhere in
the same join: by another operator of a tree, or by the same stream under another name. Then it is not used here: its
rows are no tuples, and close nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    FractionalType,
    IntegralType,
    NullType,
    TimestampNTZType,
    TimestampType,
)

from watersmeet.errors import ColumnError, QueryError, suggestion
from watersmeet.spark.planning import columns
from watersmeet.spark.punctuations import CLOSES_KEYS, ColumnConstraint, PunctuationRule, alone, with_rules

if TYPE_CHECKING:
    from watersmeet.spark.streams import Stream

# ------------------------------------------------------------------ of a stream


def checked(rule: PunctuationRule, df: DataFrame, time: str, stream: str) -> PunctuationRule:
    """A punctuation of a stream over `df`, with its columns as they are called there. Refuses what cannot be read."""
    rows, owner = df if rule.df is None else rule.df, stream
    if rule.df is not None:
        owner = f"`df` of `{rule.function}`, the punctuations of {stream},"
        _check_time(rule.df, df, time, owner)
    kind = columns.kind_of(rows, rule.condition, f"the condition of `{rule.function}`", owner)
    if not isinstance(kind, BooleanType | NullType):
        raise QueryError(
            f"the condition of `{rule.function}` of {stream} is {kind.simpleString()}; "
            "a row is a punctuation where it is true.",
            hint='write a comparison, e.g. wm.when("status = \'closed\'", on="…").',
        )
    about = tuple(_column(df, name, "`on` of `when`", stream) for name in rule.about)
    parts = rule.columns
    if rule.kind == "value":
        plain = rule.columns == rule.about
        parts = tuple(f"`{_column(rows, c, '`on` of `when`', owner)}`" if plain else c for c in parts)
    elif rule.kind == "heartbeat" and isinstance(rule.columns[0], str):
        parts = (_column(rows, rule.columns[0], "`time` of `heartbeat`", owner),)
    for name, value in zip(_arguments(rule), parts, strict=True):
        if value is not None:
            value = f"`{value}`" if rule.kind == "heartbeat" and isinstance(value, str) else value
            _check_part(rule, name, columns.kind_of(rows, value, f"`{name}` of `{rule.function}`", owner), stream)
    return replace(rule, columns=parts, about=about, time=None if rule.df is None else time)


def _column(df: DataFrame, name: str, what: str, owner: str) -> str:
    found = columns.found(df, name)
    if found is None:
        hint = suggestion(name, df.columns, "its columns are")
        if what.startswith("`on`"):
            hint += ' on={"key": "…"} closes a value that stands in another column, or is computed.'
        raise ColumnError(f"{what} names column `{name}`, which {owner} does not have.", hint=hint)
    return found


def _check_time(punctuations: DataFrame, df: DataFrame, time: str, owner: str) -> None:
    if time not in punctuations.columns:
        raise ColumnError(
            f"`time` names column `{time}`, which {owner} does not have.",
            hint=suggestion(time, punctuations.columns, "its columns are"),
        )
    own, theirs = (frame.schema[time].dataType.simpleString() for frame in (df, punctuations))
    if own != theirs:
        raise ColumnError(
            f"`time` is column `{time}`, {own} in the stream and {theirs} in {owner} where it is the time of a "
            "punctuation; times of two types cannot be compared.",
            hint=f'cast it: df.withColumn("{time}", F.col("{time}").cast("{own}")).',
        )


def _arguments(rule: PunctuationRule) -> tuple[str, ...]:
    """The arguments of `wm` functions that give the parts of a pattern."""
    match rule.kind:
        case "range":
            return ("low", "high")
        case "list":
            return ("values",)
        case "heartbeat":
            return ("time",)
        case _:
            return ("on",) * len(rule.columns)


def _check_part(rule: PunctuationRule, name: str, kind: DataType, stream: str) -> None:
    if rule.kind == "list" and not isinstance(kind, ArrayType | NullType):
        raise ColumnError(
            f"`values` of `when` of {stream} is {kind.simpleString()}; a list of values is an array.",
            hint='close one value a row, wm.when("…", on="…"), or make an array of it: values="array(…)".',
        )
    if rule.kind == "heartbeat" and not isinstance(kind, TimestampType | TimestampNTZType):
        raise ColumnError(
            f"`{name}` of `heartbeat` of {stream} is {kind.simpleString()}; a time is a timestamp.",
            hint="convert it first, with F.to_timestamp(…) or F.timestamp_seconds(…).",
        )


# ------------------------------------------------------------------ of a stream in an operator


def fitted(s: Stream, key: tuple[str, ...], ids: tuple[int, ...]) -> Stream:
    """The stream with the punctuations that close values of `key`, parts in its order, for shards `ids`."""
    if s.upstream is not None:
        return replace(s, rules=_of_upstream(s, key, ids))
    rules, unused = [], []
    for rule in s.rules:
        if rule.kind not in CLOSES_KEYS:
            rules.append(rule)
        elif _is_about(s, rule, key):
            rules.append(_ordered(rule, key))
            _check_types(s, rules[-1], key)
        else:
            unused.append(f"`when` about {', '.join(rule.about)}")
            if rule.df is None:  # its rows are still no tuples
                rules.append(replace(rule, kind="empty", columns=(), about=()))
    known = tuple(k for k in s.constraints if _is_about(s, k, key))
    unused += [f"`{k.function}` about {k.column}" for k in s.constraints if k not in known]
    here = f"of `{s.name}` is not used: its operator joins `{s.name}` on {', '.join(key)}"
    cautions = [f"{what} {here}" for what in unused]
    return replace(s, rules=tuple(rules), constraints=known, cautions=(*s.cautions, *cautions))


def compared_rule(s: Stream, rule: PunctuationRule, column: str) -> PunctuationRule:
    """A punctuation about values of a column by which a join without equality compares the stream."""
    about = _ordered(rule, (column,))
    _check_types(s, about, (column,))
    return about


def _of_upstream(s: Stream, key: tuple[str, ...], ids: tuple[int, ...]) -> tuple[PunctuationRule, ...]:
    """The punctuations of a join's output that are about this key; ranges only where the shards are the same."""
    assert s.upstream is not None, "the stream is the output of a join"
    same_key, same_shards = sorted(s.upstream.key) == sorted(key), s.upstream.ids == ids
    return tuple(
        _ordered(rule, key) if rule.kind in CLOSES_KEYS else rule
        for rule in s.rules
        if rule.kind not in CLOSES_KEYS or (same_key and (same_shards or rule.kind != "range"))
    )


def _is_about(s: Stream, source: PunctuationRule | ColumnConstraint, key: tuple[str, ...]) -> bool:
    """Whether values of the key are closed; False for columns that are compared elsewhere. Refuses the rest."""
    about = (source.column,) if isinstance(source, ColumnConstraint) else source.about
    if not about:
        _refuse_unnamed(s, source, key)
        return True
    if sorted(about) == sorted(key):
        return True
    if set(about) <= set(s.compared):
        return False
    listed = ", ".join(f"`{name}`" for name in about)
    raise ColumnError(
        f"`punctuation` of stream `{s.name}` is about column{'s' if len(about) > 1 else ''} {listed}, but the join is "
        f"on {', '.join(key)}; only the join key's values can be closed.",
        hint=f"join on {' and '.join(map(_text, about))}, or leave the punctuation out.",
    )


def _refuse_unnamed(s: Stream, source: PunctuationRule | ColumnConstraint, key: tuple[str, ...]) -> None:
    """Refuse values that are not known to be those of the key."""
    assert isinstance(source, PunctuationRule), "the others name their column"
    argument = "values" if source.kind == "list" else "low` and `high"
    others = sorted(set(s.compared) - set(key))
    if others:
        raise QueryError(
            f"`{argument}` of `when` of stream `{s.name}` are values of one column, and it is compared by "
            f"{', '.join((*key, *others))}; it is not clear which of them is meant.",
            hint=f"name it: wm.when(…, on={_text(key[0])}).",
        )
    if len(key) > 1 and source.kind == "list":
        raise ColumnError(
            f"`values` of `when` of stream `{s.name}` are values of one column, and the join is on "
            f"{', '.join(key)}; no value closes a key of several columns.",
            hint=f"close single keys: wm.when(…, on=[{', '.join(map(_text, key))}]).",
        )


def _ordered(rule: PunctuationRule, key: tuple[str, ...]) -> PunctuationRule:
    """The same punctuation with its parts in the order of the key."""
    if rule.kind != "value":
        return replace(rule, about=key) if len(key) == 1 else rule
    parts = dict(zip(rule.about, rule.columns, strict=True))
    return replace(rule, columns=tuple(parts[k] for k in key), about=key)


def _check_types(s: Stream, rule: PunctuationRule, key: tuple[str, ...]) -> None:
    """Refuse values that are not, or would not stay, values of the key."""
    rows = s.df if rule.df is None else rule.df
    kinds = [s.df.schema[k].dataType for k in key]
    if rule.kind == "range" and len(key) > 1:
        return  # refused by `Stream.spec`
    for n, (name, value) in enumerate(zip(_arguments(rule), rule.columns, strict=True)):
        if value is None:
            continue
        target = kinds[n] if rule.kind == "value" else kinds[0]
        given = rows.select(columns.expression(value)).schema[0].dataType
        if isinstance(given, ArrayType) and rule.kind == "list":
            given = given.elementType
        one = replace(rule, columns=tuple(v if i == n else _null(rule) for i, v in enumerate(rule.columns)))
        if _loses(given, target) or not _casts(one, s, kinds):
            raise ColumnError(
                f"`{name}` of `when` of stream `{s.name}` is {given.simpleString()}, and the key `{key[n % len(key)]}` "
                f"is {target.simpleString()}; the value that it would become is not the one that was closed.",
                hint=f"give values of the type of the key, e.g. cast({value} AS {target.simpleString()}).",
            )


def _null(rule: PunctuationRule) -> Any:
    return None if rule.kind == "range" else "NULL"


def _casts(rule: PunctuationRule, s: Stream, kinds: list[DataType]) -> bool:
    try:
        made = with_rules(s.df, [(0, rule)], s.time, kinds) if rule.df is None else alone(0, rule, s.time, kinds)
        return bool(made.columns)  # analyses the plan
    except AnalysisException:
        return False


def _loses(given: DataType, target: DataType) -> bool:
    """Whether a cast that Spark allows may change the value: 7.5 to 7, an instant to a local time or to a date."""
    times = (TimestampType, TimestampNTZType)
    if isinstance(target, IntegralType):
        return isinstance(given, FractionalType) and not (isinstance(given, DecimalType) and given.scale == 0)
    if isinstance(target, DecimalType):
        return isinstance(given, FloatType | DoubleType) or (
            isinstance(given, DecimalType) and given.scale > target.scale
        )
    if isinstance(target, (*times, DateType)):
        return isinstance(given, times) and type(given) is not type(target)
    return False


def _text(name: str) -> str:
    return f'"{name}"'
