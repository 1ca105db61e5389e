"""Claims about results, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Plain values, as JSON has them. `counts` are the same in every run with a seed, `times` are not.
Found = dict[str, Any]

HOLDS, DOES_NOT_HOLD, NOT_MEASURED, NOT_JUDGED = "holds", "does not hold", "not measured", "quick, not judged"


def answer(holds: bool, *, quick: bool = False) -> str:
    """A verdict in words; quick runs are not judged."""
    return NOT_JUDGED if quick else HOLDS if holds else DOES_NOT_HOLD


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds, and the numbers that show it."""

    holds: bool
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A sentence about the results, and its check. `otherwise` is a reason for which it may not hold here."""

    text: str
    check: Callable[[Found], Verdict]
    otherwise: str = ""
