"""Values that a punctuation closes: which types become values of the key unchanged."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from watersmeet.spark.planning.key_punctuations import _loses

UNCHANGED = [
    (IntegerType(), LongType()),
    (LongType(), IntegerType()),  # one that does not fit stops the query
    (DecimalType(20, 0), LongType()),
    (LongType(), DecimalType(9, 2)),
    (DecimalType(9, 2), DecimalType(12, 3)),
    (DecimalType(2, 1), DoubleType()),
    (FloatType(), DoubleType()),
    (TimestampType(), TimestampType()),
    (DateType(), TimestampType()),
    (StringType(), StringType()),
]
CHANGED = [
    (DoubleType(), LongType()),
    (DecimalType(2, 1), IntegerType()),
    (DecimalType(9, 3), DecimalType(9, 2)),
    (DoubleType(), DecimalType(9, 2)),
    (TimestampType(), TimestampNTZType()),
    (TimestampNTZType(), TimestampType()),
    (TimestampType(), DateType()),
    (TimestampNTZType(), DateType()),
]


@pytest.mark.parametrize(("given", "key"), UNCHANGED, ids=str)
def test_these_stay_what_they_are(given: DataType, key: DataType) -> None:
    assert not _loses(given, key)


@pytest.mark.parametrize(("given", "key"), CHANGED, ids=str)
def test_these_may_become_another_value_which_would_be_closed_in_its_place(given: DataType, key: DataType) -> None:
    assert _loses(given, key)
