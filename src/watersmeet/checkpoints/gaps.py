"""What changes of a query have left in its state: rows that are missing, and results that an earlier query has given.

A change may come before the gaps of the one before are out of the windows. So they are part of the state's metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.windows import FOREVER, Window

#: The kind of the metadata.
GAPS = "gaps"


@dataclass(frozen=True, slots=True)
class Gaps:
    """Event times before which something is missing; BEFORE_ALL: nothing is.

    `evicted` has, by stream, the time before which rows had been evicted that a longer window would have kept. Rows
    before `excluded` may be missing because a `where` that was changed since had excluded them. Results before
    `changed` are those of a query before the last change. `newest` is a time that no row before it exceeds.
    """

    evicted: tuple[int, ...]
    excluded: int = BEFORE_ALL
    changed: int = BEFORE_ALL
    newest: int = BEFORE_ALL

    @classmethod
    def of(cls, metadata: dict[str, Any], streams: int) -> Gaps:
        """Those of a state, by the metadata in its header."""
        stored = metadata.get(GAPS)
        return cls((BEFORE_ALL,) * streams) if stored is None else cls(**stored | {"evicted": tuple(stored["evicted"])})

    def metadata(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def exact_from(self, windows: Sequence[Window]) -> int:
        """The event time from which results are those of a query with these windows; AFTER_ALL if they never are."""
        times = [self.changed]
        for evicted, window in zip(self.evicted, windows, strict=True):
            complete, reach = max(evicted, self.excluded), max(window.reach, 0)
            if complete > BEFORE_ALL:
                times.append(AFTER_ALL if reach >= FOREVER else complete + reach)
        return max(times)
