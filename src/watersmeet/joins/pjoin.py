"""PJoin: a join without windows, whose state is purged by punctuations alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from watersmeet.joins.algorithm import Traits
from watersmeet.joins.pwjoin import PWJoin


@dataclass(frozen=True, slots=True)
class PJoin(PWJoin):
    """Two streams, no window, and punctuations such as "no more bids for auction 180".

    ::

        a ──► violation? ──► probe B ──► insert A, unless B has closed the key
        punctuation of a ──► purge B's tuples of the key ──► both closed, or nothing stored here? propagate it

    Emits   (a, b) with a.key = b.key, whatever their times.
    Evicts  a when b has closed a.key, or has ended; never otherwise.
    Propagates a key as PWJoin does, but no window ever empties a closed key's list early.

    >>> PJoin().describe()
    {'name': 'pjoin', 'options': {}}

    References: Ding, Mehta, Rundensteiner, Heineman, Joining punctuated streams (2004).
    """

    traits: ClassVar[Traits] = replace(PWJoin.traits, name="pjoin", preference=2, windows=("none",))
