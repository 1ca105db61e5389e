"""Constants come back from batches that they priced."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from watersmeet.cost.calibrate import fit
from watersmeet.cost.work import Constants, Work

TRUE = Constants(20, 50, 5, 2, 80, 40, 3, 60, 90, 70, 0.5, 300, 200_000)


def batches(n: int, noise: float, seed: int = 1) -> list[tuple[Work, float]]:
    rng = np.random.default_rng(seed)
    samples = []
    for _ in range(n):
        size = 10 ** rng.uniform(2, 6)
        work = Work(*(float(round(size * share)) for share in rng.uniform(0, 2, len(fields(Work)))))
        nanoseconds = (TRUE.price(work) + TRUE.batch) * (1 + noise * rng.standard_normal())
        samples.append((work, nanoseconds / 1e9))
    return samples


def test_exact_times_give_the_constants_back() -> None:
    found = fit(batches(60, noise=0.0))
    assert found.as_dict() == pytest.approx(TRUE.as_dict(), rel=1e-6)


def test_noisy_times_predict_other_batches() -> None:
    found = fit(batches(200, noise=0.05))
    assert min(found.as_dict().values()) >= 0
    for work, seconds in batches(20, noise=0.0, seed=2):
        predicted = (found.price(work) + found.batch) / 1e9
        assert predicted == pytest.approx(seconds, rel=0.1)


def test_no_constant_is_negative() -> None:
    """The more is purged the less time it takes: purging is free then, it does not earn anything."""
    samples = [(Work(rows_in=100.0, purged=float(k)), (1000.0 - k) / 1e9) for k in range(0, 500, 50)]
    found = fit(samples)
    assert found.purged == 0
    assert min(found.as_dict().values()) >= 0


def test_what_no_batch_did_keeps_its_constant() -> None:
    start = Constants(purged=123.0)
    found = fit([(Work(rows_in=1000.0 * k), (k + 1) / 1e3) for k in range(1, 9)], start)
    assert (found.purged, found.probed) == (123.0, start.probed)
    assert found.rows_in == pytest.approx(1000)
    assert found.batch == pytest.approx(1e6)


def test_nothing_measured_changes_nothing() -> None:
    assert fit([]) == Constants()


def test_constants_as_data() -> None:
    assert Constants.of(TRUE.as_dict()) == TRUE
    assert Constants.of({"probed": 3, "of a later version": 1}) == Constants(probed=3.0)
