"""How many tuples are stored: by windows alone, and with punctuations."""

from __future__ import annotations

import math
from dataclasses import replace

from watersmeet.cost.parameters import Parameters, Statistics


def retention(p: Parameters, i: int) -> float:
    """Seconds for which a tuple of stream i is kept: ``T_i + max_{j≠i} δ_j``, in an interval join after its wait.

    It expires when the watermark of every other stream, `delay` behind its newest tuple, has passed its window.
    """
    return p.streams[i].window + behind(p, i)


def behind(p: Parameters, i: int) -> float:
    """Seconds beyond its window for which a tuple is kept: its wait, and ``max_{j≠i} δ_j``.

    So far the watermarks of the others are behind their newest tuples. Partners that are older than the tuple, a
    negative wait, may have come before it.
    """
    return max(0.0, p.streams[i].wait + max(s.delay for s in p.others(i)))


def window_state(p: Parameters, i: int) -> float:
    """Tuples of stream i that windows alone keep: ``λ_i (T_i + max δ_j)``, and expired ones not removed yet."""
    s = p.streams[i]
    return s.window_tuples + s.rate * (behind(p, i) + p.expiration / 2)


def punctuated_state(b: Statistics, closed_rate: float, elapsed: float, keys_seen: float) -> float:
    """Tuples of stream b at time T since the start, when the other stream closes keys at a rate.

    Ding and Rundensteiner, Eq. 1: ``|S_b|_T = λb Tb (1 − λpa T / NK_b,T)``, NK_b,T = `keys_seen` the distinct keys on
    b until then. A share of closed keys beyond 1 (keys closed that b never had) counts as 1. In the best case, b's
    clusters follow the punctuations of a, NK_b,T = λpa T and the state is empty.
    """
    closed = closed_rate * elapsed / keys_seen if closed_rate else 0.0
    return b.window_tuples * (1 - min(closed, 1.0))


def steady_state(s: Statistics, closed_rate: float, extra: float = 0.0) -> float:
    """Tuples of a stream in the long run, `extra` seconds beyond its window, when keys are closed at a rate.

    Our own formula. Eq. 1 takes the closed share of all keys ever seen, which goes to 1 with time. Here a stored
    tuple's key is closed with the hazard ``h = λp / v``, v the keys that the window holds, so of R = T + extra seconds
    it stays ``(1 − e^{−hR}) / h``: ``λ v/λp (1 − e^{−λp R / v})`` tuples, for an unbounded window ``λ v/λp``.
    """
    if not closed_rate:
        return s.window_tuples + s.rate * extra
    stored = s.rate * -math.expm1(-closed_rate * (s.window + extra) / s.distinct) * s.distinct / closed_rate
    return stored if s.tuples is None else min(stored, s.tuples + s.rate * extra)


def thinned(p: Parameters, i: int, extra: float) -> float:
    """Expected tuples of stream i in its window and `extra` seconds beyond, with punctuations.

    The rate times the measured stay, if there is one (Little's law). Eq. 1 if the keys seen and the time since the
    start are known. Otherwise `steady_state`.
    """
    s, rate = p.streams[i], closed_rate(p, i)
    if s.stay is not None:
        stored = s.rate * s.stay
        return stored if s.tuples is None and math.isinf(s.window) else min(stored, s.window_tuples + s.rate * extra)
    if s.keys_seen is None or math.isinf(p.elapsed):
        return steady_state(s, rate, extra)
    whole = replace(s, tuples=s.window_tuples + s.rate * extra)
    return punctuated_state(whole, rate, p.elapsed, s.keys_seen)


def live_keys(p: Parameters, i: int) -> float:
    """Keys of stream i's window that arrivals may still have: without those that the others have closed.

    v keys less those closed during the window, ``v − λp T``, but at least the share of its tuples that is stored:
    with few tuples, most closed keys never occurred.
    """
    s, rate = p.streams[i], closed_rate(p, i)
    if not rate or (math.isinf(s.window) and s.tuples is None) or not s.window_tuples:
        return s.distinct
    share = min(1.0, thinned(p, i, 0.0) / s.window_tuples)
    return max(1.0, s.distinct * share, s.distinct - rate * min(s.window, p.elapsed))


def purged_share(p: Parameters, i: int) -> float:
    """Share of stream i's tuples that are purged before they expire: by Eq. 1, or ``1 − e^{−λp R / v}``.

    For a measured stay of S of R seconds, x in place of λp R / v solves ``(1 − e^{−x}) / x = S / R``.
    """
    s, rate = p.streams[i], closed_rate(p, i)
    if not retention(p, i):
        return 0.0  # tuples expire at once: none is purged earlier
    if s.stay is not None:
        return -math.expm1(-_hazard(s.stay / retention(p, i)))
    if not rate:
        return 0.0
    if s.keys_seen is None or math.isinf(p.elapsed):
        return -math.expm1(-rate * retention(p, i) / s.distinct)
    return min(rate * p.elapsed / s.keys_seen, 1.0)


def _hazard(kept: float) -> float:
    """x with ``(1 − e^{−x}) / x = kept``, by bisection; beyond 50 practically every tuple is purged."""
    low, high = 0.0, 50.0
    for _ in range(40):
        x = (low + high) / 2
        low, high = (x, high) if -math.expm1(-x) / x > kept else (low, x)
    return (low + high) / 2 if kept < 1 else 0.0


def closed_rate(p: Parameters, i: int) -> float:
    """Keys per second that all other streams than i have closed: the rate of the slowest."""
    return min(s.punctuation_rate for s in p.others(i))
