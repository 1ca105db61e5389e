"""Queries: what fits together, and everything that is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from watersmeet.errors import ColumnError, QueryError, WatersmeetError, WindowError
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded


def stream(name: str = "bids", key: tuple[str, ...] = ("item",), **columns: pa.DataType) -> StreamSpec:
    fields = {"item": pa.int64(), f"{name}_at": pa.timestamp("us", "UTC"), **columns}
    return StreamSpec(name, pa.schema(list(fields.items())), f"{name}_at", key, TimeWindow(10))


def test_the_result_has_the_key_then_what_each_stream_brings() -> None:
    query = JoinQuery((stream("bids", price=pa.decimal128(10, 2)), stream("sales", buyer=pa.string())))
    assert query.schema == pa.schema(
        [
            ("item", pa.int64()),
            ("bids_at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(10, 2)),
            ("sales_at", pa.timestamp("us", "UTC")),
            ("buyer", pa.string()),
        ]
    )


def test_keys_may_be_called_differently() -> None:
    other = StreamSpec("sales", pa.schema([("id", pa.int64()), ("at", pa.int64())]), "at", ("id",), Unbounded())
    assert JoinQuery((stream(), other)).schema.names == ["item", "bids_at", "at"]
    assert JoinQuery((other, stream())).schema.names == ["id", "at", "bids_at"]


@pytest.mark.parametrize("change", [{"time": "at"}, {"key": ("item", "at")}])
def test_an_unknown_column_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ColumnError) as caught:
        replace(stream(), **change)  # type: ignore[arg-type]
    assert str(caught.value) == "stream `bids` has no column `at`.\nHint: it has item, bids_at."


def test_a_stream_without_a_key_is_refused() -> None:
    with pytest.raises(ColumnError) as caught:
        stream(key=())
    assert str(caught.value) == "stream `bids` has no key column; a join needs at least one."


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.date32(), pa.timestamp("ms"), pa.timestamp("ns"), pa.int32()], ids=str
)
def test_a_time_that_is_none_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(ColumnError) as caught:
        stream(bids_at=kind)
    assert str(caught.value) == (
        f"`time` of stream `bids` is column `bids_at` of type {kind}; "
        "an event time is a timestamp in microseconds, or a number of them.\n"
        "Hint: cast `bids_at` to timestamp[us]."
    )


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")], ids=str)
def test_times_are_microseconds(kind: pa.DataType) -> None:
    assert stream(bids_at=kind).payload == ("bids_at",)


def test_a_negative_delay_is_refused() -> None:
    with pytest.raises(WindowError) as caught:
        replace(stream(), delay=-1)
    assert str(caught.value) == (
        "`delay` of stream `bids` is -1 µs; a tuple cannot come before it happened.\n"
        'Hint: use "0 seconds" for a stream that is in order.'
    )


@pytest.mark.parametrize("n", [0, 1])
def test_one_stream_is_no_join(n: int) -> None:
    with pytest.raises(QueryError) as caught:
        JoinQuery((stream(),) * n)
    assert str(caught.value) == f"a join needs at least two streams; {n} given."


def test_keys_of_different_width_are_refused() -> None:
    with pytest.raises(ColumnError) as caught:
        JoinQuery((stream(), stream("sales", ("item", "shop"), shop=pa.string())))
    assert str(caught.value) == "stream `sales` joins on 2 columns, `bids` on 1."


def test_keys_of_different_type_are_refused() -> None:
    with pytest.raises(ColumnError) as caught:
        JoinQuery((stream(), stream("sales", item=pa.string())))
    assert str(caught.value) == (
        "key `item` of stream `bids` is int64, key `item` of `sales` is string; "
        "only values of one type can be compared for equality.\n"
        "Hint: cast one of them before the join."
    )


def test_a_column_of_two_streams_is_refused() -> None:
    with pytest.raises(ColumnError) as caught:
        JoinQuery((stream(price=pa.int64()), stream("sales", price=pa.int64())))
    assert str(caught.value) == (
        "column `price` stands in stream `sales` and in `bids`; the result could not tell them apart.\n"
        'Hint: rename one: df.withColumnRenamed("price", "sales_price").'
    )


def test_a_column_called_as_the_key_of_the_first_is_refused() -> None:
    other = StreamSpec(
        "sales", pa.schema([("id", pa.int64()), ("item", pa.int64()), ("at", pa.int64())]), "at", ("id",), Unbounded()
    )
    with pytest.raises(ColumnError, match=r"^column `item` stands in stream `sales` and in `bids`"):
        JoinQuery((stream(), other))


def test_the_digest_follows_everything_that_the_state_depends_on() -> None:
    query = JoinQuery((stream(), stream("sales")))
    a, b = query.streams
    variants = [
        JoinQuery((b, a)),
        JoinQuery((a, b), "left"),
        JoinQuery((a, replace(b, delay=1))),
        JoinQuery((a, replace(b, window=Unbounded()))),
        JoinQuery((a, replace(b, window=TimeWindow(11)))),
        JoinQuery((a, replace(b, window=TimeWindow(10, closed=False)))),
        JoinQuery((a, stream("sales", more=pa.int64()))),
        JoinQuery((a, replace(b, name="c"))),
    ]
    assert len({q.digest() for q in [query, *variants]}) == 1 + len(variants)
    assert pickle.loads(pickle.dumps(query)).digest() == query.digest()


def test_errors_travel_from_worker_to_driver() -> None:
    error = ColumnError("what is wrong.", hint="what to do.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ColumnError
    assert str(again) == str(error) == "what is wrong.\nHint: what to do."
    assert isinstance(again, WatersmeetError)
    assert isinstance(again, ValueError)
