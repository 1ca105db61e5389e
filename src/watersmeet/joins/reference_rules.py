"""The oracle of punctuations: the rules for two streams (spec section 3), with nothing clever in them.

All that was ever said and shown is kept, and after each batch everything is worked out anew from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from watersmeet.joins.reference import Tuple, may_still_match, same_key, window_join
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.punctuations import (
    Clustered,
    End,
    Heartbeat,
    Ordered,
    Pattern,
    Punctuation,
    Range,
    Unique,
    Value,
    ValueList,
)
from watersmeet.model.queries import JoinQuery, StreamSpec


@dataclass(frozen=True, slots=True)
class News:
    """What one stream brings in one batch."""

    tuples: tuple[Tuple, ...] = ()
    said: tuple[Punctuation, ...] = ()
    ended: bool = False


@dataclass(slots=True)
class Closing:
    """A promise: no tuple that `pattern` covers after `time`; effective from batch number `since` on."""

    pattern: Pattern
    time: int
    since: int | None = None


@dataclass(slots=True)
class Outcome:
    """What the rules make of one batch, the first of each pair about the first stream."""

    late: tuple[list[Tuple], list[Tuple]]
    violations: tuple[list[Tuple], list[Tuple]]
    pairs: list[tuple[Tuple, ...]]  # combinations that became possible
    alone: tuple[list[Tuple], list[Tuple]]  # unmatched rows that are results; of a semi join the matched ones
    stored: tuple[list[Tuple], list[Tuple]]


def place(value: Any) -> tuple[bool, Any]:
    """Spark's order: NaN is larger than everything."""
    return (value != value, 0 if value != value else value)


def covers(pattern: Pattern, key: tuple[Any, ...]) -> bool:
    """Whether a pattern of the join attribute matches this key."""
    match pattern:
        case Value(value):
            return same_key(value, key)
        case ValueList(values):
            return any(same_key(value, key) for value in values)
        case Range(low, high, low_closed, high_closed):
            at = place(key[0])
            above = low is None or place(low) < at or (low_closed and place(low) == at)
            below = high is None or at < place(high) or (high_closed and at == place(high))
            return above and below
        case _:
            return False


@dataclass
class StreamRules:
    """What is known of one stream."""

    spec: StreamSpec
    progress: int = BEFORE_ALL
    closings: list[Closing] = field(default_factory=list)
    good: list[Tuple] = field(default_factory=list)  # neither late nor violating, with a key
    newest: int = BEFORE_ALL
    newest_keys: list[tuple[Any, ...]] = field(default_factory=list)
    largest: Any = None
    heard: int = BEFORE_ALL  # how far the other was when this one last showed something
    ended: bool = False  # before the other did

    def closed(self, key: tuple[Any, ...]) -> bool:
        if self.ended and self.spec.has_ordered_key:
            return True
        return any(c.since is not None and covers(c.pattern, key) for c in self.closings)

    def hear(self, news: News, batch: int) -> tuple[list[Tuple], list[Tuple], list[Tuple]]:
        """Take in a batch; gives its late tuples, its violations, and those without a key."""
        timely = [t for t in news.tuples if t.ts is not None and t.ts >= self.progress]
        late = [t for t in news.tuples if t not in timely]
        unkeyed = [t for t in timely if None in t.key]
        self.closings += [Closing(p.pattern, p.time) for p in news.said]
        self._hear_largest(news)
        keyed = [t for t in timely if None not in t.key]
        honest = [t for t in keyed if not self._breaks(t)]
        if any(isinstance(p, Unique) for p in self.spec.promises):
            honest = self._first_of_each(honest, batch)
        if any(isinstance(p, Clustered) for p in self.spec.promises):
            self._end_clusters(news, honest)
        self.good += honest
        return late, [t for t in keyed if t not in honest], unkeyed

    def _breaks(self, t: Tuple) -> bool:
        assert t.ts is not None, "a tuple without a time is late"
        return any(covers(c.pattern, t.key) and (c.since is not None or t.ts > c.time) for c in self.closings)

    def _first_of_each(self, honest: list[Tuple], batch: int) -> list[Tuple]:
        """Of tuples with one key the first in (time, row) stays, and closes its key at once."""
        first: list[Tuple] = []
        for t in sorted(honest, key=lambda t: (t.ts, t.row)):
            if not any(same_key(t.key, f.key) for f in first):
                first.append(t)
                assert t.ts is not None, "a tuple without a time is late"
                self.closings.append(Closing(Value(t.key), t.ts, batch))
        return first

    def _end_clusters(self, news: News, honest: list[Tuple]) -> None:
        """Close all keys of the stream but those of the newest tuple (or tuples) that it has shown."""
        shown = [t for t in news.tuples if t.ts is not None and None not in t.key]
        time = max((t.ts for t in shown if t.ts is not None), default=BEFORE_ALL)
        if shown and time >= max(self.newest, self.progress):
            again = self.newest_keys if time == self.newest else []
            self.newest, self.newest_keys = time, again + [t.key for t in shown if t.ts == time]
        if not self.newest_keys:
            return
        for t in [*self.good, *honest]:
            if not any(same_key(t.key, key) for key in self.newest_keys):
                self.closings.append(Closing(Value(t.key), self.newest))

    def _hear_largest(self, news: News) -> None:
        """Close all keys before the largest one shown, or before that less the slack, at the first time with it."""
        for promise in self.spec.promises:
            shown = [t for t in news.tuples if t.ts is not None and None not in t.key]
            if not isinstance(promise, Ordered) or not shown:
                continue
            largest = max((t.key[0] for t in shown), key=place)
            time = min(t.ts for t in shown if t.ts is not None and place(t.key[0]) == place(largest))
            if time >= self.progress and (self.largest is None or place(largest) > place(self.largest)):
                self.largest = largest
                try:
                    end = largest - promise.slack if promise.slack else largest
                except OverflowError:
                    continue  # nothing is that small
                self.closings.append(Closing(Range(None, end, high_closed=False), time))

    def advance(self, news: News) -> bool:
        """Make progress; tells whether there was a sign of life."""
        delay = self.spec.delay
        shown = [t.ts for t in news.tuples if t.ts is not None]
        shown += [p.time for p in news.said if isinstance(p.pattern, Value | ValueList | Range)]
        beats = [p.pattern.until for p in news.said if isinstance(p.pattern, Heartbeat)]
        self.progress = max([self.progress, *(time - delay for time in shown), *beats])
        if news.ended or any(isinstance(p.pattern, End) for p in news.said):
            self.progress = AFTER_ALL
        return bool(shown or beats)

    def pass_idle(self, lively: bool, other: int) -> None:
        """A stream that is silent for long, by the clock of the other, is taken to be that long behind it."""
        if self.spec.idle_after is None:
            return
        other = BEFORE_ALL if other == AFTER_ALL else other
        if lively or self.heard == BEFORE_ALL:
            self.heard = max(self.heard, other)
        elif other - self.heard > self.spec.idle_after:
            self.progress = max(self.progress, other - self.spec.idle_after)

    def take_effect(self, batch: int, other: int) -> None:
        """Let promises take effect."""
        self.ended = self.ended or self.progress == AFTER_ALL > other
        for c in self.closings:
            reached = self.progress >= c.time if self.spec.delay == 0 else self.progress > c.time
            if c.since is None and reached:
                c.since = batch


