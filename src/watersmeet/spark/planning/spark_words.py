"""What a user of PySpark may write in a call, and what it is called here: the hints of refused calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

from watersmeet.errors import QueryError, suggestion
from watersmeet.joins import REGISTRY

P = ParamSpec("P")
R = TypeVar("R")

_OF_STREAM = "it belongs to a stream: wm.stream(df, time=…, {}=…)."
_OF_JOIN = "it belongs to the join: wm.join(a, b, {}=…)."
_READER = "name the streams by wm.stream(…, name=…): {}."
#: Arguments under other names, by function: the argument here, or (with a space in it) what to do.
OTHER_NAMES: dict[str, dict[str, str]] = {
    "stream": {
        **dict.fromkeys(("watermark", "withWatermark", "delayThreshold", "delay_threshold", "lateness"), "delay"),
        **dict.fromkeys(("eventTime", "event_time", "timeColumn", "time_column", "timestamp"), "time"),
        **dict.fromkeys(("windowDuration", "within", "retention"), "window"),
        **dict.fromkeys(("condition", "where"), "filter"),
        "alias": "name",
        "orderBy": "order_by",
        **{name: _OF_JOIN.format(name) for name in ("on", "how", "between")},
    },
    "join": {
        **dict.fromkeys(("condition", "expr", "filter", "joinExprs"), "where"),
        **dict.fromkeys(("type", "joinType", "join_type"), "how"),
        **dict.fromkeys(("key", "keys", "by", "using"), "on"),
        **dict.fromkeys(("numPartitions", "partitions"), "shards"),
        **dict.fromkeys(("watermark", "delay", "delayThreshold"), _OF_STREAM.format("delay")),
        "time": _OF_STREAM.format("time"),
        "hint": "algorithm",
        **dict.fromkeys(("left_on", "right_on"), _READER.format('on="a.x = b.y"')),
        **dict.fromkeys(("tolerance", "direction"), "the nearest row in time is wm.join_asof(a, b, on=…)."),
    },
    "join_asof": {
        **dict.fromkeys(("by", "key", "keys"), "on"),
        **dict.fromkeys(("type", "joinType", "join_type"), "how"),
        **dict.fromkeys(("leftAsOfColumn", "rightAsOfColumn"), _OF_STREAM.format("time")),
        "allowExactMatches": "allow_exact",
        "allow_exact_matches": "allow_exact",
        "window": "tolerance",
        "numPartitions": "shards",
        **dict.fromkeys(("left_on", "right_on", "left_by", "right_by"), _READER.format('on="a.x = b.y"')),
    },
    "write": {
        **dict.fromkeys(("path", "output", "sink", "foreachBatch", "table"), "results"),
        **dict.fromkeys(("checkpoint_location", "checkpointPath"), "checkpoint"),
        "output_mode": "outputMode",
        "processingTime": 'trigger="10 seconds".',
        **{name: f'trigger={{"{name}": True}}.' for name in ("availableNow", "once")},
        "continuous": 'there are micro-batches only: trigger="10 seconds".',
        **dict.fromkeys(("queryName", "query_name", "name"), "a query has no name here; `query.id` identifies it."),
        **dict.fromkeys(
            ("format", "partitionBy", "options", "option", "mode"),
            "a folder gets Parquet, wm.delta and wm.iceberg are tables; for all else give a function: "
            "results=lambda df, batch: df.write….",
        ),
    },
}
#: How each function is called.
CALLS = {
    "stream": 'wm.stream(df, time="…", window="…", delay="…")',
    "join": 'wm.join(a, b, on="…", how="…")',
    "join_asof": 'wm.join_asof(a, b, on="…", tolerance="…")',
    "write": 'wm.write(joined, results="…", checkpoint="…")',
}


def refuses_in_sentences(function: Callable[P, R]) -> Callable[P, R]:
    """Have calls with arguments that `function` does not take, or without one that it needs, refused with a hint."""
    parameters = signature(function).parameters.values()
    named = [p.name for p in parameters if p.kind is not Parameter.VAR_POSITIONAL]
    first = [p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    needed = [p.name for p in parameters if p.default is Parameter.empty and p.kind is not Parameter.VAR_POSITIONAL]
    takes_any = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    name = function.__name__

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for argument in kwargs:
            if argument not in named:
                raise unknown(name, argument, named[len(first) :])
        if len(args) > len(first) and not takes_any:
            listed = " and ".join(f"`{one}`" for one in first)
            raise QueryError(
                f"`{name}` takes {listed} by position, and all else by name; {len(args)} arguments have no name.",
                hint=f"{CALLS[name]}.",
            )
        missing = next((one for one in needed if one not in kwargs and one not in first[: len(args)]), None)
        if missing is not None:
            raise QueryError(f"`{missing}` of `{name}` is not given, and has no default.", hint=f"{CALLS[name]}.")
        return function(*args, **kwargs)

    return checked


def unknown(function: str, argument: str, known: list[str]) -> QueryError:
    """The refusal of an argument that a function does not have."""
    what, here = f"`{argument}` is no argument of `{function}`", OTHER_NAMES[function].get(argument)
    if here is not None:
        return QueryError(f"{what}.", hint=f"it is called `{here}` here." if here.isidentifier() else here)
    takes = [kind for kind in REGISTRY.values() if any(f.name == argument for f in kind.option_fields())]
    if takes and function == "join":
        best = min(takes, key=lambda kind: kind.traits.preference).__name__
        listed = ", ".join(kind.__name__ for kind in takes)
        return QueryError(f"{what}; it is an option of {listed}.", hint=f"algorithm=wm.{best}({argument}=…).")
    return QueryError(f"{what}.", hint=suggestion(argument, known, "it takes"))
