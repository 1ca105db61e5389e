"""`window="auto"`: what `join` makes of it. How much is kept follows from the keys; nobody says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from watersmeet.errors import QueryError, WindowError
from watersmeet.model import sizes
from watersmeet.model.windows import FOREVER
from watersmeet.spark.streams import Stream

#: Options that mean something where windows are found, and nowhere else.
_OPTIONS = ("memory", "strategy", "buffer", "scrambling", "loss", "shed")


def read_options(
    streams: Sequence[Stream], algorithm: str, memory: str | int | None, strategy: str | None, options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
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
                hint='leave `delay` out; or give the streams windows, and delay="auto" says when they are over.',
            )
    if memory is not None:
        options = options | {"memory": sizes.parse(memory, "memory")}
        if strategy is None and not any(s.known or s.signs for s in streams):
            strategy = "auto"  # who says how much there is wants to stay within it
    return "wo_join", options | {"strategy": strategy or "none"}


def refuse_options(memory: str | int | None, strategy: str | None, options: dict[str, Any]) -> None:
    """Refuse what is for joins without windows alone."""
    given = {"memory": memory, "strategy": strategy} | options
    name = next((n for n in _OPTIONS if given.get(n) is not None), None)
    if name is not None:
        raise QueryError(
            f"`{name}` is about joins that find by themselves what to keep; this one has windows.",
            hint='say window="auto", or leave it out.',
        )


def without_time(s: Stream) -> Stream:
    """The stream with no row late by its time, unless it was given a delay, by which it is then.

    What another join tells has its progress from that, and nothing of it is late.
    """
    return s if s.delay or s.upstream is not None else replace(s, delay=FOREVER)


def refuse_tree(streams: Sequence[Stream]) -> None:
    """Refuse keys that are not common to all streams."""
    names = ", ".join(f"`{s.name}`" for s in streams)
    raise QueryError(
        f'`window` is "auto" and {names} have no key common to all of them; how far one stream is, is told by the key '
        "on which it meets all others.",
        hint="join on one column that ascends in every stream, or give the streams windows.",
    )
