"""Streams with given rates, windows and numbers of keys: the promised figures, in batches that hold all once."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.model.windows import TimeWindow
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.several import Several

EXAMPLE = Several((10, 1, 1, 3), (100, 100, 200, 100), (500, 50, 40, 5), seed=4)


def test_rates_gaps_and_keys_are_the_promised_ones():
    for i, (rate, distinct) in enumerate(zip(EXAMPLE.rates, EXAMPLE.distinct, strict=True)):
        rows = EXAMPLE.scaled(20).rows(i, 300)
        gaps = np.diff(rows["ts"]) / SECOND
        assert rows["ts"].size == pytest.approx(rate * 20 * 300, rel=0.05)
        assert gaps.std() == pytest.approx(gaps.mean(), rel=0.06)  # exponential
        counts = np.bincount(rows["key"], minlength=distinct * 20)
        assert counts.size == distinct * 20
        assert counts.var() == pytest.approx(counts.mean(), rel=0.35)  # uniform keys: a multinomial


def test_streams_and_seeds_differ_and_repeat():
    a, again, other = EXAMPLE.rows(0, 60), EXAMPLE.rows(0, 60), Several((10,), (1,), (500,), seed=5).rows(0, 60)
    assert np.array_equal(a["key"], again["key"])
    assert np.array_equal(a["ts"], again["ts"])
    assert a["ts"].size != other["ts"].size or not np.array_equal(a["ts"], other["ts"])


def test_windows_are_those_of_the_query():
    assert [s.window for s in EXAMPLE.query.streams] == [TimeWindow(w * SECOND) for w in (100, 100, 200, 100)]


@given(seed=st.integers(0, 20), batch=st.sampled_from([0.5, 1.0, 3.0, 7.0]))
def test_batches_hold_everything_once(seed, batch):
    load = Several((5, 1), (2, 2), (10, 3), seed)
    steps = list(load.steps(20, batch))
    for i, spec in enumerate(load.query.streams):
        rows = pa.Table.from_batches([s[i].rows for s in steps])
        inside = load.rows(i, 20)["ts"]
        assert rows[spec.time].to_pylist() == inside.tolist()
        assert rows["key"].to_pylist() == load.rows(i, 20)["key"].tolist()
        for n, step in enumerate(steps):
            assert step[i].seen == round((n + 1) * batch * SECOND) - 1
            assert all(n * batch * SECOND <= t <= step[i].seen for t in step[i].rows.column(spec.time).to_pylist())


def test_impossible_streams_are_refused():
    with pytest.raises(QueryError, match="`rates`, `windows` and `distinct` have 2, 1 and 2 entries"):
        Several((1, 1), (1,), (1, 1))
    with pytest.raises(QueryError, match="`rates` must be positive"):
        Several((0, 1), (1, 1), (1, 1))
