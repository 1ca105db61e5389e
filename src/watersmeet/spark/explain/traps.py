"""Cautions about a join's definition: windows, delays and punctuations that are rarely meant as written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from watersmeet.model import durations
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined

#: A delay this many times a window, and a window this many times another, are worth a caution.
DELAYS, WINDOWS = 10, 1000


def traps(joined: Joined) -> list[str]:
    """Cautions about a whole join, the operators of a tree included."""
    operators = (*joined.inner, joined)
    pairs = [p for o in operators for p in zip(o.query.streams, o.streams, strict=True)]
    specs = [spec for spec, s in pairs if s.upstream is None or not joined.inner]  # without the outputs of inner joins
    ignored = [text for operator in operators for text in _ignored(operator)]
    return [*of_instants(specs), *of_delays(specs), *of_lengths(specs), *of_idleness(specs), *ignored]


def of_instants(specs: Sequence[StreamSpec]) -> Iterator[str]:
    """Windows of 0, and which results they leave."""
    instants = [s for s in specs if isinstance(s.window, TimeWindow) and s.window.reach == 0]
    others = [s for s in specs if s not in instants]
    if len(instants) > 1:
        older = f", and none of {_names(others, 'or')} newer" if others else ""
        yield (
            f"{_names(instants)} have windows of 0: a result needs rows of them with the same event time, to the "
            f"microsecond{older}"
        )
    elif instants:
        (only,) = instants
        yield (
            f"{only.name} has a window of 0: the only results are those in which its row is the newest; one that is "
            f"older than its partner in {_names(others, 'or')}, if only by a microsecond, matches nothing"
        )


def of_delays(specs: Sequence[StreamSpec]) -> Iterator[str]:
    """Delays that keep rows far longer than the window."""
    for s in specs:
        slow = max((o for o in specs if o is not s and not o.timeless), default=None, key=lambda o: o.delay)
        if slow is None or not isinstance(s.window, TimeWindow) or not 0 < s.window.length * DELAYS <= slow.delay:
            continue
        kept, window = durations.formatted(s.window.length + slow.delay), durations.formatted(s.window.length)
        yield (
            f"rows of {s.name} are kept for {kept}, though its window is {window}: {slow.name} may come "
            f"{durations.formatted(slow.delay)} behind (its `delay`)"
        )


def of_lengths(specs: Sequence[StreamSpec]) -> Iterator[str]:
    """Windows of very different length: one of them may be a mistake."""
    found = [(s.window.length, s.name) for s in specs if isinstance(s.window, TimeWindow) and s.window.length]
    if found and min(found)[0] * WINDOWS <= max(found)[0]:
        (short, first), (long, second) = min(found), max(found)
        yield (
            f"the window of {second}, {durations.formatted(long)}, is {long // short:,} times that of {first}, "
            f"{durations.formatted(short)}"
        )


def of_idleness(specs: Sequence[StreamSpec]) -> Iterator[str]:
    """Streams that count as idle before their delay is over."""
    for s in specs:
        if s.idle_after is not None and s.idle_after < s.delay and not s.timeless:
            yield (
                f"`idle_after` of {s.name}, {durations.formatted(s.idle_after)}, is shorter than its `delay`, "
                f"{durations.formatted(s.delay)}: after a pause, rows within the delay can be late"
            )


def _ignored(joined: Joined) -> Iterator[str]:
    """Punctuations about keys that the operator makes no use of; heartbeats and ends move every watermark."""
    if joined.operator.algorithm.uses_punctuations:
        return
    for s in joined.streams:
        kinds = [*(type(k.constraint).__name__.lower() for k in s.constraints)]
        kinds += [rule.kind for rule in s.rules if rule.kind not in ("heartbeat", "end")]
        if kinds and s.upstream is None:
            yield (
                f"punctuations of {s.name} ({', '.join(dict.fromkeys(kinds))}) are ignored by "
                f"{joined.operator.name}: they purge nothing, and violations are not found"
            )


def _names(specs: Sequence[StreamSpec], last: str = "and") -> str:
    names = [s.name for s in specs]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}"
