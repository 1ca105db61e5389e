"""`watersmeet.testing`: a join is checked over restarts against its batch answer, and what is wrong is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from watersmeet import testing
from watersmeet.errors import QueryError

pytestmark = pytest.mark.spark

AUCTIONS = "item_id bigint, opened_at timestamp, title string"
BIDS = "item_id bigint, bid_at timestamp, price double"


@pytest.fixture(scope="module")
def feeds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[testing.Feed, testing.Feed]:
    clock, folder = testing.Clock("2026-05-01T10:00"), tmp_path_factory.mktemp("feeds")
    auctions: list[list[testing.Row]] = [[(1, clock.now, "teapot"), (2, clock.at("4 seconds"), "atlas")]]
    bids: list[list[testing.Row]] = [[(1, clock.at("3 seconds"), 12.5), (1, clock.at("9 seconds"), 14.0)]]
    clock.move("1 minute")
    auctions.append([(8, clock.now, "clock")])
    bids.append([(9, clock.at("1 second"), 1.0)])
    return testing.feed(spark, AUCTIONS, auctions, folder / "a"), testing.feed(spark, BIDS, bids, folder / "b")


def joined(auctions: DataFrame, bids: DataFrame, how: str = "left", window: str = "10 seconds") -> wm.Joined:
    a = wm.stream(auctions, time="opened_at", window=window, name="auctions")
    b = wm.stream(bids, time="bid_at", window=window, name="bids")
    return wm.join(a, b, on="item_id", how=how)


def test_results_and_state_are_those_of_the_batch(feeds: tuple[testing.Feed, testing.Feed]) -> None:
    found = testing.check(joined, *feeds)
    assert sorted((row["title"], row["price"]) for row in found.results if row["price"] is not None) == [
        ("teapot", 12.5),
        ("teapot", 14.0),
    ]
    assert [row["title"] for row in found.results if row["price"] is None] == ["atlas"]
    assert [row["title"] for row in found.pending] == ["clock"]
    assert [row["title"] for row in found.state["auctions"]] == ["clock"]


def test_a_join_that_differs_from_its_batch_is_shown(feeds: tuple[testing.Feed, testing.Feed]) -> None:
    def longer(auctions: DataFrame, bids: DataFrame) -> wm.Joined:
        return joined(auctions, bids, "inner", "5 seconds" if auctions.isStreaming else "10 seconds")

    with pytest.raises(AssertionError, match=r"^1 of 2 results are missing, e.g.\n .*'price': 14.0.*\nHint: a missing"):
        testing.check(longer, *feeds)


def test_late_rows_have_no_place_in_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    clock = testing.Clock()
    auctions = testing.feed(spark, AUCTIONS, [[(1, clock.at("1 hour"), "b")], [(1, clock.now, "a")]], tmp_path / "a")
    bids = testing.feed(spark, BIDS, [[(1, clock.now, 1.0)]], tmp_path / "b")
    with pytest.raises(
        AssertionError, match=r"^rows were set apart \(1 late of stream `auctions`\), e.g. [^\n]*\nHint: raise"
    ):
        testing.check(lambda a, b: joined(a, b, "inner"), auctions, bids)

    def groups(a: DataFrame, b: DataFrame) -> wm.Grouped:
        return joined(a, b, "inner").groupBy("item_id").agg(n=wm.count(), emit="update")

    with pytest.raises(QueryError, match=r"(?s)`check` compares final groups.*Hint: use emit=\"final\""):
        testing.check(groups, auctions, bids)


def test_a_run_ends_with_a_clock(feeds: tuple[testing.Feed, testing.Feed], tmp_path: Path) -> None:
    def clocked(auctions: DataFrame, bids: DataFrame) -> wm.Joined:
        a = wm.stream(auctions, time="opened_at", window="10 seconds", idle_clock="1 second", name="auctions")
        b = wm.stream(bids, time="bid_at", window="10 seconds", name="bids")
        return wm.join(a, b, on="item_id", how="left")

    output = testing.run(clocked(*(f.stream() for f in feeds)).df, tmp_path / "checkpoint")
    assert len(output.tables) == 2, "no batches run for the clock"
    assert [row["title"] for row in testing.check(clocked, *feeds).pending] == ["clock"]


def asof(auctions: DataFrame, bids: DataFrame, how: str = "left") -> wm.Joined:
    a, b = wm.stream(auctions, time="opened_at", name="auctions"), wm.stream(bids, time="bid_at", name="bids")
    return wm.join_asof(b, a, on="item_id", how=how)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_rows_that_wait_for_their_nearest_one_are_pending(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """The bid of the last batch has an answer by then, and waits for a nearer one."""
    clock = testing.Clock("2026-05-01T10:00")
    auctions = testing.feed(
        spark, AUCTIONS, [[(1, clock.now, "a")], [(1, clock.at("10 seconds"), "b")]], tmp_path / "a"
    )
    bids = testing.feed(
        spark, BIDS, [[(1, clock.at("5 seconds"), 1.0)], [(1, clock.at("15 seconds"), 2.0)]], tmp_path / "b"
    )
    found = testing.check(lambda a, b: asof(a, b, how), auctions, bids)
    assert [(row["price"], row["title"]) for row in found.results] == [(1.0, "a")]
    assert [(row["price"], row["title"]) for row in found.pending] == [(2.0, "b")]
    assert [row["price"] for row in found.state["bids"]] == [2.0]


def test_rows_of_an_as_of_join_that_are_not_in_the_state_are_missing(
    feeds: tuple[testing.Feed, testing.Feed],
) -> None:
    def fewer(auctions: DataFrame, bids: DataFrame) -> wm.Joined:
        return asof(auctions, bids.where("price < 14") if bids.isStreaming else bids)

    with pytest.raises(AssertionError, match=r"^1 of 3 results are missing, e.g.\n .*'price': 14.0.*\nHint: a missing"):
        testing.check(fewer, *feeds)
