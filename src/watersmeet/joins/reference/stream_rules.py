"""The oracle of punctuations: the rules (spec section 3), without any optimisation.

All tuples and punctuations are kept, and after each batch everything is computed anew from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from watersmeet.joins.reference.definition import Tuple, last_instant, same_key, window_join
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
from watersmeet.model.windows import Interval, RowsWindow


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of one stream in one batch: tuples and punctuations."""

    tuples: tuple[Tuple, ...] = ()
    punctuations: tuple[Punctuation, ...] = ()
    ended: bool = False


@dataclass(slots=True)
class StoredPunctuation:
    """No tuple that `pattern` covers comes after `time`; effective from batch number `since` on."""

    pattern: Pattern
    time: int
    since: int | None = None


@dataclass(slots=True)
class Outcome:
    """The outcome of one batch by the rules, stream by stream."""

    late: tuple[list[Tuple], ...]
    violations: tuple[list[Tuple], ...]
    pairs: list[tuple[Tuple, ...]]  # combinations that became possible
    alone: tuple[list[Tuple], ...]  # unmatched rows that are results; of a semi join the matched ones
    stored: tuple[list[Tuple], ...]


def sort_key(value: Any) -> tuple[bool, Any]:
    """Spark's order: NaN is larger than everything."""
    return (value != value, 0 if value != value else value)


def covers(pattern: Pattern, key: tuple[Any, ...]) -> bool:
    """Whether a pattern of the join attribute matches this key; NULL is matched by none."""
    if None in key:
        return False
    match pattern:
        case Value(value):
            return same_key(value, key)
        case ValueList(values):
            return any(same_key(value, key) for value in values)
        case Range(low, high, low_closed, high_closed):
            at = sort_key(key[0])
            above = low is None or sort_key(low) < at or (low_closed and sort_key(low) == at)
            below = high is None or at < sort_key(high) or (high_closed and at == sort_key(high))
            return above and below
        case _:
            return False


