"""Punctuated streams: the promised rates, sizes and shares, orders of punctuations, and punctuations that are true."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.queries import JoinQuery
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.punctuated_streams import Punctuated, stream_spec

PATTERNS = [f"{kind}-{order}-{rest}" for order in ("asc", "desc", "random") for kind, rest in
            (("cluster", "5"), ("punct", "12-40"), ("punct", "1-0"), ("punct", "3-100"))]  # fmt: skip


def sizes(made):
    return np.diff(made.ends, prepend=0)


def last_seen(made):
    """The number of the last tuple of each value."""
    seen = {}
    for number, key in enumerate(made.keys.tolist()):
        seen[key] = number
    return seen


def test_arrivals_are_a_poisson_process():
    made = Punctuated().take(50_000)
    gaps = np.diff(made.times) / SECOND
    assert gaps.mean() == pytest.approx(0.01, rel=0.02)
    assert gaps.std() == pytest.approx(0.01, rel=0.02)
    assert Punctuated(gap=0.002).take(50_000).times[-1] == pytest.approx(100 * SECOND, rel=0.02)


@pytest.mark.parametrize(("pattern", "size"), [("cluster-asc-20", 20), ("punct-random-100-40", 100)])
def test_sizes_are_poisson(pattern, size):
    made = Punctuated(pattern).take(200_000)
    assert sizes(made).mean() == pytest.approx(size, rel=0.02)
    assert sizes(made).var() == pytest.approx(size, rel=0.15)


def test_a_cluster_has_one_value():
    made = Punctuated("cluster-random-20", seed=3).take(10_000)
    assert np.array_equal(np.repeat(made.closed_keys, sizes(made)), made.keys[: made.ends[-1]])


@pytest.mark.parametrize("share", [0, 10, 40, 80])
def test_the_match_percentage(share):
    made = Punctuated(f"punct-desc-100-{share}").take(200_000)
    value = np.repeat(made.closed_keys, sizes(made))
    matches = np.add.reduceat(made.keys[: value.size] == value, made.ends - sizes(made)) / sizes(made)
    assert matches.mean() == pytest.approx(share / 100, abs=0.03)
    if share:
        assert matches.var() > share / 100 * (1 - share / 100) / 100 * 1.1, "the percentage itself varies, too"


def test_the_others_are_spread_over_the_open_values():
    made = Punctuated("punct-asc-50-20", values=400).take(5_000)
    later = made.keys[1_000:1_500] - 20
    assert later.max() > 300
    assert np.median(later[later > 15]) == pytest.approx(190, rel=0.25)


@pytest.mark.parametrize(("order", "steps"), [("asc", {1}), ("desc", {-1})])
def test_orders(order, steps):
    closed = Punctuated(f"cluster-{order}-3", values=50).take(1_000).closed_keys
    assert set(np.diff(closed).tolist()) == steps
    assert sorted(closed.tolist()) == list(range(50))


def test_a_random_order_is_one_of_all_values():
    closed = Punctuated("cluster-random-3", values=50).take(1_000).closed_keys
    assert sorted(closed.tolist()) == list(range(50))
    assert set(np.diff(closed).tolist()) > {1}


@given(pattern=st.sampled_from(PATTERNS), seed=st.integers(0, 99), tuples=st.integers(0, 400))
def test_punctuations_are_true(pattern, seed, tuples):
    made = Punctuated(pattern, seed, values=60).take(tuples)
    seen = last_seen(made)
    for key, end, time in zip(made.closed_keys.tolist(), made.ends.tolist(), made.closed_at.tolist(), strict=True):
        assert seen.get(key, -1) < end
        assert time == (made.times[end - 1] if end else 0)
    assert (np.diff(made.closed_at) >= 0).all()


@given(pattern=st.sampled_from([*PATTERNS, "uniform-30"]), fewer=st.integers(0, 300), more=st.integers(0, 300))
def test_a_longer_stream_begins_with_the_shorter(pattern, fewer, more):
    short, long = (Punctuated(pattern, 5, values=60).take(n) for n in (fewer, fewer + more))
    assert np.array_equal(short.times, long.times[: short.times.size])
    assert np.array_equal(short.keys, long.keys[: short.keys.size])
    assert np.array_equal(short.closed_keys, long.closed_keys[: short.closed_keys.size])


def test_irrelevant_punctuations_match_nothing():
    true, useless = (Punctuated("punct-random-30-40", irrelevant=i).take(20_000) for i in (False, True))
    assert np.array_equal(true.keys, useless.keys)
    assert np.array_equal(true.closed_at, useless.closed_at)
    assert not np.isin(useless.closed_keys, true.keys).any()


def test_with_its_last_value_closed_a_stream_ends():
    made = Punctuated("punct-asc-10-40", values=20).take(10_000)
    assert made.keys.size == made.ends[-1] < 400
    assert made.closed_keys.size == 20


def test_uniform_keys_without_punctuations():
    made = Punctuated("uniform-100").take(50_000)
    assert made.closed_keys.size == 0
    assert np.bincount(made.keys).min() > 350


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_batches_hold_everything_once(kind):
    made, spec = Punctuated("punct-asc-5-40", seed=2).take(2_000), stream_spec("a", 1.0, kind)
    batches = list(made.batches(spec, 0.5))
    rows = pa.Table.from_batches([b.rows for b in batches])
    assert rows["a_ts"].to_pylist() == made.times.tolist()
    assert rows["key"].cast(pa.int64()).to_pylist() == made.keys.tolist()
    closed = [key for b in batches for key in b.punctuations.keys["key"].cast(pa.int64()).to_pylist()]
    assert closed == made.closed_keys.tolist()
    assert all(b.seen == max(b.rows["a_ts"].to_pylist() + b.punctuations.times.tolist()) for b in batches if b.seen)
    assert sum(b.punctuations.times.size for b in made.batches(spec, 0.5, punctuations=False)) == 0


@pytest.mark.parametrize("pattern", ["cluster-random-4", "punct-asc-7-40", "punct-random-7-40"])
def test_a_join_finds_no_violation(pattern):
    specs = [stream_spec(name, 0.5) for name in "ab"]
    join = PWJoin().start(JoinQuery(tuple(specs)))
    made = [Punctuated(pattern, seed, values=200).take(1_000) for seed in (0, 1)]
    counted = []
    for batches in zip(*(m.batches(s, 1.0) for m, s in zip(made, specs, strict=True)), strict=False):
        for _ in join.step(batches):
            pass
        counted.append(join.counters)
    assert sum(c.violations + c.late for c in counted) == 0
    assert sum(c.propagated for c in counted) > 50


@pytest.mark.parametrize("pattern", ["cluster-up-3", "punct-asc-100", "cluster-asc-0", "punct-asc-10-101", "poisson"])
def test_unknown_patterns_are_refused(pattern):
    with pytest.raises(QueryError, match=f"`pattern` is '{pattern}', which names no punctuated stream"):
        Punctuated(pattern)


@pytest.mark.parametrize("wrong", [{"gap": 0.0}, {"values": 0}])
def test_impossible_streams_are_refused(wrong):
    with pytest.raises(QueryError, match="`gap` must be positive, and `values` at least 1"):
        Punctuated(**wrong)
