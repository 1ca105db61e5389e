"""What Spark or the join would refuse is refused by `wm.sql`, at its place in the query and in words of SQL."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from watersmeet.errors import QueryError
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

AB = "FROM a, b WHERE a.k = b.k"
LEFT = "SELECT v FROM a LEFT JOIN b ON a.k = b.k"
#: Queries, with a mark before what is wrong, and its message.
REFUSED = [
    (f"SELECT »some(w > 1) AS x {AB}", "no such aggregate is computed over results of a join."),
    (f"SELECT »explode(xs) AS x {AB}", "a function that makes several rows of one has no place in a query"),
    (f"SELECT max(v) AS x {AB} GROUP BY a.k, »explode(xs)", "a function that makes several rows of one"),
    (f"SELECT v {AB} AND »a.v", "this is BIGINT, and a condition is true, false or NULL."),
    (f"SELECT v {AB} AND »v + w", "this is BIGINT, and a condition is true, false or NULL."),
    (f"{LEFT} WHERE »b.w", "this is BIGINT, and a condition is true, false or NULL."),
    (f"{LEFT} AND »b.w", "this is BIGINT, and a condition is true, false or NULL."),
    (f"SELECT max(v) AS x {AB} GROUP BY BUCKET(at, '1 day') HAVING »max(v)", "this is BIGINT, and a condition"),
    (f"SELECT »a.v + array(1) AS x {AB}", "[DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES] Cannot resolve `a.v + array(1)`"),
    (f"SELECT »substring(s) AS x {AB}", "[WRONG_NUM_ARGS.WITHOUT_SUGGESTION]"),
    (f"SELECT max(»shout(v)) AS x {AB} GROUP BY a.k", "Spark has no function `shout`."),
    (f"SELECT »shout(max(v)) AS x {AB} GROUP BY BUCKET(at, '1 day')", "Spark has no function `shout`."),
    (f"{LEFT} AND »shout(w)", "Spark has no function `shout`."),
    (f"{LEFT} AND »length(s || t) > 2", "ON of a left join has a function; which pairs match is known within the join"),
    (f"{LEFT} AND »s > w", "ON of a left join has a comparison of string with int64; which pairs match"),
    ("SELECT v FROM »a JOIN b ON a.k = b.t", "column `a.k` is bigint in `a`, string in `b`"),
    (
        f"SELECT »sum(t) AS x {AB} GROUP BY a.k",
        "this is the sum of a column of type string; only numbers can be added.",
    ),
    (f"SELECT »max(xs) AS x {AB} GROUP BY a.k", "this is the max of a column of type list<"),
    (f"SELECT s, count(*) AS n {AB} GROUP BY »s", "GROUP BY is by s, but punctuations end values of the join key (k)"),
    (f"SELECT a.k, count(*) AS n {AB} GROUP BY »a.k", "GROUP BY is by a.k, and no punctuation ends values of k"),
    (f"SELECT count(*) AS n {AB} GROUP BY »BUCKET(s, '1 minute')", "BUCKET is over column `s` of type string;"),
    (
        f"SELECT a.k, count(*) AS n {AB} AND length(s || t) > 2 GROUP BY »a.k",
        "GROUP BY is by a.k, and Spark filters the results by a condition before they are grouped",
    ),
]


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, Stream]:
    a = spark.sql("SELECT id AS k, timestamp_seconds(id) AS at, id AS v, 'x' AS s, array(id) AS xs FROM range(3)")
    b = spark.sql("SELECT id AS k, timestamp_seconds(id) AS bt, id AS w, 'x' AS t FROM range(3)")
    return {"a": wm.stream(a, time="at", window="1 hour"), "b": wm.stream(b, time="bt", window="1 hour")}


@pytest.mark.parametrize(("query", "what"), REFUSED, ids=[query for query, _ in REFUSED])
def test_it_is_refused_at_once_where_it_stands_and_in_words_of_sql(
    streams: dict[str, Stream], query: str, what: str
) -> None:
    text = query.replace("»", "")
    with pytest.raises(QueryError) as caught:
        wm.sql(text, **streams)
    message = str(caught.value)
    assert message.startswith(f"`query`, line 1, column {query.index('»') + 1}: {what}")
    assert f"\n  {text}\n" in message
    assert caught.value.hint
    assert not any(word in message for word in ("wm.", "F.", "df.", "computed_", "agg_0", "`where`", "group_by"))


def test_the_hint_for_a_stream_that_nothing_bounds_is_a_window_in_brackets(streams: dict[str, Stream]) -> None:
    unbounded = {name: wm.stream(s.df, time=s.time) for name, s in streams.items()}
    with pytest.raises(QueryError, match="column 30: stream `y` has no window, and `x` no punctuation") as caught:
        wm.sql("SELECT x.v FROM a [NOW] x, b y WHERE x.k = y.k", **unbounded)
    assert caught.value.hint == "write one: b [RANGE 10 MINUTES]; b [UNBOUNDED] allows it."
