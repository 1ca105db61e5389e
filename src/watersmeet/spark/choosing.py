"""Which operator a join runs, and its options as the engine wants them: streams by number, times in microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.errors import QueryError, WindowError
from watersmeet.joins.wo_join import EQUATIONS
from watersmeet.model import durations
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow
from watersmeet.optimizer.planner import make_plan
from watersmeet.spark.streams import Stream


def algorithm_for(query: JoinQuery, streams: Sequence[Stream], options: dict[str, Any]) -> str:
    """What "auto" stands for: the optimiser's choice, from what is assumed of the streams before they run."""
    asked = tuple(options) if query.how == "inner" else ()  # a join of another kind says itself what it does not take
    return make_plan(query, options=asked, promising=[s.name for s in streams if s.signs]).algorithm


def engine_options(options: dict[str, Any], streams: Sequence[Stream], shards: int) -> dict[str, Any]:
    """Options with names of streams as their numbers, durations as microseconds, and the memory of one shard."""
    out = {name: value for name, value in options.items() if value is not None}
    names = [s.name for s in streams]
    if "order" in out:
        out["order"] = _numbered(out["order"], names)
    for name in ("every", "expiration"):
        if isinstance(out.get(name), str):
            out[name] = durations.parse(out[name], name)
    if "memory" in out:
        out["memory"] = max(1, out["memory"] // shards)  # keys are hashed, so shards need about as much each
    if isinstance(out.get("scrambling"), Mapping):
        out["scrambling"] = [out["scrambling"].get(name) for name in names]
    if isinstance(out.get("index"), list):
        out["index"] = tuple(out["index"])
    return out


def _numbered(order: Any, names: Sequence[str]) -> Any:
    if isinstance(order, list | tuple):
        return tuple(_numbered(one, names) for one in order)
    if not isinstance(order, str):
        return order
    if order not in names:
        raise QueryError(f"`order` names `{order}`; the streams are {', '.join(names)}.", hint=f"e.g. {list(names)!r}.")
    return names.index(order)


def shards_for(streams: Sequence[Stream], shards: int | None, partitions: int, options: dict[str, Any]) -> int:
    """In how many parts keys are divided. Rows of a whole stream can be counted, and sorted, in one place only."""
    whole = next((s for s in streams if isinstance(s.window, RowsWindow) and not s.window.per_key), None)
    equation = options.get("buffer") in EQUATIONS
    count = shards or (1 if whole is not None or equation else partitions)
    if shards is not None and shards < 1:
        raise QueryError(f"`shards` is {shards}; there is at least one.")
    if equation and count > 1:
        raise QueryError(
            f'`buffer` is "{options["buffer"]}" and `shards` is {count}; its lags are about the sorted stream as a '
            "whole, of which each shard would see its own keys only.",
            hint='leave `shards` out (it is 1 then), or use buffer="sound", which any number of shards can follow.',
        )
    if whole is not None and count > 1:
        raise WindowError(
            f"`window` of stream `{whole.name}` counts the rows of the whole stream, and `shards` is {count}; each "
            "shard would count its own rows only.",
            hint="leave `shards` out (it is 1 then), or count per key: wm.rows(n, per_key=True).",
        )
    return count


def refuse_unbounded(streams: Sequence[Stream], algorithm: str, *, listens: bool) -> None:
    """Refuse streams whose tuples neither a window nor a punctuation would ever remove."""
    for s in streams:
        others = [o for o in streams if o is not s]
        silent = [o for o in others if not (o.signs or o.known)]
        # a key that one stream has closed, and of which its window holds none any more, is finished for all
        ends = not silent or any(isinstance(o.window, int) for o in others if o not in silent)
        if s.window is None and not (listens and ends):
            names = " and ".join(f"`{o.name}`" for o in silent)
            why = f"{names} no punctuation" if listens else f'"{algorithm}" does not listen to punctuations'
            raise WindowError(
                f"stream `{s.name}` has no window, and {why} that would close its keys; "
                "its tuples would be kept for ever.",
                hint='give it one: wm.stream(df, time="…", window="10 minutes"), or say allow_unbounded=True.',
            )
