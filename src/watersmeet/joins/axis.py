"""The axis of a multi-way join: what orders its tuples and bounds those that may still come.

Joins with windows go by event time. The window-oblivious join goes by the rank of a key (`wo_join.key_ranks`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import RowsWindow, Unbounded
from watersmeet.state.durable.parts import DurablePart
from watersmeet.state.row_windows import RowWindowState
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

if TYPE_CHECKING:
    from watersmeet.joins.multiway import RunningMultiway


class Axis(Protocol):
    """Positions of tuples: their order in the state, and the bound below which none is needed.

    The join hands itself to every call; an axis keeps no reference to it.
    """

    @abstractmethod
    def state(self, i: int, spec: StreamSpec, lists: ValueLists) -> StreamState[ValueLists]:
        """An empty state of stream i."""

    @abstractmethod
    def bound(self, join: RunningMultiway, i: int) -> int:
        """Lower bound of the positions of pending tuples and of tuples to come, in all streams but i."""

    @abstractmethod
    def reach(self, join: RunningMultiway, i: int) -> int:
        """Largest distance of a tuple of stream i before the last tuple of its combination."""

    @abstractmethod
    def reached(self, join: RunningMultiway) -> list[int]:
        """Watermark of each stream, limited to the times whose results have been emitted."""

    @abstractmethod
    def may_drop_closed_keys(self, query: JoinQuery) -> bool:
        """Whether closed keys may be dropped from the punctuation sets: their tuples expire without them."""

    def usable_punctuations(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """The batches, with only those punctuations that the join may use."""
        return batches

    def admit(self, join: RunningMultiway, i: int, batch: Batch, arrivals: Arrivals) -> None:
        """Rows of stream i were admitted; `arrivals.times` become their positions."""
        return None

    def begin(self, join: RunningMultiway, batches: Sequence[Batch]) -> None:
        """The rows of all streams were admitted, and the watermarks moved."""
        return None

    def evaluated(self, join: RunningMultiway) -> None:
        """The results of the batch have been emitted; nothing has expired yet."""
        return None

    def finish(self, join: RunningMultiway) -> None:
        """The batch is over."""
        return None

    def measured(self) -> dict[str, Any]:
        """Measured statistics of the streams, as JSON."""
        return {}

    def check_operator(self, stored: dict[str, Any]) -> None:
        """Refuse the state of an operator that this axis cannot continue."""
        return

    def parts(self) -> list[DurablePart]:
        return []


class EventTime(Axis):
    """Tuples stand at their event times; watermarks and windows bound what is needed."""

    def state(self, i: int, spec: StreamSpec, lists: ValueLists) -> StreamState[ValueLists]:
        return RowWindowState(i, spec, lists) if isinstance(spec.window, RowsWindow) else StreamState(spec, lists)

    def bound(self, join: RunningMultiway, i: int) -> int:
        horizon = join.horizon
        return min(min(p, horizon) for j, p in enumerate(join.watermarks) if j != i)

    def reach(self, join: RunningMultiway, i: int) -> int:
        return join.query.streams[i].window.reach

    def reached(self, join: RunningMultiway) -> list[int]:
        horizon = join.horizon
        return [min(p, horizon) for p in join.watermarks]

    def may_drop_closed_keys(self, query: JoinQuery) -> bool:
        return not any(isinstance(s.window, Unbounded) for s in query.streams)
