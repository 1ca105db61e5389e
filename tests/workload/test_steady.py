"""Streams as cost models think of them: as many tuples and keys as requested, and punctuations that are true."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.workload.steady import Steady

LOAD = Steady((200, 50), (4.0, 2.0), (30, 10), punctuations=5.0)


def columns(streams: Steady, i: int, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    rows = [step[i].rows for step in streams.steps(seconds)]
    return tuple(np.concatenate([r.column(c).to_numpy() for r in rows]) for c in (1, 0))  # type: ignore[return-value]


def test_rates_and_keys_are_as_requested() -> None:
    for i, (rate, keys) in enumerate(((200, 30), (50, 10))):
        times, values = columns(LOAD, i, 40)
        assert times.size == pytest.approx(rate * 40, rel=0.1)
        assert (np.diff(times) >= 0).all()
        live = np.floor(times * 5 / 1e6)
        assert set((values - live).astype(int)) == set(range(keys))


def test_a_closed_key_comes_no_more_and_every_key_is_closed_in_time() -> None:
    times, values = columns(LOAD, 0, 40)
    punctuations = [step[0].punctuations for step in LOAD.steps(40)]
    closed = {
        k: t for c in punctuations if c for k, t in zip(c.keys.column(0).to_pylist(), c.times.tolist(), strict=True)
    }
    assert sorted(closed) == list(range(5 * 40 - 1)), "the one of the last instant is not closed yet"
    for key, time in closed.items():
        assert not (times[values == key] > time).any()
        assert time == pytest.approx((key + 1) * 200_000, abs=1)


def test_the_same_for_a_seed_and_none_without_punctuations() -> None:
    assert np.array_equal(columns(LOAD, 1, 5)[1], columns(LOAD, 1, 5)[1])
    plain = Steady((5, 5), (1.0, 1.0), (3, 3))
    assert all(batch.punctuations is None for step in plain.steps(3) for batch in step)
