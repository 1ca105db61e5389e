"""Made streams as Arrow tables, by name and with options in text."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from watersmeet.errors import QueryError
from watersmeet.workload import ORIGIN, SECOND, STREAMS, AuctionHouse


@pytest.mark.parametrize("name", STREAMS)
def test_tables_have_the_announced_schema_even_when_empty(name):
    stream = STREAMS[name]({"rate": "200"})
    assert stream.table(0, 0).schema == stream.schema
    table = stream.table(0, 3 * SECOND)
    assert table.schema == stream.schema
    assert table.num_rows == pytest.approx(3 * stream.rate, rel=0.5)


def test_stream_time_0_is_new_year_2026():
    assert datetime.fromtimestamp(ORIGIN / SECOND, UTC) == datetime(2026, 1, 1, tzinfo=UTC)
    opened = STREAMS["auctions"]({}).table(0, SECOND)["opened_at"]
    assert pc.min(opened).cast(pa.int64()).as_py() >= ORIGIN


def test_options_reach_the_workload():
    options = {"rate": "300", "seed": "9", "in_flight": "20", "delay": "0.5"}
    expected = AuctionHouse(rate=300, seed=9, in_flight=20, delay=0.5).bids(SECOND, 2 * SECOND)
    assert STREAMS["bids"](options).table(SECOND, 2 * SECOND)["item_id"].to_pylist() == expected["item_id"].tolist()


def test_end_markers_have_neither_bidder_nor_price():
    bids = STREAMS["bids"]({}).table(0, 3 * SECOND)
    for name in ("bidder", "price"):
        assert bids[name].is_null().to_pylist() == bids["closed"].to_pylist()


def test_wide_rows_have_string_keys_that_match_across_sides():
    left, right = (STREAMS[name]({"rate": "500"}).table(0, 2 * SECOND) for name in ("wide_left", "wide_right"))
    assert left.num_columns == 12
    assert set(left["key"].to_pylist()) & set(right["key"].to_pylist())
    narrow = STREAMS["left"]({"rate": "500"}).table(0, 2 * SECOND)
    assert left["key"].to_pylist() == [f"customer-{key}" for key in narrow["key"].to_pylist()]


def test_unknown_options_are_refused():
    with pytest.raises(QueryError, match=r"AuctionHouse has no option `rats`.\nHint: it takes rate, seed"):
        STREAMS["bids"]({"rats": "1"})


def test_options_that_are_no_numbers_are_refused():
    with pytest.raises(QueryError, match="option `seed` is 'x', which is not a number of type int"):
        STREAMS["left"]({"seed": "x"})
