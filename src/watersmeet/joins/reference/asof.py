"""The oracle of as-of joins: the definition and the rules (spec section 12), computed anew over all tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.joins.reference.definition import Tuple, same_key
from watersmeet.joins.reference.stream_rules import Elements, Outcome, StreamRules
from watersmeet.model.asof import AsOf
from watersmeet.model.batches import AFTER_ALL
from watersmeet.model.queries import JoinQuery


def versions(key: tuple[Any, ...], right: Sequence[Tuple]) -> list[Tuple]:
    """The right tuples of a key that can be answers, by time: of several with one time the last by `row`."""
    newest: dict[int, Tuple] = {}
    for b in right:
        if same_key(b.key, key) and (b.time not in newest or b.row > newest[b.time].row):
            newest[b.time] = b
    return [newest[time] for time in sorted(newest)]


def before(a: Tuple, of_key: Sequence[Tuple], asof: AsOf) -> Tuple | None:
    """The last version that is a candidate and not after a."""
    found = [b for b in of_key if (b.time < a.time or (asof.allow_exact and b.time == a.time))]
    return found[-1] if found and asof.backward and a.time - found[-1].time <= asof.reach else None


def after(a: Tuple, of_key: Sequence[Tuple], asof: AsOf) -> Tuple | None:
    """The first version that is a candidate and not before a."""
    found = [b for b in of_key if (b.time > a.time or (asof.allow_exact and b.time == a.time))]
    return found[0] if found and asof.forward and found[0].time - a.time <= asof.reach else None


def answer(a: Tuple, right: Sequence[Tuple], asof: AsOf) -> Tuple | None:
    """The candidate with the least distance; on equal distance the earlier one."""
    of_key = versions(a.key, right)
    found = [b for b in (before(a, of_key, asof), after(a, of_key, asof)) if b is not None]
    return min(found, key=lambda b: abs(b.time - a.time), default=None)


def asof_join(left: Sequence[Tuple], right: Sequence[Tuple], asof: AsOf) -> list[tuple[Tuple, Tuple | None]]:
    """Every left tuple with its answer."""
    return [(a, answer(a, right, asof)) for a in left]


class AsofRules:
    """The rules applied to two streams, batch by batch: results, and what stays stored."""

    def __init__(self, query: JoinQuery) -> None:
        assert query.asof is not None, "an as-of join"
        self.query = query
        self.asof: AsOf = query.asof
        self.streams = [StreamRules(spec) for spec in query.streams]
        self.batch = -1
        self._waiting: list[Tuple] = []  # left tuples that are not final

    def step(self, elements: Sequence[Elements], clock: int | None = None) -> Outcome:
        """One batch; `clock` is its timestamp, where a stream follows it."""
        self.batch += 1
        earlier = len(self.streams[0].good)
        admitted = [s.add(n, self.batch) for s, n in zip(self.streams, elements, strict=True)]
        active = [stream.advance(n) for stream, n in zip(self.streams, elements, strict=True)]
        if clock is not None:
            for stream, was_active in zip(self.streams, active, strict=True):
                stream.follow_clock(was_active, clock)
        watermarks = [s.watermark for s in self.streams]
        for i, (stream, was_active) in enumerate(zip(self.streams, active, strict=True)):
            stream.pass_idle(was_active, [watermarks[1 - i]])
        for stream in self.streams:
            stream.take_effect(self.batch, ends_close=False)
        known = [*self._waiting, *self.streams[0].good[earlier:]]
        final = [a for a in known if self.final(a)]
        self._waiting = [a for a in known if not any(a is f for f in final)]
        found = asof_join(final, self.streams[1].good, self.asof)
        alone = [a for a, b in found if b is None] + admitted[0][2]
        pairs: list[tuple[Tuple, ...]] = [(a, b) for a, b in found if b is not None]
        late, violations = (tuple(each[part] for each in admitted) for part in (0, 1))
        unmatched: tuple[list[Tuple], ...] = (alone if self.query.how == "left" else [], [])
        return Outcome(late, violations, pairs, unmatched, (self.stored(0), self.stored(1)))

    def final(self, a: Tuple) -> bool:
        """Whether no candidate that could win can still come."""
        right, asof = self.streams[1], self.asof
        if right.closed(a.key):
            return True
        if not asof.forward:
            return right.watermark > a.time if asof.allow_exact else right.watermark >= a.time
        first = after(a, versions(a.key, right.good), asof)
        return (first is not None and right.watermark > first.time) or right.watermark > a.time + asof.reach

    def stored(self, i: int) -> list[Tuple]:
        """Left tuples that are not final; right tuples that may be the answer to one of these, or to one to come."""
        if i == 0:
            return list(self._waiting)
        good, out = self.streams[1].good, []
        for b in good:
            of_key = versions(b.key, good)
            if any(b is v for v in of_key) and (self._awaited(b, of_key) or self._held(b, of_key)):
                out.append(b)
        return out

    def _awaited(self, b: Tuple, of_key: Sequence[Tuple]) -> bool:
        """Whether a left tuple to come may have this answer."""
        left, asof = self.streams[0], self.asof
        if left.watermark == AFTER_ALL or left.closed(b.key):
            return False
        if not asof.backward:
            return b.time >= left.watermark if asof.allow_exact else b.time > left.watermark
        later = [v.time for v in of_key if v.time > b.time]
        preferred = any(left.watermark >= t if asof.allow_exact else left.watermark > t for t in later)
        return not preferred and left.watermark <= b.time + asof.reach

    def _held(self, b: Tuple, of_key: Sequence[Tuple]) -> bool:
        """Whether it is the best candidate so far, on its side, of a stored left tuple."""
        alike = [a for a in self._waiting if same_key(a.key, b.key)]
        return any(before(a, of_key, self.asof) is b or after(a, of_key, self.asof) is b for a in alike)

    def finished(self, key: tuple[Any, ...]) -> bool:
        """Whether no further result of this key can come: the left stream has closed it and stores none of it."""
        return self.streams[0].closed(key) and not any(same_key(a.key, key) for a in self._waiting)
