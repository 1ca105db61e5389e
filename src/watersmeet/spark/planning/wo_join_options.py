"""`window="auto"`: the options of a join without windows. How much is kept follows from the order of the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from watersmeet.errors import QueryError, WindowError
from watersmeet.joins import REGISTRY
from watersmeet.model import sizes
from watersmeet.model.windows import FOREVER
from watersmeet.spark.streams import Stream


def read_options(streams: Sequence[Stream], algorithm: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The algorithm, and its options, of a join without windows."""
    if algorithm not in ("auto", "wo_join"):
        raise QueryError(
            f'`window` is "auto" and `algorithm` is "{algorithm}"; only "wo_join" finds by itself what to keep.',
            hint="leave `algorithm` out.",
        )
    for s in streams:
        if s.late_share is not None:
            raise WindowError(
                f'`window` is "auto" and `delay` of stream `{s.name}` as well; what is kept follows from the order of '
                "keys, and no row is late by its time.",
                hint='leave `delay` out; or give the streams windows, and delay="auto" measures the delay.',
            )
        if s.idle_clock is not None:
            raise WindowError(
                f'`window` is "auto" and `idle_clock` of stream `{s.name}` is given; what is kept follows from the '
                "order of keys, which no clock shows.",
                hint="leave `idle_clock` out (`idle_after` follows the other streams), or give the streams windows.",
            )
    strategy = options.get("strategy")
    if options.get("memory") is not None:
        options = options | {"memory": sizes.parse(options["memory"], "memory")}
        if strategy is None and not any(s.constraints or s.rules for s in streams):
            strategy = "auto"  # a given bound is kept
    return "wo_join", options | {"strategy": strategy or "none"}


def windowed_memory(options: dict[str, Any]) -> tuple[int | None, dict[str, Any]]:
    """The memory of a join with windows or punctuations, in bytes, and the options without it."""
    return memory_bytes(options.get("memory")), {name: value for name, value in options.items() if name != "memory"}


def memory_bytes(given: Any) -> int | None:
    """The argument `memory` in bytes; None for no bound."""
    if given is None:
        return None
    if not isinstance(given, str) or given.strip().replace(".", "", 1).removeprefix("-").isdigit():
        raise QueryError(
            f"`memory` is {given!r}; a number alone could be bytes or megabytes.",
            hint='write it with its unit, like "256 MB" or "2 GB".',
        )
    memory = sizes.parse(given, "memory")
    if memory < 1:
        raise QueryError(
            f"`memory` is {given!r}; the rows that are joined need some.",
            hint='write it like "256 MB" or "2 GB", or leave it out for no bound.',
        )
    return memory


def refuse_options(options: dict[str, Any]) -> None:
    """Refuse options that only joins without windows take."""
    others = {f.name for name, kind in REGISTRY.items() if name != "wo_join" for f in kind.option_fields()}
    own = [f.name for f in REGISTRY["wo_join"].option_fields() if f.name not in others]
    name = next((n for n in own if options.get(n) is not None), None)
    if name is not None:
        raise QueryError(
            f"`{name}` is about joins that find by themselves what to keep; this one has windows.",
            hint='use window="auto", or leave it out.',
        )


def without_time(s: Stream) -> Stream:
    """The stream with no row late by its time, unless it was given a delay.

    The output of another join has its watermark from that join, and no row of it is late.
    """
    return s if s.delay or s.upstream is not None else replace(s, delay=FOREVER)


def refuse_tree(streams: Sequence[Stream]) -> None:
    """Refuse keys that are not common to all streams."""
    names = ", ".join(f"`{s.name}`" for s in streams)
    raise QueryError(
        f'`window` is "auto" and {names} have no key common to all of them; what is kept follows from the order '
        "of that key.",
        hint="join on one column that ascends in every stream, or give the streams windows.",
    )
