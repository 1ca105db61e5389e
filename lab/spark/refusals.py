"""Calls that must be refused, and DataFrames of an auction house to go wrong with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession


def refusal(kind: type[Exception], call: Callable[[], Any]) -> str:
    """The text of the error, of exactly this kind, that the call raises."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return str(caught.value)


def bids_of_all_types(spark: SparkSession) -> DataFrame:
    """Bids with columns that may be a key, a time, or neither."""
    return spark.sql(
        "SELECT 1L AS item_id, timestamp '2024-01-01' AS bid_at, 2.5D AS price, map('a', 1) AS tags, 'x' AS word, "
        "'x' COLLATE UTF8_LCASE AS name"
    )


def auctions_of_all_types(spark: SparkSession) -> DataFrame:
    """Auctions that share the key, and two more columns, with the bids."""
    return spark.sql("SELECT 1L AS item_id, timestamp '2024-01-01' AS opened_at, 'x' AS word, 'x' AS name")
