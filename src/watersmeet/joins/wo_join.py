"""The window-oblivious join: keys ascend in the long run, and their disorder says how much to keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.types as pt

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.joins.buffers import Buffers, LearnedBuffers, PaperBuffers, SoundBuffers
from watersmeet.joins.oblivious import STRATEGIES, Limits, RunningWOJoin
from watersmeet.joins.orders import Order, check_streams, per_origin
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import Unbounded
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import is_word

#: Rules that say how much to keep; the last two are the paper's.
BUFFERS = ("sound", "learned", "eq7", "eq8")
EQUATIONS = BUFFERS[2:]


@dataclass(frozen=True, slots=True)
class WOJoin:
    """Two to eight streams without windows, joined on a key that ascends in the long run.

    ::

        new a, b, c ──► joined as by `general_lazy` ──► how far behind do their keys come?
                        a's tuples below what b and c have both closed are forgotten, and so on

    Emits   (a, b, c, …) with one key, whatever their times, unless a tuple comes further behind than was foreseen.
    Forgets a once every other stream has closed a.key. Stream b closes all keys up to the largest that it had shown
            k_b tuples ago, k_b its scrambling factor: nothing that comes later can be so small.
            (k_b = 2; b shows 1, 4, 3, 5: at 3 it has closed 1, at 5 all up to 4; a's tuples up to 4 go.)
    Counts  as `too_late` tuples that come when some of what they match may have been forgotten.

    `scrambling` gives the factors that are known; the others are measured: what the last tuples have shown, which grows
    at once and shrinks slowly. Until a thousand tuples have come nothing is forgotten for a measured factor.
    `buffer` says what to keep: "sound" is the above, and loses nothing if the factors are true. "learned" goes by the
    distances of tuples that match, but for a share `loss` of them. "eq7" (two streams) and "eq8" keep as many tuples,
    those with the largest keys, as the paper's equations say.
    `strategy` saves memory, not results: "msf" holds tuples back until they can be sorted, so that results come in the
    order of keys, and later; "dbf" puts tuples of a stream that leads on disk until the others have come near; "hybrid"
    does both; "auto" takes of none, dbf and hybrid, batch by batch, the first that keeps to half the `memory`. What
    does not fit `memory` bytes even so stops the query, or is `shed` (smallest keys first) and counted.

    References: Wu, Tan and Zhou, Window-oblivious join (2007).
    """

    query: JoinQuery
    buffer: str = "sound"
    scrambling: Sequence[int | None] | None = None
    loss: float = 0.005
    order: Order | None = None
    strategy: str = "none"
    memory: int | None = None
    shed: bool = False

    def __post_init__(self) -> None:
        check_streams(self.query)
        per_origin(self.order, len(self.query.streams))
        for stream in self.query.streams:
            _check_stream(stream)
        if self.buffer not in BUFFERS:
            raise QueryError(
                f"`buffer` is {self.buffer!r}; what a window-oblivious join keeps is one of {', '.join(BUFFERS)}.",
                hint='"sound" loses nothing where the scrambling factors are known.',
            )
        if self.buffer == "eq7" and len(self.query.streams) > 2:
            raise QueryError(
                f'`buffer` is "eq7" and there are {len(self.query.streams)} streams; equation 7 is about two.',
                hint='use buffer="eq8", the largest of equation 7 over all pairs.',
            )
        if not 0 < self.loss < 1:
            raise QueryError(
                f"`loss` is {self.loss!r}; it is the share of tuples that may come further behind than provided for.",
                hint="use a small number such as 0.005; the sound buffer provides for all.",
            )
        self._check_scrambling()
        self._check_memory()

    def _check_memory(self) -> None:
        if self.strategy not in STRATEGIES:
            raise QueryError(
                f"`strategy` is {self.strategy!r}; tuples are held back by one of {', '.join(STRATEGIES)}.",
                hint="`cost.window_oblivious.cheapest_strategy` says which one a budget needs.",
            )
        promising = [s.name for s in self.query.streams if s.promises]
        if self.strategy != "none" and promising:
            raise QueryError(
                f'`strategy` is "{self.strategy}" and stream `{promising[0]}` promises something about its keys; a '
                "stream that holds tuples back has not shown all that it closes, so nobody may act on it.",
                hint='leave the promise out, or take strategy="none".',
            )
        if self.memory is not None and (type(self.memory) is not int or self.memory < 1):
            raise QueryError(
                f"`memory` is {self.memory!r}; it is a number of bytes from 1 on, or None for no bound.",
                hint="leave it out to keep whatever may still match.",
            )
        if self.strategy == "auto" and self.memory is None:
            raise QueryError(
                '`strategy` is "auto" and `memory` is not given; without a bound nothing has to be held back.',
                hint='give memory=, or take strategy="none".',
            )

    def _check_scrambling(self) -> None:
        given = self.scrambling
        whole = given is None or all(k is None or (type(k) is int and k >= 0) for k in given)
        if not whole or (given is not None and len(given) != len(self.query.streams)):
            raise QueryError(
                f"`scrambling` is {given!r}; it is a number of positions from 0 on, or None, for each of the "
                f"{len(self.query.streams)} streams.",
                hint="leave it out to have it measured.",
            )

    def start(self, arrays: Arrays | None = None) -> RunningWOJoin:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        given = self.scrambling or [None] * len(self.query.streams)
        buffers: Buffers
        if self.buffer == "sound":
            buffers = SoundBuffers(self.buffer, given, arrays)
        elif self.buffer == "learned":
            buffers = LearnedBuffers(self.buffer, given, self.loss, arrays)
        else:
            buffers = PaperBuffers(self.buffer, given, arrays)
        limits = Limits(self.strategy, self.memory, self.shed)
        return RunningWOJoin(self.query, buffers, self.order, arrays, limits)


def _check_stream(stream: StreamSpec) -> None:
    if not isinstance(stream.window, Unbounded):
        raise WindowError(
            f"`wo_join` knows no windows, and stream `{stream.name}` has one.",
            hint='leave `window` out, or use algorithm="general_lazy".',
        )
    kinds = [stream.schema.field(k).type for k in stream.key]
    if len(kinds) != 1 or not is_word(kinds[0]) or pt.is_boolean(kinds[0]):
        raise ColumnError(
            f"the key of stream `{stream.name}` is {', '.join(map(str, kinds))}; a window-oblivious join needs one "
            "that ascends: a single column of numbers, timestamps or dates.",
            hint="join on a sequence number or an epoch, or give the streams windows.",
        )
