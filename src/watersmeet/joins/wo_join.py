"""The window-oblivious join: keys ascend in the long run, and their disorder says how much to keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.joins.buffers import BEYOND, FIRST, LAST, Buffers, LearnedBuffers, PaperBuffers, SoundBuffers
from watersmeet.joins.general_lazy import RunningGeneralLazy
from watersmeet.joins.orders import Order, check_streams, per_origin
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL, Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import Unbounded
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Int64s, Keys, is_word
from watersmeet.state.log import Delta, Entry
from watersmeet.state.order import Order as KeyOrder
from watersmeet.state.segments import Segment
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Rules that say how much to keep.
BUFFERS = ("sound", "learned", "eq7", "eq8")


@dataclass(frozen=True, slots=True)
class WOJoin:
    """Two to eight streams without windows, joined on a key that ascends in the long run.

    ::

        new a, b, c ──► joined as by `general_lazy` ──► how far behind do their keys come?
                        a's tuples below what b and c have both closed are forgotten, and so on

    Emits   (a, b, c, …) with one key, whatever their times, unless a tuple comes further behind than was foreseen.
    Forgets a once every other stream has closed a.key. Stream b closes all keys up to the largest that it had shown
            k_b tuples ago, k_b its scrambling factor: nothing that comes later can be so small.
            (k_b = 2; b shows 1, 4, 2, 5, 3: at 5 it has closed 4, at 3 still 4; a's tuples up to 4 go.)
    Counts  as `too_late` tuples that come when some of what they match may have been forgotten.

    `scrambling` gives the factors that are known; the others are measured: what the last tuples have shown, which grows
    at once and shrinks slowly. Until a thousand tuples have come nothing is forgotten for a measured factor.
    `buffer` says what to keep: "sound" is the above, and loses nothing if the factors are true. "learned" goes by the
    distances of tuples that match, but for a share `loss` of them. "eq7" (two streams) and "eq8" keep as many tuples,
    those with the largest keys, as the paper's equations say.

    References: Wu, Tan and Zhou, Window-oblivious join (2007).
    """

    query: JoinQuery
    buffer: str = "sound"
    scrambling: Sequence[int | None] | None = None
    loss: float = 0.005
    order: Order | None = None

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
        return RunningWOJoin(self.query, buffers, self.order, arrays)


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


class PlacedState(StreamState[ValueLists]):
    """The state of a stream in which the place of a key stands where others have the time: old is what is small."""

    def __init__(self, spec: StreamSpec, lists: ValueLists) -> None:
        super().__init__(spec, lists)
        self.key_order = KeyOrder.of([spec.schema.field(spec.key[0]).type])

    def places(self, keys: Keys) -> Int64s:
        places: Int64s = self.key_order.of_keys(keys)
        return places

    def restore(self, segment: Segment, alive_from: int) -> None:
        _, keys = self.read(segment.rows)
        places = self.places(keys)
        which = np.flatnonzero(places >= alive_from)
        number = self.segments.add(segment, which.size)
        self.lists.insert(which, places, keys, number)

    def expire_before(self, time: int) -> int:
        if time <= LAST:
            return super().expire_before(time)
        gone = self.lists.living()
        self.lists.discard(gone, self.segments.left)
        return int(gone.size)


class RunningWOJoin(RunningGeneralLazy):
    """The join at work: a general lazy one whose time is the key itself, whose windows are empty (all keys of a result
    are equal), and whose progress is what the buffers say."""

    own: list[PlacedState]  # type: ignore[assignment]  # made by `_state`

    def __init__(self, query: JoinQuery, buffers: Buffers, order: Order | None, arrays: Arrays | None) -> None:
        super().__init__(query, order, arrays=arrays)
        self.buffers = buffers
        self.floor = [FIRST] * len(query.streams)  # smaller places have been forgotten
        self._came: list[Int64s] = []

    def _state(self, spec: StreamSpec, lists: ValueLists) -> StreamState[ValueLists]:
        return PlacedState(spec, lists)

    # ------------------------------------------------------------ a batch

    def _begin(self, batches: Sequence[Batch]) -> None:
        self._came = []
        super()._begin(batches)

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        arrivals.times = self.own[i].places(arrivals.keys)
        self._came.append(np.sort(arrivals.which))
        gone = max(f for j, f in enumerate(self.floor) if j != i)
        self.counters.too_late += int(np.count_nonzero(arrivals.times[arrivals.which] < gone))
        return arrivals

    def _evaluate(self) -> Iterator[pa.Table]:
        yield from super()._evaluate()
        came = [a.times[which] for a, which in zip(self.arrivals, self._came, strict=True)]
        behind = self.buffers.observe(came)
        if isinstance(self.buffers, LearnedBuffers):
            self.buffers.learn(behind, [self._matters(i) for i in range(len(self.own))])
        ended = [p >= AFTER_ALL for p in self.progress]
        self.floor = [max(old, new) for old, new in zip(self.floor, self.buffers.floors(ended), strict=True)]

    def _matters(self, i: int) -> Any:
        """Which of the batch's tuples have a partner in every other stream, or are below what those have kept."""
        which, keys = self._came[i], self.arrivals[i].keys
        others = [s for j, s in enumerate(self.own) if j != i]
        found = np.logical_and.reduce([s.lists.nodes_of(which, keys) != kernel.NIL for s in others])
        gone = max(f for j, f in enumerate(self.floor) if j != i)
        return found | (self.arrivals[i].times[which] < gone)

    # ------------------------------------------------------------ forgetting

    def bound(self, i: int) -> int:
        return self.floor[i]

    def reach(self, i: int) -> int:
        return 0

    def _expire(self, i: int) -> Int64s:
        if self.floor[i] < BEYOND:
            return super()._expire(i)
        lists = self.own[i].lists
        nodes = np.unique(lists.lists.node[lists.living()]).astype(np.int64)
        self.counters.invalidated += self.own[i].expire_before(BEYOND)
        closed: Int64s = nodes[lists.lists.mark[nodes] == kernel.CLOSED]
        return closed

    # ------------------------------------------------------------ the durable form

    def notes(self) -> dict[str, Any]:
        return super().notes() | {"floor": list(self.floor), "buffers": self.buffers.notes()}

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        if "floor" in notes:
            self.floor = list(notes["floor"])
            self.buffers.recall(notes["buffers"])

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        return super().deltas(entries, rewritten=rewritten) + self.buffers.deltas(entries)

    def replay(self, delta: Delta) -> None:
        if delta.kind in ("maxima", "tail"):
            self.buffers.replay(delta)
        else:
            super().replay(delta)
