"""Predicates: typed and computed as SQL does, and refused where they would not be."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from lab.query.conditions import ROWS, SAME, SCHEMA
from watersmeet.errors import ColumnError, QueryError
from watersmeet.query.predicate_parser import parse


@pytest.mark.parametrize("text", SAME)
def test_values_are_those_of_sql(text: str) -> None:
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("rows", ROWS)
        want = [row[0] for row in database.execute(f"SELECT coalesce({text}, FALSE) FROM rows").fetchall()]
    predicate = parse(text, SCHEMA)
    assert predicate.holds(ROWS).tolist() == want
    assert predicate.holds(ROWS.slice(0, 0)).tolist() == []
    assert predicate.holds(ROWS.slice(1, 3)).tolist() == want[1:4]


def test_what_follows_a_comparison_is_about_all_of_it() -> None:
    assert parse("i < n IS NULL", SCHEMA).root == parse("(i < n) IS NULL", SCHEMA).root
    assert parse("i < n IN (yes, TRUE)", SCHEMA).root == parse("(i < n) IN (yes, TRUE)", SCHEMA).root
    assert parse("NOT i = n NOT IN (yes)", SCHEMA).root == parse("NOT (NOT ((i = n) IN (yes)))", SCHEMA).root


def test_words_that_mean_something_elsewhere_are_names() -> None:
    columns = ("date", "first", "end", "timestamp", "select", "interval")
    schema = pa.schema([(name, pa.int64()) for name in columns])
    assert parse("date + first < `end` * timestamp AND select <> interval", schema).columns == columns


def test_names_are_found_as_spark_finds_them() -> None:
    assert parse("N = 2 AND `small column` < 0", SCHEMA).columns == ("n", "small column")
    assert parse("N = 2 AND `small column` < 0", SCHEMA).holds(ROWS).tolist() == [False, True, False, False, False]
    with pytest.raises(ColumnError) as caught:
        parse("days = 2", SCHEMA)
    assert str(caught.value) == (
        "`where` names column `days`, which no stream of the join has.\nHint: did you mean `day`?"
    )
    with pytest.raises(ColumnError, match="names column `N`"):
        parse("N = 2", SCHEMA, case_sensitive=True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("upper(s) = 'A'", "a call of upper"),
        ("s || t = 'a'", "`|| t = 'a'`"),
        ("i <=> n", "`<=> n`"),
        (
            "moment > later - INTERVAL 1 MONTH",
            "`INTERVAL '1' MONTH`, which has no fixed length in days to microseconds",
        ),
        (
            "moment > later - INTERVAL 999999999 DAYS",
            "`INTERVAL '999999999' DAYS`, which is longer than Spark's longest interval",
        ),
        ("i --n", "`--n`"),
        ("i <", "an end where a value should be"),
        ("(i < n", "no ) where one should be"),
        ("i < n < d", "`<`"),
        ("i IS 3", "no NULL where one should be"),
        ("i NOT 3", "NOT where no BETWEEN or IN follows"),
        ("i = AND", "`AND`"),
        ("s = 'it' 's'", "`'it' 's'`"),
        ("s = r'its'", "`r'its'`"),
        ("i = 0x1F", "`0x1F`"),
        ("s = N'its'", "`N'its'`"),
        ("i = 3L", "`3L`"),
        ("i = 1_000", "`1_000`"),
        ("d BETWEEN . 0.5 AND 2", "`0.0.5`, which is no number"),
        ("d < -1e400", "`-1e400`, which is no number"),
        ("", "an end where a value should be"),
        ("i < 3 n", "`n`"),
        ("s = 'a", "a quote or a comment that does not end"),
        ('s = "a"', '`"a"`'),
        ("s = 'a\\'b'", "`'a\\'b'`"),
        ("i /* one */ = 1", "`/* one */ = 1`"),
        ("i IN ()", "no values in parentheses behind IN"),
        ("i = NOT yes", "`NOT yes` as a value without parentheses"),
        ("a.i = 1", "`a.i`"),
        ("case when yes then yes end", "`when`"),
        ("s LIKE 'a'", "`LIKE`"),
        ("i IS DISTINCT FROM n", "`FROM`"),
    ],
)
def test_more_than_comparisons_and_arithmetic_is_refused(text: str, what: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text, SCHEMA)
    message = str(caught.value)
    assert message.startswith(f"`where` ({text}) has {what}; a join evaluates comparisons (= <> < <= > >=")
    assert message.endswith("after an inner join any condition goes.")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("s + 1 = 2", r"`\+` of string and int32; numbers alone are added"),
        ("d / 2 > 1", "`/` of decimals; Arrow rounds them otherwise"),
        ("d % e > 1", "`%` of decimals"),
        ("d * d * d * d > 1", r"`\*` of decimal128\(32, 6\) and decimal128\(10, 2\); a decimal has 38 digits"),
        ("i", "a value of type int32 as a condition"),
        ("i AND yes", "a value of type int32 as a condition"),
        (
            "moment + 1 > later",
            r"`\+` of timestamp\[us\] and int32; numbers alone are added, .*intervals added to times",
        ),
        ("moment > INTERVAL 1 DAY", "a comparison of timestamp\\[us\\] with duration"),
        ("-s = ''", "`-` of string; only a number and an interval have a negative"),
        ("s = 1", "a comparison of string with int32"),
        ("moment = day", "a comparison of timestamp"),
        ("list = list", "a comparison of list"),
        ("n = 0.00000000000000000000000000000000000001", "a comparison of int64 with decimal128"),
        ("n = 1234567890123456789012345678901234567890.5", "the number 1234567890123456789012345678901234567890.5"),
    ],
)
def test_types_that_do_not_fit_are_refused(text: str, what: str) -> None:
    with pytest.raises(QueryError, match=f"`where` has {what}"):
        parse(text, SCHEMA)


@pytest.mark.parametrize("text", ["i + 1 > 0", "- `small column` > 0", "i / n > 0", "i % n > 0", "x / n > 1"])
def test_what_has_no_value_is_an_error(text: str) -> None:
    with pytest.raises(QueryError, match=r"^`where` \(.*\) has no value for a pair of rows: .*\nHint: rule such"):
        parse(text, SCHEMA).holds(ROWS)


def test_the_right_side_is_evaluated_only_where_the_left_one_leaves_it_open() -> None:
    assert parse("n = 0 OR i / n > 0", SCHEMA).holds(ROWS).tolist() == [True, False, False, False, False]
    assert parse("n <> 0 AND x / n > 1", SCHEMA).holds(ROWS).tolist() == [False, True, False, False, False]
