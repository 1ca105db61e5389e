"""As-of joins: which tuple of the right stream is the answer to a tuple of the left one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.errors import QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.windows import FOREVER

#: Where the answer is looked for.
DIRECTIONS = ("backward", "forward", "nearest")


@dataclass(frozen=True, slots=True)
class AsOf:
    """The answer to l is the right tuple of its key with the least distance in time, on the side of `direction`.

    It is at most `tolerance` microseconds away (None: at any distance), and may have l's own time if `allow_exact`. On
    equal distance the earlier one wins; of several with one time the last by the columns `order_by` of the right
    stream, then by the bytes of the row.
    """

    direction: str = "backward"
    tolerance: int | None = None
    allow_exact: bool = True
    order_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            raise QueryError(
                f'`direction` is "{self.direction}"; it is one of {", ".join(DIRECTIONS)}.',
                hint='"backward" finds the last row before, "forward" the first one after.',
            )
        if self.tolerance is not None and self.tolerance < 0:
            raise WindowError(
                f"`tolerance` is {durations.formatted(self.tolerance)}; a distance in time cannot be negative.",
                hint='give a duration such as "10 seconds", or None for any distance.',
            )
        if self.tolerance == 0 and not self.allow_exact:
            raise WindowError(
                "`tolerance` is zero and `allow_exact` is False; no row could be an answer.",
                hint="allow exact matches, or give a longer tolerance.",
            )

    @property
    def backward(self) -> bool:
        """Whether right tuples before the left one are candidates."""
        return self.direction != "forward"

    @property
    def forward(self) -> bool:
        """Whether right tuples after the left one are candidates."""
        return self.direction != "backward"

    @property
    def reach(self) -> int:
        """The largest distance of an answer, in microseconds."""
        return FOREVER if self.tolerance is None else min(self.tolerance, FOREVER)

    @classmethod
    def described(cls, description: dict[str, Any]) -> AsOf:
        """The inverse of `describe`."""
        return cls(**description | {"order_by": tuple(description["order_by"])})

    def describe(self) -> dict[str, object]:
        """The same as JSON."""
        return {
            "direction": self.direction,
            "tolerance": self.tolerance,
            "allow_exact": self.allow_exact,
            "order_by": list(self.order_by),
        }
