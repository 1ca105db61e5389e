"""The table of hot keys: which keys are split over the shards, in which phase each is, and which phase may follow.

A key belongs to one shard, its home. Of a hot key the rows of one stream, a, are spread: each goes to one shard, any.
The rows of the other stream, b, are copied to every shard, so a row of a meets all of its partners where it is.
Packers route by the table, all of a batch by the same one; what lies in the state was routed by earlier ones:

=============  ===============  ================  ==================================================================
phase          a goes           b goes            until
=============  ===============  ================  ==================================================================
(no entry)     home             home
COPYING        home             to every shard    every b that went home alone has expired; then it may be SPREAD
SPREAD         to some shard    to every shard
COOLING        home             to every shard    every a that was spread has expired; then it may be EXPIRING
EXPIRING       home             home              every copy of a b has expired; then the entry may go
=============  ===============  ================  ==================================================================

A phase may last longer. COPYING may be given up for EXPIRING, COOLING go back to SPREAD, EXPIRING to COPYING.

**Each pair meets exactly once.** A row of a lies in one shard, and no shard has a row of b twice, so a pair meets at
most once. It is missed only if a is away from home and b is at home alone. Such an a came in a batch in SPREAD. Say b
came before it, or in the same batch. Since the entry began, b went home alone before the last COPYING or in EXPIRING,
so its time is at most `bound`, the newest time of stream b when that COPYING began. SPREAD began when
``bound < alive_from(b)``: no b as old as that matches any a that is not late from then on. Say b came after a, alone.
Then COOLING ended in between, when ``bound < alive_from(a)`` held for the newest time of stream a at its begin, when
the last a was spread: no a as old as that matches any b that is not late from then on.

Without an entry no shard but the home has a row that can match. So the next entry may spread the other stream.

`bound` is the newest event time that the stream had shown in all batches before, not in the key's rows alone: it is
``watermark + delay`` or less. `alive_from` follows from the watermarks before the batch that the table is for, by which
that batch decides what is late. All shards have the same watermarks; so each checks by itself that a table follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from watersmeet.errors import StateMismatchError
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.grouping import GroupedQuery
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import FOREVER, RowsWindow, alive_from

#: The kind of the metadata in a shard's header, and the name of the field in its report.
HOT_KEYS = "hot_keys"


class Phase(StrEnum):
    """Where rows of a hot key go; see above."""

    COPYING = "copying"
    SPREAD = "spread"
    COOLING = "cooling"
    EXPIRING = "expiring"


@dataclass(frozen=True, slots=True)
class HotKey:
    """An entry: the key as people read it, the number of the stream that is spread, and the phase with its bound."""

    key: str
    spread: int
    phase: Phase
    bound: int = BEFORE_ALL

    @property
    def copied(self) -> int:
        """The number of the other stream."""
        return 1 - self.spread


#: Hot keys by the words of their keys. Keys with one word are routed alike, and so have one phase.
Table = Mapping[int, HotKey]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far both streams are before a batch: the newest time of each, and the time from which its rows may match."""

    newest: tuple[int, ...]
    alive_from: tuple[int, ...]

    @classmethod
    def of(cls, query: JoinQuery, watermarks: Sequence[int], newest: int = BEFORE_ALL) -> Reached:
        """Those of a query by its watermarks; `newest` is of rows under an earlier, longer delay."""
        times = (max(w + s.delay, newest) for w, s in zip(watermarks, query.streams, strict=True))
        others = reversed(watermarks)
        return cls(tuple(times), tuple(alive_from(s.window, w) for s, w in zip(query.streams, others, strict=True)))

    def expired(self, stream: int, bound: int) -> bool:
        """Whether rows of the stream up to this time match nothing more."""
        return bound < self.alive_from[stream]

    def begin(self, key: str, spread: int) -> HotKey:
        """The first entry of a key."""
        return HotKey(key, spread, Phase.COPYING, self.newest[1 - spread])

    def following(self, hot: HotKey) -> dict[Phase | None, HotKey | None]:
        """The entries that may follow one, by their phase; None: it may go."""
        copying, expiring = (HotKey(hot.key, hot.spread, p, self.newest[hot.copied]) for p in _COPIED_NOT_SPREAD)
        spread = HotKey(hot.key, hot.spread, Phase.SPREAD)
        found: dict[Phase | None, HotKey | None]
        match hot.phase:
            case Phase.COPYING:
                found = {Phase.EXPIRING: expiring}
                return found | {Phase.SPREAD: spread} if self.expired(hot.copied, hot.bound) else found
            case Phase.SPREAD:
                return {Phase.COOLING: HotKey(hot.key, hot.spread, Phase.COOLING, self.newest[hot.spread])}
            case Phase.COOLING:
                found = {Phase.SPREAD: spread}
                return found | {Phase.EXPIRING: expiring} if self.expired(hot.spread, hot.bound) else found
            case Phase.EXPIRING:
                found = {Phase.COPYING: copying}
                return found | {None: None} if self.expired(hot.copied, hot.bound) else found


_COPIED_NOT_SPREAD = (Phase.COPYING, Phase.EXPIRING)


def may_split(query: JoinQuery) -> tuple[int, ...]:
    """The streams of a query whose rows may be spread; none: a key stays in its shard.

    The rows of the other stream have copies. So it is not one of which unmatched rows, or the first match of each, are
    results; nor do its rows close keys. Without a bounded window a phase would never end.
    """
    streams = query.streams
    if len(streams) != 2 or query.is_theta or query.asof is not None or isinstance(query, GroupedQuery):
        return ()
    for s in streams:
        times = not isinstance(s.window, RowsWindow) and s.window.reach < FOREVER and s.delay < FOREVER
        if not times or s.late_share is not None or s.constraints or s.upstream_shards:
            return ()
    return tuple(i for i in (0, 1) if 1 - i not in query.preserved)


def require_following(before: Table, after: Table, reached: Reached, spreadable: Sequence[int]) -> None:
    """Refuse a table that does not follow from the one before: pairs could be missed, or found twice."""
    for word in before.keys() | after.keys():
        old, new = before.get(word), after.get(word)
        if old is None:
            assert new is not None, "one of the two has the word"
            if new.spread in spreadable and new == reached.begin(new.key, new.spread):
                continue
        elif new == old or new in reached.following(old).values():
            continue
        known = old or new
        assert known is not None, "one of the two has the word"
        raise StateMismatchError(
            f"rows of key {known.key} were sent as {_text(new)}, and the state has the key as {_text(old)}; pairs of "
            "rows would be in different shards.",
            hint="run the query with wm.write and split_hot_keys, which goes on with the state's own table.",
        )


def _text(hot: HotKey | None) -> str:
    return "not split" if hot is None else f"{hot.phase} (stream {hot.spread}, bound {hot.bound})"


def as_json(table: Table) -> list[list[Any]]:
    """A table as plain data, always in the same order."""
    return [[word, hot.key, hot.spread, str(hot.phase), hot.bound] for word, hot in sorted(table.items())]


def from_json(entries: Sequence[Sequence[Any]]) -> dict[int, HotKey]:
    """The table of `as_json`."""
    return {int(word): HotKey(key, spread, Phase(phase), bound) for word, key, spread, phase, bound in entries}
