"""Arguments of the wrong kind, and methods of DataFrames where there is none: refused in a sentence, with a hint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, GroupedData

from watersmeet.errors import MethodError, QueryError

_FURTHER = 'joined.as_stream(window="…") is the stream of its results.'
_GROUPS = "write them with wm.write, and read what was written as a stream."
#: Methods of a join by the DataFrame's name for the same.
_CALLED = {"groupby": "group_by", "isStreaming": "streaming"}
_WRITERS = ("write", "writeStream", "writeTo")
#: What is written instead of a method of DataFrames on a stream.
_ON_STREAMS = {
    "join": "wm.join(a, b, on=…).",
    "withWatermark": "here it is `delay` of the stream: wm.stream(df, time=…, delay=…).",
    "alias": "here it is `name` of the stream: wm.stream(df, name=…).",
}
_ON_JOINS = {"join": "a join with a further stream is wm.join(joined.as_stream(window=…), c, on=…)."}
#: What is written instead of a method of Spark's groups.
_ON_GROUPS = {
    "count": ".agg(n=wm.count()).",
    **{name: f'.agg(best=wm.{name}("…")).' for name in ("max", "min")},
    **{name: f'.agg(value=wm.{name}("…")).' for name in ("avg", "mean", "sum")},
    "pivot": ".agg(n=wm.count()), and pivot the table that it is written to.",
}


def kind_of(value: Any) -> str:
    """A value as messages name it."""
    from watersmeet.spark.group_by import Grouped, Grouping
    from watersmeet.spark.joined import Joined
    from watersmeet.spark.streams import Stream

    for kind, name in ((Joined, "a join"), (Grouped, "groups"), (Grouping, "a `group_by` without `agg`")):
        if isinstance(value, kind):
            return name
    if isinstance(value, Stream):
        return "a stream"
    if value is None:
        return "None"
    name = next((k.__name__ for k in (Column, DataFrame) if isinstance(value, k)), type(value).__name__)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def further(value: Any, otherwise: str) -> str:
    """The hint for a value that is not a stream to be joined."""
    return {"a join": _FURTHER, "groups": _GROUPS, "a stream": "it is one already."}.get(kind_of(value), otherwise)


def require_dataframe(value: Any) -> None:
    """Refuse a `df` of a stream that is no DataFrame."""
    if not isinstance(value, DataFrame):
        hint = further(value, "e.g. wm.stream(spark.readStream.table(…), time=…).")
        raise QueryError(f"`df` is {kind_of(value)}; a stream is made of a DataFrame.", hint=hint)


def require_streams(streams: tuple[Any, ...]) -> None:
    """Refuse arguments of `join` that are no streams."""
    from watersmeet.spark.streams import Stream

    if len(streams) == 1 and isinstance(streams[0], list | tuple):
        raise QueryError("`join` takes streams one by one; got a list.", hint="write wm.join(*streams, on=…).")
    for n, s in enumerate(streams):
        if n and isinstance(s, str | Column | list | tuple):
            raise QueryError(
                f"`join` takes streams by position, and all else by name; got {kind_of(s)}.",
                hint="wm.join(a, b, on=…, how=…).",
            )
        if not isinstance(s, Stream):
            hint = further(s, 'wrap it: wm.stream(df, time="…", window="…").')
            raise QueryError(f"`join` takes streams; got {kind_of(s).split(' ', 1)[-1]}.", hint=hint)


def require_join(value: Any, function: str) -> None:
    """Refuse anything but a join or its groups."""
    from watersmeet.spark.group_by import Grouped, Grouping
    from watersmeet.spark.joined import Joined

    if not isinstance(value, Joined | Grouped):
        hint = f"give what wm.join, wm.sql or agg returned: wm.{function}(joined, …)."
        if isinstance(value, DataFrame):
            hint = f"give the join itself, not its `df`: wm.{function}(joined, …)."
        if isinstance(value, Grouping):
            hint = "add what to compute: .agg(n=wm.count())."
        raise QueryError(f"`{function}` takes a join or its groups; got {kind_of(value)}.", hint=hint)


def require_text(value: Any, argument: str, what: str = "the name of a column") -> None:
    """Refuse anything but a text, a Column for example."""
    if not isinstance(value, str):
        raise QueryError(f"`{argument}` is {kind_of(value)}; it is {what}.", hint=f'give a text, {argument}="…".')


def require_list(value: Any, argument: str) -> None:
    """Refuse anything but a list or None; a text would be a list of letters."""
    if value is not None and not isinstance(value, list | tuple):
        raise QueryError(f"`{argument}` is {kind_of(value)}; it is a list.", hint=f"{argument}=[…].")


def require_session(value: Any, function: str) -> None:
    if type(value).__name__ != "SparkSession":  # that of Spark Connect is no subclass of the other
        raise QueryError(
            f"`spark` is {kind_of(value)}; `{function}` reads a checkpoint with a Spark session.",
            hint=f"wm.{function}(spark, …).",
        )


def require_bool(value: Any, argument: str) -> None:
    if not isinstance(value, bool):
        raise QueryError(f"`{argument}` is {value!r}; it is True or False.")


class NoDataFrame:
    """An object that has a DataFrame and is none: methods of DataFrames are refused by name, with a hint."""

    if not TYPE_CHECKING:  # a type checker still reports unknown names

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):
                return object.__getattribute__(self, name)  # a property that failed: raises its own error again
            if not name.startswith("_") and name in _columns(self):
                raise MethodError(
                    f"`{name}` is a column of {kind_of(self)}, not an attribute.", hint=_column_hint(self, name)
                )
            owners = [DataFrame, GroupedData] if kind_of(self).startswith("a `group_by`") else [DataFrame]
            owner = next((o for o in owners if not name.startswith("_") and hasattr(o, name)), None)
            if owner is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            have = "DataFrames have it" if owner is DataFrame else "Spark's GroupedData has it"
            raise MethodError(f"`{name}` is called on {kind_of(self)}; {have}.", hint=_instead(self, name))

        def __getitem__(self, item: Any) -> Any:
            if isinstance(item, str) and item in _columns(self):
                raise MethodError(
                    f"`{item}` is a column of {kind_of(self)}, not an item of it.", hint=_column_hint(self, item)
                )
            raise MethodError(
                f"[{item!r:.40}] is written behind {kind_of(self)}, which has no items.", hint=_instead(self, "select")
            )

        __iter__ = None  # an object with items would be taken for a sequence


def _columns(of: Any) -> list[str]:
    """Columns of the DataFrame that a stream is made of, or that a join gives."""
    kind = kind_of(of)
    if not vars(of):  # it is being copied or unpickled
        return []
    if kind == "a stream":
        return list(of.df.columns)
    return list(of.names) if kind in ("a join", "groups") else []


def _column_hint(of: Any, name: str) -> str:
    if kind_of(of) == "a stream":
        return f'take it from its DataFrame: {of.name or "stream"}.df.{name}, or name it: "{name}".'
    return f'joined.df.{name}, or its name, "{name}".'


def _instead(of: Any, name: str) -> str:
    kind = kind_of(of)
    if kind == "a stream" and name in _ON_STREAMS:
        return _ON_STREAMS[name]
    if kind == "a join" and name in _ON_JOINS:
        return _ON_JOINS[name]
    if kind == "a stream":
        return "do it with the DataFrame before wm.stream(df, …), or with the results: wm.join(…).df."
    if kind.startswith("a `group_by`"):
        return f"add what to compute first: {_ON_GROUPS.get(name, '.agg(n=wm.count()).df.')}"
    if name in _CALLED and hasattr(type(of), _CALLED[name]):
        return f"here it is called `{_CALLED[name]}`."
    if name in _WRITERS:
        return f"wm.write(joined, results=…, checkpoint=…), or joined.df.{name} for the results alone."
    return f"joined.df.{name} is that of the results."
