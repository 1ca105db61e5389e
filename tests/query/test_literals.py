"""Texts and other literals are read and written as Spark does."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lab.query.query_mistakes import STREAMS
from watersmeet.errors import QueryError
from watersmeet.query.parser import read
from watersmeet.query.predicate_parser import parse
from watersmeet.query.spark_sql import SparkSQL

FROM = "FROM auction A, bid B WHERE A.item_id = B.item_id"
TEXTS = {
    r"'it''s'": "it's",
    r"''": "",
    r"''''": "'",
    r"''''''": "''",
    r"'it\'s'": "it's",
    r'''"it's"''': "it's",
    r'"a""b"': 'a"b',
    r"'a\nb'": "a\nb",
    r"'a\\b'": "a\\b",
    r"'\u00e9\U0001F600'": "é😀",
}


@pytest.mark.parametrize("literal", TEXTS)
def test_a_text_is_read_and_written_as_in_spark(literal: str) -> None:
    ((_, e),) = read(f"SELECT {literal} AS x {FROM}", STREAMS).outputs
    assert (e.is_string, e.name) == (True, TEXTS[literal])
    ((_, again),) = read(f"SELECT {e.sql(SparkSQL)} AS x {FROM}", STREAMS).outputs
    assert again == e


@pytest.mark.parametrize(
    ("literal", "written"),
    [
        (r"r'a\nb'", r"'a\\nb'"),
        ("X'1F'", "X'1F'"),
        ("-1", "-1"),
        ("TIME '03:04:05'", "CAST('03:04:05' AS TIME)"),
        ("DATE '2024-01-02'", "CAST('2024-01-02' AS DATE)"),
        ("INTERVAL '1' DAY", "INTERVAL '1' DAY"),
    ],
)
def test_other_literals_are_written_as_spark_reads_them(literal: str, written: str) -> None:
    ((_, e),) = read(f"SELECT {literal} AS x {FROM}", STREAMS).outputs
    assert e.sql(SparkSQL) == written


def test_a_doubled_quote_within_a_text_of_a_predicate_is_a_quote() -> None:
    rows = pa.record_batch([pa.array(["it's", "its", "'", ""])], names=["s"])
    assert parse("s = 'it''s'", rows.schema).holds(rows).tolist() == [True, False, False, False]
    assert parse("s IN ('''', '')", rows.schema).holds(rows).tolist() == [False, False, True, True]
    with pytest.raises(QueryError, match="has `'it' 's'`; a join evaluates"):
        parse("s = 'it' 's'", rows.schema)