class Rules:
    """Two streams under the rules, fed batch by batch."""

    def __init__(self, query: JoinQuery, holds: Callable[[Tuple, Tuple], bool] | None = None) -> None:
        """`holds` is what `query.where` says of a pair."""
        self.query = query
        self.holds = holds
        self.streams = [StreamRules(spec) for spec in query.streams]
        self.batch = -1
        self._paired: list[tuple[Tuple, ...]] = []
        self._stored: tuple[list[Tuple], list[Tuple]] = ([], [])
        self._gone: tuple[list[Tuple], list[Tuple]] = ([], [])

    def step(self, news: tuple[News, News]) -> Outcome:
        self.batch += 1
        heard = [s.hear(n, self.batch) for s, n in zip(self.streams, news, strict=True)]
        lively = [stream.advance(n) for stream, n in zip(self.streams, news, strict=True)]
        a, b = (s.progress for s in self.streams)
        for stream, life, other in zip(self.streams, lively, (b, a), strict=True):
            stream.pass_idle(life, other)
        a, b = (s.progress for s in self.streams)
        for stream, other in zip(self.streams, (b, a), strict=True):
            stream.take_effect(self.batch, other)
        pairs = window_join([s.good for s in self.streams], [s.spec.window.reach for s in self.streams])
        if self.holds is not None:
            pairs = [(a, b) for a, b in pairs if self.holds(a, b)]
        new = [p for p in pairs if p not in self._paired]
        self._paired = pairs
        self._stored = stored = (self.stored(0), self.stored(1))
        alone: tuple[list[Tuple], list[Tuple]] = ([], [])
        for i in (0, 1):
            leaving = [t for t in self.streams[i].good if t not in stored[i] and t not in self._gone[i]]
            self._gone[i].extend(leaving)
            if i in self.query.preserved:
                alone[i].extend(t for t in leaving if self._matched(i, t) == (self.query.how == "semi"))
            if self.query.pads(i):
                alone[i].extend(heard[i][2])
        found = new if self.query.pairs else []
        return Outcome((heard[0][0], heard[1][0]), (heard[0][1], heard[1][1]), found, alone, stored)

    def stored(self, i: int) -> list[Tuple]:
        """Exactly the tuples that something yet to come may match; a semi join is through with a matched row."""
        own, other = self.streams[i], self.streams[1 - i]
        through = self.query.how == "semi" and i == 0
        return [
            t
            for t in own.good
            if may_still_match(t, own.spec.window.reach, [other.progress])
            and not other.closed(t.key)
            and not (through and self._matched(i, t))
        ]

    def finished(self, key: tuple[Any, ...]) -> bool:
        """Whether no result with this key can come any more, and the streams have said so.

        Both have closed it; or one has and holds no tuple of it, unless unmatched rows of the other are results.
        """
        closed = [s.closed(key) for s in self.streams]
        held = [any(same_key(t.key, key) for t in self._stored[i]) for i in (0, 1)]
        return all(closed) or any(closed[i] and not held[i] and not self.query.pads(1 - i) for i in (0, 1))

    def _matched(self, i: int, t: Tuple) -> bool:
        return any(pair[i] is t for pair in self._paired)
