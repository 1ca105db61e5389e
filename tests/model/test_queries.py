"""Queries: what fits together, and everything that is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.errors import ColumnError, QueryError, WatersmeetError, WindowError
from watersmeet.model.punctuations import Ordered
from watersmeet.model.queries import HOW, JoinQuery, StreamSpec, columns_of, join_kind
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.query.predicate_parser import parse


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


def test_without_a_key_the_join_is_one_without_equality() -> None:
    query = JoinQuery((stream("bids", ()), replace(stream("sales", ()), schema=pa.schema([("sales_at", pa.int64())]))))
    assert query.is_theta
    assert query.schema.names == ["item", "bids_at", "sales_at"]
    assert query.describe()["spread"] == 0


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
        "`delay` of stream `bids` is -1 microsecond; a tuple cannot come before it happened.\n"
        'Hint: use "0 seconds" for a stream that is in order.'
    )


@pytest.mark.parametrize(("time", "spelled"), [(0, "0 seconds"), (-1, "-1 microsecond")])
def test_no_stream_is_idle_at_once(time: int, spelled: str) -> None:
    with pytest.raises(WindowError) as caught:
        replace(stream(), idle_after=time)
    assert str(caught.value) == (
        f"`idle_after` of stream `bids` is {spelled}; every stream is silent for a moment.\n"
        "Hint: give a time in which the stream would certainly have shown something, or leave it out."
    )


def test_ties_are_broken_by_a_column_with_an_order() -> None:
    assert replace(stream(rank=pa.string()), order_by="rank").order_by == "rank"
    with pytest.raises(ColumnError) as caught:
        replace(stream(rank=pa.string()), order_by="rang")
    assert str(caught.value) == (
        "`order_by` of stream `bids` names column `rang`, which it does not have.\nHint: it has item, bids_at, rank."
    )
    with pytest.raises(ColumnError) as caught:
        replace(stream(rank=pa.list_(pa.int64())), order_by="rank")
    assert str(caught.value) == (
        "`order_by` of stream `bids` is column `rank` of type list<item: int64>, whose values have no order.\n"
        "Hint: order by a number, a text or a time."
    )


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [(("item",), {"item": pa.list_(pa.int64())}), (("item", "shop"), {"shop": pa.string()})],
    ids=["nested", "two columns"],
)
def test_only_one_column_with_an_order_can_ascend(keys: tuple[str, ...], kinds: dict[str, pa.DataType]) -> None:
    with pytest.raises(ColumnError) as caught:
        replace(stream("bids", keys, **kinds), constraints=(Ordered(),))
    named = "item (list<item: int64>)" if len(keys) == 1 else "item, shop (int64, string)"
    assert str(caught.value) == (
        f"`ordered` of stream `bids` is about {named}; only one column of a type with an order can ascend.\n"
        "Hint: join on one column of numbers, texts or times, or leave the constraint out."
    )


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.int64(), 3, 1.5),
        (pa.int32(), 3, -1),
        (pa.float64(), 0.5, timedelta(1)),
        (pa.decimal128(9, 2), Decimal("0.5"), 0.5),
        (pa.date32(), timedelta(1), 1),
        (pa.timestamp("us"), timedelta(seconds=1), -timedelta(seconds=1)),
        (pa.string(), 0, 1),
        (pa.bool_(), 0, 1),
    ],
    ids=str,
)
def test_a_slack_is_a_distance_between_keys(kind: pa.DataType, good: Any, bad: Any) -> None:
    replace(stream(item=kind), constraints=(Ordered(good),))
    with pytest.raises(QueryError) as caught:
        replace(stream(item=kind), constraints=(Ordered(bad),))
    assert str(caught.value).startswith(
        f"`slack` of `ordered` on stream `bids` is {bad!r}, and its key is {kind}; "
        "a slack is a distance between values, not negative.\nHint: a number for numbers"
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
        JoinQuery((a, replace(b, idle_after=1))),
        JoinQuery((a, replace(b, order_by="sales_at"))),
        JoinQuery((a, b), where=parse("sales_at > bids_at", columns_of((a, b)))),
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


@pytest.mark.parametrize(
    ("kind", "names"),
    {
        "inner": "inner INNER",
        "left": "left left_outer leftouter LEFT_OUTER",
        "right": "right right_outer rightouter",
        "full": "full full_outer fullouter outer",
        "semi": "semi left_semi leftsemi",
        "anti": "anti left_anti leftanti",
    }.items(),
)
def test_kinds_of_joins_have_the_names_that_spark_takes(kind: str, names: str) -> None:
    assert {join_kind(name) for name in names.split()} == {kind}
    assert kind in HOW


def test_another_kind_of_join_is_refused() -> None:
    with pytest.raises(QueryError) as caught:
        join_kind("sideways")
    assert str(caught.value) == (
        '`how` is "sideways"; a join is one of inner, left, right, full, semi, anti.\n'
        "Hint: Spark's names go as well: outer, fullouter, leftouter, rightouter, leftsemi, leftanti."
    )
    with pytest.raises(QueryError, match=r"a cross join pairs all rows; name equal columns with `on`"):
        join_kind("cross")
