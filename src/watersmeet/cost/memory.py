"""How many tuples are stored: by windows alone, and with punctuations."""

from __future__ import annotations

import math
from dataclasses import replace

from watersmeet.cost.parameters import Parameters, Statistics


def retention(p: Parameters, i: int) -> float:
    """Seconds for which a tuple of stream i is kept: ``T_i + max_{j≠i} δ_j``.

    It goes when every other stream's progress, which is `delay` behind its newest tuple, has passed its window.
    """
    return p.streams[i].window + behind(p, i)


def behind(p: Parameters, i: int) -> float:
    """Seconds by which the others' progress is behind their newest tuples: ``max_{j≠i} δ_j``."""
    return max(s.delay for s in p.others(i))


def window_state(p: Parameters, i: int) -> float:
    """Tuples of stream i that windows alone keep: ``λ_i (T_i + max δ_j)``, and what waits for its removal."""
    s = p.streams[i]
    return s.window_tuples + s.rate * (behind(p, i) + p.expiration / 2)


def punctuated_state(b: Statistics, closing_rate: float, elapsed: float, keys_seen: float) -> float:
    """Tuples of stream b at time T since the start, when the other stream closes keys at a rate.

    Ding and Rundensteiner, Eq. 1: ``|S_b|_T = λb Tb (1 − λpa T / NK_b,T)``, NK_b,T = `keys_seen` the distinct keys on
    b until then. A share of closed keys beyond 1 (keys closed that b never had) counts as 1. In the best case, b's
    clusters follow the closings of a, NK_b,T = λpa T and the state is empty.
    """
    closed = closing_rate * elapsed / keys_seen if closing_rate else 0.0
    return b.window_tuples * (1 - min(closed, 1.0))


def clusters_in_step(a: Statistics, cluster: float) -> float:
    """Tuples of both streams when b's clusters follow a's closings: one cluster of a, or ``λa Ta`` if that is less."""
    return min(cluster, a.window_tuples)


def steady_state(s: Statistics, closing_rate: float, extra: float = 0.0) -> float:
    """Tuples of a stream in the long run, `extra` seconds beyond its window, when keys are closed at a rate: ours.

    Eq. 1 takes the closed share of all keys ever seen, which goes to 1 with time. Here a stored tuple's key is closed
    with the hazard ``h = λp / v``, v the keys that the window holds, so of R = T + extra seconds it stays
    ``(1 − e^{−hR}) / h``: ``λ v/λp (1 − e^{−λp R / v})`` tuples, for an unbounded window ``λ v/λp``.
    """
    if not closing_rate:
        return s.window_tuples + s.rate * extra
    stored = s.rate * -math.expm1(-closing_rate * (s.window + extra) / s.distinct) * s.distinct / closing_rate
    return stored if s.tuples is None else min(stored, s.tuples + s.rate * extra)


def thinned(p: Parameters, i: int, extra: float) -> float:
    """Tuples of stream i in its window and `extra` seconds beyond, as its own and the others' figures let expect.

    The rate times the stay that was seen, if one was (Little's law). Eq. 1 where it can be asked: the keys seen since
    the start are known, and when that was. Otherwise `steady_state`.
    """
    s, closing = p.streams[i], closing_rate(p, i)
    if s.stay is not None:
        stored = s.rate * s.stay
        return stored if s.tuples is None and math.isinf(s.window) else min(stored, s.window_tuples + s.rate * extra)
    if s.keys_seen is None or math.isinf(p.elapsed):
        return steady_state(s, closing, extra)
    whole = replace(s, tuples=s.window_tuples + s.rate * extra)
    return punctuated_state(whole, closing, p.elapsed, s.keys_seen)


def live_keys(p: Parameters, i: int) -> float:
    """Keys of stream i's window that arrivals may still have: those that the others have closed come no more.

    Of v keys those closed in the time of the window, ``v − λp T``, but no fewer than the share of its tuples that is
    stored: where tuples are few most of what is closed was never seen.
    """
    s, closing = p.streams[i], closing_rate(p, i)
    if not closing or (math.isinf(s.window) and s.tuples is None) or not s.window_tuples:
        return s.distinct
    share = min(1.0, thinned(p, i, 0.0) / s.window_tuples)
    return max(1.0, s.distinct * share, s.distinct - closing * min(s.window, p.elapsed))


def purged_share(p: Parameters, i: int) -> float:
    """Of stream i's tuples those that a closing removes, not their window: of Eq. 1, or ``1 − e^{−λp R / v}``.

    Where tuples were seen to stay S of R seconds, x in place of λp R / v solves ``(1 − e^{−x}) / x = S / R``.
    """
    s, closing = p.streams[i], closing_rate(p, i)
    if not retention(p, i):
        return 0.0  # the window ends with the instant: nobody is faster
    if s.stay is not None:
        return -math.expm1(-_hazard(s.stay / retention(p, i)))
    if not closing:
        return 0.0
    if s.keys_seen is None or math.isinf(p.elapsed):
        return -math.expm1(-closing * retention(p, i) / s.distinct)
    return min(closing * p.elapsed / s.keys_seen, 1.0)


def _hazard(kept: float) -> float:
    """x with ``(1 − e^{−x}) / x = kept``, by halving; beyond 50 all but nothing is purged."""
    low, high = 0.0, 50.0
    for _ in range(40):
        x = (low + high) / 2
        low, high = (x, high) if -math.expm1(-x) / x > kept else (low, x)
    return (low + high) / 2 if kept < 1 else 0.0


def closing_rate(p: Parameters, i: int) -> float:
    """Keys per second of which no other stream of i will send more: that of the slowest to close."""
    return min(s.punctuation_rate for s in p.others(i))
