"""The oracle of punctuations: the rules (spec section 3), with nothing clever in them.

All that was ever said and shown is kept, and after each batch everything is worked out anew from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.joins.reference import Tuple, last_instant, same_key, window_join
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
from watersmeet.model.windows import RowsWindow


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
    """What the rules make of one batch, stream by stream."""

    late: tuple[list[Tuple], ...]
    violations: tuple[list[Tuple], ...]
    pairs: list[tuple[Tuple, ...]]  # combinations that became possible
    alone: tuple[list[Tuple], ...]  # unmatched rows that are results; of a semi join the matched ones
    stored: tuple[list[Tuple], ...]


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
    shown: list[Tuple] = field(default_factory=list)  # ... or without one: what is counted
    newest: int = BEFORE_ALL
    newest_keys: list[tuple[Any, ...]] = field(default_factory=list)
    largest: Any = None
    heard: int = BEFORE_ALL  # how far the others were when this one last showed something
    ended: bool = False  # before all others had

    def closed(self, key: tuple[Any, ...], horizon: int = AFTER_ALL) -> bool:
        """Whether an effective promise covers the key, and no tuple of it waits for the horizon."""
        said = self.ended and self.spec.has_ordered_key
        said = said or any(c.since is not None and covers(c.pattern, key) for c in self.closings)
        return said and not any(t.time >= horizon and same_key(t.key, key) for t in self.good)

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
        self.shown += [*honest, *unkeyed]
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

    def pass_idle(self, lively: bool, others: list[int]) -> None:
        """A stream that is silent for long, by the clock of the others, is taken to be that long behind them."""
        if self.spec.idle_after is None:
            return
        other = max([BEFORE_ALL, *(p for p in others if p < AFTER_ALL)])
        if lively or self.heard == BEFORE_ALL:
            self.heard = max(self.heard, other)
        elif other - self.heard > self.spec.idle_after:
            self.progress = max(self.progress, other - self.spec.idle_after)

    def take_effect(self, batch: int, *, ends_close: bool) -> None:
        """Let promises take effect."""
        self.ended = self.ended or (ends_close and self.progress == AFTER_ALL)
        for c in self.closings:
            reached = self.progress >= c.time if self.spec.delay == 0 else self.progress > c.time
            if c.since is None and reached:
                c.since = batch


class Rules:
    """Streams under the rules, fed batch by batch; results come out `every` so often (0: with every batch)."""

    def __init__(self, query: JoinQuery, every: int = 0, holds: Callable[[Tuple, Tuple], bool] | None = None) -> None:
        """`holds` is what `query.where` says of a pair."""
        self.query = query
        self.ends_close = True  # whether a stream that has ended has closed all keys, as PWJoin says
        self.every = every
        self.holds = holds
        self.streams = [StreamRules(spec) for spec in query.streams]
        self.horizon = BEFORE_ALL
        self.batch = -1
        self._found: list[tuple[Tuple, ...]] = []
        self._alive: list[list[Tuple]] = [[] for _ in self.streams]
        self._stored: tuple[list[Tuple], ...] = ()
        self._gone: tuple[list[Tuple], ...] = tuple([] for _ in self.streams)

    def step(self, news: Sequence[News]) -> Outcome:
        self.batch += 1
        heard = [s.hear(n, self.batch) for s, n in zip(self.streams, news, strict=True)]
        lively = [stream.advance(n) for stream, n in zip(self.streams, news, strict=True)]
        told = [s.progress for s in self.streams]
        for i, (stream, life) in enumerate(zip(self.streams, lively, strict=True)):
            stream.pass_idle(life, [p for j, p in enumerate(told) if j != i])
        all_ended = all(s.progress == AFTER_ALL for s in self.streams)
        for stream in self.streams:
            stream.take_effect(self.batch, ends_close=self.ends_close and not all_ended)
        self.horizon = self._horizon()
        found = window_join(self.released(), [s.spec.window for s in self.streams])
        if self.holds is not None:
            found = [(a, b) for a, b in found if self.holds(a, b)]
        known = {tuple(map(id, combination)) for combination in self._found}
        new = [c for c in found if tuple(map(id, c)) not in known]
        self._found = found
        self._alive = [self._inside(i) for i in range(len(self.streams))]
        self._stored = stored = tuple(self.stored(i) for i in range(len(self.streams)))
        alone: tuple[list[Tuple], ...] = tuple([] for _ in self.streams)
        for i in self.query.preserved:
            leaving = [t for t in self.streams[i].good if t not in stored[i] and t not in self._gone[i]]
            self._gone[i].extend(leaving)
            alone[i].extend(t for t in leaving if self._matched(i, t) == (self.query.how == "semi"))
            if self.query.pads(i):
                alone[i].extend(heard[i][2])
        late, violations = (tuple(h[part] for h in heard) for part in (0, 1))
        return Outcome(late, violations, new if self.query.pairs else [], alone, stored)

    def _horizon(self) -> int:
        """Combinations come out once the newest tuple stands before this.

        Rows can be counted as far as their stream's progress; a lazy join goes from one multiple of its interval to
        the next.
        """
        known = min([AFTER_ALL, *(s.progress for s in self.streams if isinstance(s.spec.window, RowsWindow))])
        if self.every:
            least = min(known, *(s.progress for s in self.streams))
            known = least if least in (BEFORE_ALL, AFTER_ALL) else least - least % self.every
        return max(known, self.horizon)

    def released(self) -> list[list[Tuple]]:
        """Of every stream the tuples that take part by now, those without a key included."""
        return [[t for t in s.shown if t.time < self.horizon] for s in self.streams]

    def pending(self, i: int) -> list[Tuple]:
        """The others: they wait. Without a key only those that count."""
        window = self.streams[i].spec.window
        some = self.streams[i].good
        if isinstance(window, RowsWindow) and not window.per_key:
            some = self.streams[i].shown
        return [t for t in some if t.time >= self.horizon]

    def stored(self, i: int) -> list[Tuple]:
        """The tuples that something yet to come may match (for two streams exactly those).

        A semi join is through with a matched row.
        """
        through = self.query.how == "semi" and i == 0
        others = [s for j, s in enumerate(self.streams) if j != i]
        return [
            t
            for t in self._alive[i]
            if not all(s.closed(t.key, self.horizon) for s in others)
            and not (len(others) > 1 and self._dead(t.key))
            and not (through and self._matched(i, t))
        ]

    def _inside(self, i: int) -> list[Tuple]:
        """Tuples that windows alone would keep: one of another stream that is yet to come may be near enough."""
        stream, known = self.streams[i], self.released()[i]
        yet = min(min(s.progress, self.horizon) for j, s in enumerate(self.streams) if j != i)
        ends = [(t, last_instant(t, known, stream.spec.window)) for t in known if None not in t.key]
        return [t for t, end in ends if end >= max(yet, t.time)]

    def _dead(self, key: tuple[Any, ...]) -> bool:
        """Whether some stream has closed the key and has no tuple of it left, while no unmatched row is a result."""
        held = self._stored if len(self.streams) == 2 else self._alive
        return any(
            s.closed(key, self.horizon)
            and not any(self.query.pads(j) for j in range(len(self.streams)) if j != i)
            and not any(same_key(t.key, key) for t in held[i])
            for i, s in enumerate(self.streams)
        )

    def finished(self, key: tuple[Any, ...]) -> bool:
        """Whether no result with this key can come any more, and the streams have said so.

        All have closed it; or one has and holds no tuple of it, unless unmatched rows of the other are results.
        """
        return all(s.closed(key, self.horizon) for s in self.streams) or self._dead(key)

    def _matched(self, i: int, t: Tuple) -> bool:
        return any(combination[i] is t for combination in self._found)
