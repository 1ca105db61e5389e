"""PJoin: a join without windows, whose state lives by punctuations alone."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import WindowError
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.windows import Unbounded


@dataclass(frozen=True, slots=True)
class PJoin(PWJoin):
    """Two streams, no window, and promises such as "no more bids for auction 180".

    ::

        a ──► broke its word? ──► probe B ──► insert A, unless B has closed the key
        punctuation of a ──► purge B's tuples of the key ──► both closed, or nothing stored here? announce it

    Emits   (a, b) with a.key = b.key, whatever their times.
    Forgets a when b has closed a.key, or has ended; never otherwise.
    Announces a key as PWJoin does, but no window ever empties a closed key's list early.

    References: Ding, Mehta, Rundensteiner, Heineman, Joining punctuated streams (2004).
    """

    def __post_init__(self) -> None:
        PWJoin.__post_init__(self)
        for stream in self.query.streams:
            if not isinstance(stream.window, Unbounded):
                raise WindowError(
                    f"`pjoin` knows no windows, and stream `{stream.name}` has one.",
                    hint='leave `window` out, or use algorithm="pwjoin".',
                )