@dataclass
class StreamRules:
    """The tuples and punctuations of one stream, and its watermark."""

    spec: StreamSpec
    watermark: int = BEFORE_ALL
    closed_keys: list[StoredPunctuation] = field(default_factory=list)
    good: list[Tuple] = field(default_factory=list)  # neither late nor violating, with a key
    shown: list[Tuple] = field(default_factory=list)  # `good`, and those without a key: row windows count them
    newest: list[Tuple] = field(default_factory=list)  # newest tuples of a clustered stream
    begun: list[Tuple] = field(default_factory=list)  # its oldest tuple of each key that is not closed
    last_active: int = BEFORE_ALL  # watermark of the others when this stream last had a row
    last_shown: int = BEFORE_ALL  # timestamp of the batch in which it last had one
    ended: bool = False  # before all others had

    def closed(self, key: tuple[Any, ...], horizon: int = AFTER_ALL) -> bool:
        """Whether an effective punctuation covers the key, and no tuple of it is pending."""
        covered = self.ended and self.spec.has_ordered_key
        covered = covered or any(c.since is not None and covers(c.pattern, key) for c in self.closed_keys)
        return covered and not any(t.time >= horizon and same_key(t.key, key) for t in self.good)

    def add(self, elements: Elements, batch: int) -> tuple[list[Tuple], list[Tuple], list[Tuple]]:
        """Add a batch; returns its late tuples, its violations, and the tuples without a key."""
        timely = [t for t in elements.tuples if t.ts is not None and t.ts >= self.watermark]
        late = [t for t in elements.tuples if t not in timely]
        unkeyed = [t for t in timely if None in t.key and self.spec.key]
        self.closed_keys += [StoredPunctuation(p.pattern, p.time) for p in elements.punctuations]
        keyed = [t for t in timely if None not in t.key or not self.spec.key]
        self._apply_ordered([t for t in keyed if None not in t.key])
        valid = [t for t in keyed if not self._violates(t)]
        if any(isinstance(p, Unique) for p in self.spec.constraints):
            valid = self._first_of_each(valid, batch)
        if any(isinstance(p, Clustered) for p in self.spec.constraints):
            valid = self._end_clusters(keyed, valid)
        self.good += valid
        self.shown += [*valid, *unkeyed]
        return late, [t for t in keyed if t not in valid], unkeyed

    def _violates(self, t: Tuple) -> bool:
        assert t.ts is not None, "a tuple without a time is late"
        return any(covers(c.pattern, t.key) and (c.since is not None or t.ts > c.time) for c in self.closed_keys)

    def _first_of_each(self, valid: list[Tuple], batch: int) -> list[Tuple]:
        """Keep the first tuple of each key in (time, row); it closes its key at once."""
        first: list[Tuple] = []
        for t in sorted(valid, key=lambda t: (t.ts, t.row)):
            if not any(same_key(t.key, f.key) for f in first):
                first.append(t)
                assert t.ts is not None, "a tuple without a time is late"
                self.closed_keys.append(StoredPunctuation(Value(t.key), t.ts, batch))
        return first

    def _end_clusters(self, keyed: list[Tuple], valid: list[Tuple]) -> list[Tuple]:
        """A tuple on time closes, at its own time, all other keys of which an older one has been seen.

        Of earlier batches only the newest tuples do so. Of each key that is not closed yet the oldest tuple is
        kept. Returns the tuples that are no violations.
        """
        closers = [*self.newest, *keyed]
        time = max((t.time for t in closers), default=BEFORE_ALL)
        self.newest = [t for t in closers if t.time == time]
        oldest: list[Tuple] = []
        for t in sorted([*self.begun, *valid], key=lambda t: t.time):
            if not any(same_key(t.key, other.key) for other in oldest):
                oldest.append(t)
        self.begun = []
        ends = []
        for t in oldest:
            others = [c.time for c in closers if c.time > t.time and not same_key(c.key, t.key)]
            goes_on = any(same_key(t.key, n.key) for n in self.newest)  # more tuples of that time may come
            if others and not (min(others) == time and goes_on):
                ends.append(StoredPunctuation(Value(t.key), min(others)))
            else:
                self.begun.append(t)
        self.closed_keys += ends
        return [t for t in valid if not any(covers(c.pattern, t.key) and t.time > c.time for c in ends)]

    def _apply_ordered(self, keyed: list[Tuple]) -> None:
        """A tuple on time closes, at its own time, all keys before its own, or before that less the slack."""
        for constraint in self.spec.constraints:
            if not isinstance(constraint, Ordered):
                continue
            for t in keyed:
                try:
                    end = t.key[0] - constraint.slack if constraint.slack else t.key[0]
                except OverflowError:
                    continue  # no key is that small
                self.closed_keys.append(StoredPunctuation(Range(None, end, high_closed=False), t.time))

    def advance(self, elements: Elements) -> bool:
        """Advance the watermark; returns whether the stream was active (a row, a punctuation or a heartbeat)."""
        delay = self.spec.delay
        shown = [t.ts for t in elements.tuples if t.ts is not None]
        shown += [p.time for p in elements.punctuations if isinstance(p.pattern, Value | ValueList | Range)]
        beats = [p.pattern.until for p in elements.punctuations if isinstance(p.pattern, Heartbeat)]
        self.watermark = max([self.watermark, *(time - delay for time in shown), *beats])
        if elements.ended or any(isinstance(p.pattern, End) for p in elements.punctuations):
            self.watermark = AFTER_ALL
        return bool(shown or beats)

    def follow_clock(self, active: bool, clock: int) -> None:
        """Advance the watermark of a stream without activity for `idle_clock`, by the timestamps of the batches."""
        if self.spec.idle_clock is None:
            return
        if active:
            self.last_shown = clock
        if self.last_shown <= clock - self.spec.idle_clock:
            self.watermark = max(self.watermark, clock - self.spec.idle_clock - self.spec.delay)

    def pass_idle(self, active: bool, others: list[int]) -> None:
        """Advance the watermark of a stream without activity for `idle_after`, in the event time of the others."""
        if self.spec.idle_after is None:
            return
        other = max([BEFORE_ALL, *(p for p in others if p < AFTER_ALL)])
        if active or self.last_active == BEFORE_ALL:
            self.last_active = max(self.last_active, other)
        elif other - self.last_active > self.spec.idle_after:
            self.watermark = max(self.watermark, other - self.spec.idle_after)

    def take_effect(self, batch: int, *, ends_close: bool) -> None:
        """Let the punctuations take effect that the watermark has reached."""
        self.ended = self.ended or (ends_close and self.watermark == AFTER_ALL)
        for c in self.closed_keys:
            reached = self.watermark >= c.time if self.spec.delay == 0 else self.watermark > c.time
            if c.since is None and reached:
                c.since = batch


