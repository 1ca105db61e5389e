"""The window-oblivious join: keys ascend in the long run, and their disorder bounds the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow.types as pt

from watersmeet.errors import ColumnError, QueryError
from watersmeet.joins.algorithm import MOST_STREAMS, Algorithm, Traits
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_options import Order, per_origin
from watersmeet.joins.wo_join.key_ranks import STRATEGIES, Limits, running
from watersmeet.joins.wo_join.retention import Buffers, LearnedBuffers, PaperBuffers
from watersmeet.model import sizes
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import is_word

#: Rules of retention; the last two are the paper's.
BUFFERS = ("sound", "learned", "eq7", "eq8")
EQUATIONS = BUFFERS[2:]


@dataclass(frozen=True, slots=True)
class WOJoin(Algorithm[RunningMultiway]):
    """Two to eight streams without windows, joined on a key that ascends in the long run.

    ::

        new a, b, c ──► joined as by `general_lazy` ──► measure how far behind their keys come
                        a's tuples of keys that b and c have both closed are evicted, and so on

    Emits   (a, b, c, …) with one key, whatever their times, unless a tuple comes further behind than was assumed.
    Evicts  a once every other stream has closed a.key. Stream b closes all keys up to the largest that it had
            k_b tuples ago, k_b its scrambling factor: no later tuple has so small a key.
            (k_b = 2; b has 1, 4, 3, 5: at 3 it has closed 1, at 5 all up to 4; a's tuples up to 4 are evicted.)
    Counts  as `too_late` tuples that come when some of their partners may have been evicted.

    `scrambling` gives the factors that are known; the others are measured over the last tuples: a measured factor grows
    at once and shrinks slowly. Until a thousand tuples have come nothing is evicted by a measured factor.
    `buffer` is the rule of retention: "sound" is the above, and loses nothing if the factors are true. "learned" uses
    the distances of tuples that match, but for a share `loss` of them. "eq7" (two streams) and "eq8" keep the number of
    tuples that the paper's equations give, those with the largest keys.
    `strategy` saves memory, not results: "msf" holds tuples back until they can be sorted, so that results come in the
    order of keys, and later; "dbf" spills tuples of a stream that leads until the others have come near; "hybrid" does
    both; "auto" takes, batch by batch, the first of none, dbf and hybrid that needs at most half the `memory` ("256
    MB"). The default is "none", in `wm.join` "auto" if there is a `memory`. If the tuples still do not fit, the query
    stops, or they are `shed` (smallest keys first) and counted.

    >>> WOJoin(memory="256 MB", strategy="dbf").memory
    268435456

    References: Wu, Tan and Zhou, Window-oblivious join (2007).
    """

    buffer: str = "sound"
    scrambling: Mapping[str, int] | Sequence[int | None] | None = None
    loss: float = 0.005
    order: Order | None = None
    strategy: str | None = None
    memory: str | int | None = None
    shed: bool = False

    traits: ClassVar[Traits] = Traits(
        "wo_join",
        family="general_lazy",
        preference=9,
        streams=MOST_STREAMS,
        windows=("none",),
        punctuations=True,
        bounded=True,
        on_request='it is for streams without windows, and chosen by window="auto"',
    )

    def __post_init__(self) -> None:
        if self.buffer not in BUFFERS:
            raise QueryError(
                f"`buffer` is {self.buffer!r}; what a window-oblivious join keeps is one of {', '.join(BUFFERS)}.",
                hint='"sound" loses nothing where the scrambling factors are known.',
            )
        if not 0 < self.loss < 1:
            raise QueryError(
                f"`loss` is {self.loss!r}; it is the share of tuples that may come further behind than provided for.",
                hint="use a small number such as 0.005; the sound buffer provides for all.",
            )
        if self.strategy is not None and self.strategy not in STRATEGIES:
            raise QueryError(
                f"`strategy` is {self.strategy!r}; tuples are deferred by one of {', '.join(STRATEGIES)}.",
                hint="`cost.window_oblivious.cheapest_strategy` finds the one that a budget needs.",
            )
        if isinstance(self.memory, str):
            object.__setattr__(self, "memory", sizes.parse(self.memory, "memory"))
        if self.memory is not None and (type(self.memory) is not int or self.memory < 1):
            raise QueryError(
                f"`memory` is {self.memory!r}; it is a number of bytes from 1 on, or None for no bound.",
                hint="leave it out to keep whatever may still match.",
            )
        if self.strategy == "auto" and self.memory is None:
            raise QueryError(
                '`strategy` is "auto" and `memory` is not given; without a bound nothing has to be deferred.',
                hint='give memory=, or take strategy="none".',
            )

    @property
    def effective_strategy(self) -> str:
        """The strategy; "none" where none is given."""
        return self.strategy or "none"

    @property
    def uses_punctuations(self) -> bool:
        """Not while tuples are deferred: tuples of closed keys may not have been joined yet."""
        return self.effective_strategy == "none"

    def describe(self) -> dict[str, Any]:
        described = Algorithm.describe(self)
        described["options"]["strategy"] = self.effective_strategy
        return described

    def check(self, query: JoinQuery) -> None:
        Algorithm.check(self, query)
        n = len(query.streams)
        per_origin(self.order, n)
        for stream in query.streams:
            _check_key(stream)
        if self.buffer == "eq7" and n > 2:
            raise QueryError(
                f'`buffer` is "eq7" and there are {n} streams; equation 7 is about two.',
                hint='use buffer="eq8", the largest of equation 7 over all pairs.',
            )
        given = self._factors(query)
        if len(given) != n or any(k is not None and (type(k) is not int or k < 0) for k in given):
            raise QueryError(
                f"`scrambling` is {self.scrambling!r}; it is a number of positions from 0 on, or None, for each of the "
                f"{n} streams.",
                hint="leave it out to have it measured.",
            )
        punctuated = [s.name for s in query.streams if s.constraints]
        if self.effective_strategy != "none" and punctuated:
            raise QueryError(
                f'`strategy` is "{self.strategy}" and stream `{punctuated[0]}` has a constraint on its keys; while '
                "tuples are deferred, those of a closed key may not have been joined yet, so it cannot be used.",
                hint='leave the constraint out, or take strategy="none".',
            )

    def _factors(self, query: JoinQuery) -> Sequence[int | None]:
        """The scrambling factor of each stream; None: it is measured."""
        if isinstance(self.scrambling, Mapping):
            return [self.scrambling.get(s.name) for s in query.streams]
        return [None] * len(query.streams) if self.scrambling is None else self.scrambling

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningMultiway:
        given = self._factors(query)
        buffers: Buffers
        if self.buffer == "sound":
            buffers = Buffers(self.buffer, given, arrays)
        elif self.buffer == "learned":
            buffers = LearnedBuffers(self.buffer, given, self.loss, arrays)
        else:
            buffers = PaperBuffers(self.buffer, given, arrays)
        memory = None if self.memory is None else sizes.parse(self.memory, "memory")
        return running(query, buffers, self.order, arrays, Limits(self.effective_strategy, memory, self.shed))


def _check_key(stream: StreamSpec) -> None:
    kinds = [stream.schema.field(k).type for k in stream.key]
    if len(kinds) != 1 or not is_word(kinds[0]) or pt.is_boolean(kinds[0]):
        raise ColumnError(
            f"the key of stream `{stream.name}` is {', '.join(map(str, kinds))}; a window-oblivious join needs one "
            "that ascends: a single column of numbers, timestamps or dates.",
            hint="join on a sequence number or an epoch, or give the streams windows.",
        )
