"""Streams that are made as a whole, cut into intervals: the same rows as the arrays, punctuations in their places."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.workload import BURST, DIP, ORIGIN, SECOND, STREAMS, Punctuated, Scrambled, Several


def times(table, column):
    return table[column].cast(pa.int64()).to_numpy() - ORIGIN


@pytest.mark.parametrize("pattern", ["punct-asc-30-40", "cluster-random-5", "uniform-100"])
def test_punctuated_rows_are_those_of_the_arrays(pattern):
    table = STREAMS["punctuated"]({"pattern": pattern, "seed": "4"}).table(0, 40 * SECOND)
    made = Punctuated(pattern, seed=4).take(8_000)
    tuples, found = (table.filter(m) for m in (pc.invert(table["closed"]), table["closed"]))
    count = np.searchsorted(made.times, 40 * SECOND)
    assert np.array_equal(times(tuples, "ts"), made.times[:count])
    assert np.array_equal(tuples["key"].to_numpy(), made.keys[:count])
    assert np.array_equal(tuples["n"].to_numpy(), np.arange(count))
    punctuations = np.searchsorted(made.closed_at, 40 * SECOND)
    assert np.array_equal(found["key"].to_numpy(), made.closed_keys[:punctuations])
    assert np.array_equal(times(found, "ts"), made.closed_at[:punctuations])
    assert found["n"].null_count == found.num_rows


def test_a_punctuation_stands_behind_the_last_tuple_of_its_value():
    table = STREAMS["punctuated"]({"pattern": "cluster-desc-5", "rate": "1000"}).table(0, 3 * SECOND)
    closed = set()
    for key, ends in zip(table["key"].to_pylist(), table["closed"].to_pylist(), strict=True):
        assert key not in closed
        if ends:
            closed.add(key)
    assert len(closed) > 500


def test_a_stream_that_has_closed_all_its_values_is_over():
    stream = STREAMS["punctuated"]({"pattern": "cluster-asc-5", "values": "10"})
    assert stream.table(100 * SECOND, 200 * SECOND).num_rows == 0
    assert 0 < stream.table(0, 100 * SECOND).num_rows < 120


def test_scrambled_rows_are_those_of_the_arrays():
    options = {"scrambling": "50", "lag": "20", "swings": "10:30:0.125,80:10:8", "seed": "2", "stream": "1"}
    stream = STREAMS["scrambled"](options)
    expected = Scrambled(50, lag=20, swings=(DIP, BURST)).rows(120, seed=2, stream=1)
    table = stream.table(0, 120 * SECOND)
    assert stream.end == 120 * SECOND
    assert np.array_equal(times(table, "at"), expected["at"].to_numpy())
    for name in ("epoch", "reading"):
        assert table[name].to_pylist() == expected[name].to_pylist()


def test_rows_of_several_streams_are_those_of_the_arrays():
    together = Several((50.0, 300.0), (1.0, 1.0), (9, 77), seed=3)
    table = STREAMS["several"]({"rate": "300", "distinct": "77", "seed": "3", "stream": "1"}).table(0, 70 * SECOND)
    expected = together.rows(1, 70)
    assert np.array_equal(times(table, "ts"), expected["ts"])
    assert np.array_equal(table["key"].to_numpy(), expected["key"])


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 8 * SECOND), max_size=5))
@pytest.mark.parametrize("name", ["punctuated", "scrambled", "several"])
def test_rows_do_not_depend_on_the_cuts(name, cuts):
    stream = STREAMS[name]({"rate": "300", "seed": "5"})
    pieces = [stream.table(low, high) for low, high in pairwise([0, *sorted(cuts), 8 * SECOND])]
    assert pa.concat_tables(pieces).equals(stream.table(0, 8 * SECOND))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("punctuated", {"pattern": "punct"}, "names no punctuated stream"),
        ("punctuated", {"irrelevant": "1"}, "option `irrelevant` is '1'; it is true or false"),
        ("punctuated", {"rate": "10", "gap": "0.1"}, "options `rate` and `gap` mean the same"),
        ("punctuated", {"rate": "0"}, "option `rate` is 0; it must be a positive number"),
        ("scrambled", {"rate": "fast"}, "option `rate` is 'fast', which is not a number"),
        ("scrambled", {"swings": "10:30"}, "a swing of the rate is start:seconds:factor"),
        ("scrambled", {"swings": "10:30:0"}, "a swing of the rate is start:seconds:factor"),
        ("several", {"stream": "8"}, "option `stream` is 8; streams are numbered from 0 to 7"),
        ("several", {"distinct": "0"}, "`distinct` at least 1"),
        ("scrambled", {"length": "0"}, "`gap` and `length` must be positive"),
        ("scrambled", {"scrambling": "0"}, "`scrambling` is 0 and `multiplicity` 2"),
    ],
)
def test_wrong_options_are_refused(name, options, message):
    with pytest.raises(QueryError, match=message):
        STREAMS[name](options)


def test_punctuations_may_be_irrelevant():
    table = STREAMS["punctuated"]({"irrelevant": "true"}).table(0, 20 * SECOND)
    found = table.filter(table["closed"])["key"].to_numpy()
    assert found.size
    assert (found < 0).all()