class Rules:
    """The rules applied to streams, batch by batch; results are emitted at multiples of `every` (0: every batch)."""

    def __init__(
        self,
        query: JoinQuery,
        every: int = 0,
        holds: Callable[..., bool] | None = None,
        may_hold: Callable[[int, Tuple], bool] = lambda i, t: True,
        partners: Callable[[int, int, Tuple], Iterable[Any] | None] | None = None,
    ) -> None:
        """`holds` is `query.where` as a predicate of a combination, `may_hold` what a tuple of stream i decides of it.

        In a join without equality the key of a tuple is its compared value, and `partners` has the compared values of
        another stream j with which a tuple of stream i may be in a result; None: any.
        """
        self.query = query
        self.partners = partners
        self.ends_close = True  # whether a stream that has ended has closed all keys, as in PWJoin
        self.every = every
        self.holds, self.may_hold = holds, may_hold
        self.streams = [StreamRules(spec) for spec in query.streams]
        self.horizon = BEFORE_ALL
        self.batch = -1
        self._found: list[tuple[Tuple, ...]] = []
        self._alive: list[list[Tuple]] = [[] for _ in self.streams]
        self._stored: tuple[list[Tuple], ...] = ()
        self._gone: tuple[list[Tuple], ...] = tuple([] for _ in self.streams)

    def step(self, elements: Sequence[Elements], clock: int | None = None) -> Outcome:
        """One batch; `clock` is its timestamp, where a stream follows it."""
        self.batch += 1
        admitted = [s.add(n, self.batch) for s, n in zip(self.streams, elements, strict=True)]
        active = [stream.advance(n) for stream, n in zip(self.streams, elements, strict=True)]
        if clock is not None:
            for stream, was_active in zip(self.streams, active, strict=True):
                stream.follow_clock(was_active, clock)
        watermarks = [s.watermark for s in self.streams]
        for i, (stream, was_active) in enumerate(zip(self.streams, active, strict=True)):
            stream.pass_idle(was_active, [p for j, p in enumerate(watermarks) if j != i])
        all_ended = all(s.watermark == AFTER_ALL for s in self.streams)
        for stream in self.streams:
            stream.take_effect(self.batch, ends_close=self.ends_close and not all_ended)
        self.horizon = self._horizon()
        windows = [s.spec.window for s in self.streams]
        found = window_join(self.released(), windows, theta=self.query.is_theta)
        if self.holds is not None:
            found = [combination for combination in found if self.holds(*combination)]
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
                alone[i].extend(admitted[i][2])
        late, violations = (tuple(a[part] for a in admitted) for part in (0, 1))
        return Outcome(late, violations, new if self.query.pairs else [], alone, stored)

    def _horizon(self) -> int:
        """Combinations are emitted once their newest tuple is before this.

        Rows can be counted up to the watermark of their stream; a lazy join goes from one multiple of its interval to
        the next.
        """
        known = min([AFTER_ALL, *(s.watermark for s in self.streams if isinstance(s.spec.window, RowsWindow))])
        if self.every:
            least = min(known, *(s.watermark for s in self.streams))
            known = least if least in (BEFORE_ALL, AFTER_ALL) else least - least % self.every
        return max(known, self.horizon)

    def released(self) -> list[list[Tuple]]:
        """The released tuples of every stream, those without a key included."""
        return [[t for t in s.shown if t.time < self.horizon] for s in self.streams]

    def pending(self, i: int) -> list[Tuple]:
        """The pending tuples of stream i; those without a key only if a row window counts them."""
        window = self.streams[i].spec.window
        some = self.streams[i].good
        if isinstance(window, RowsWindow) and not window.per_key:
            some = self.streams[i].shown
        return [t for t in some if t.time >= self.horizon]

    def stored(self, i: int) -> list[Tuple]:
        """The tuples that a tuple to come may match (for two streams exactly those).

        A semi join drops a matched row.
        """
        is_semi = self.query.how == "semi" and i == 0
        others = [s for j, s in enumerate(self.streams) if j != i]
        if self.query.is_theta:
            alive = (t for t in self._alive[i] if not (is_semi and self._matched(i, t)))
            return [t for t in alive if not self._useless(i, t)]
        return [
            t
            for t in self._alive[i]
            if self.may_hold(i, t)
            and not all(s.closed(t.key, self.horizon) for s in others)
            and not (len(others) > 1 and self._dead(t.key))
            and not (is_semi and self._matched(i, t))
        ]

    def _useless(self, i: int, t: Tuple) -> bool:
        """Whether no tuple to come may be in a result with the tuple.

        Every other stream has closed all values with which it may be, or has ended; or there are no such values.
        """
        if self.partners is None:
            return False
        of = [(s, self.partners(i, j, t)) for j, s in enumerate(self.streams) if j != i]
        values = [(s, None if some is None else list(some)) for s, some in of]
        return any(some == [] for _, some in values) or all(
            s.watermark == AFTER_ALL or (some is not None and all(s.closed((value,)) for value in some))
            for s, some in values
        )

    def _inside(self, i: int) -> list[Tuple]:
        """Tuples that windows alone keep: a tuple to come of another stream may be near enough."""
        stream, known = self.streams[i], self.released()[i]
        yet = min(min(s.watermark, self.horizon) for j, s in enumerate(self.streams) if j != i)
        keyed = [t for t in known if None not in t.key or not stream.spec.key]
        ends = [(t, last_instant(t, known, stream.spec.window)) for t in keyed]
        backward = isinstance(stream.spec.window, Interval)  # all partners may be older than the tuple itself
        return [t for t, end in ends if end >= (yet if backward else max(yet, t.time))]

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
        """Whether the punctuations exclude further results of this key.

        All streams have closed it; or one has and holds no tuple of it, unless unmatched rows of the other are results.
        """
        return all(s.closed(key, self.horizon) for s in self.streams) or self._dead(key)

    def _matched(self, i: int, t: Tuple) -> bool:
        return any(combination[i] is t for combination in self._found)
