"""Arguments of the wrong kind, and methods of DataFrames called on other objects: a sentence with a hint."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.errors import MethodError, QueryError, WatersmeetError

pytestmark = pytest.mark.spark

TYPES = "k bigint, v double, at timestamp"
MINUTE = "1 minute"


class World:
    """One of everything that a user may have at hand."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.df: DataFrame = spark.createDataFrame([], TYPES)
        self.column: Column = F.col("k")
        self.a, self.b, self.c = (self.stream(n) for n in "abc")
        self.joined = wm.join(self.a, self.b, on="k")
        self.grouping = self.joined.group_by("k", wm.bucket("a_at", MINUTE))
        self.grouped = self.grouping.agg(n=wm.count())
        rate = spark.readStream.format("rate").load()
        live = (
            wm.stream(rate.selectExpr("value AS k", f"timestamp AS {n}_at"), time=f"{n}_at", window="1 hour", name=n)
            for n in "ab"
        )
        self.live = wm.join(*live, on="k")

    def stream(self, name: str, **more: Any) -> wm.Stream:
        df = self.df.selectExpr("k", f"v AS {name}_v", f"at AS {name}_at")
        return wm.stream(df, time=f"{name}_at", **({"window": "1 hour", "name": name} | more))

    def join(self, *streams: Any, on: Any = "k", **more: Any) -> wm.Joined:
        return wm.join(*(streams or (self.a, self.b)), on=on, **more)

    def write(self, **more: Any) -> Any:
        return wm.write(self.live, **({"checkpoint": "/nowhere/checkpoint", "results": "/nowhere/results"} | more))


@pytest.fixture(scope="module")
def world(spark: SparkSession) -> World:
    return World(spark)


#: What is called wrongly, and how the message begins; a part of its hint.
CALLS: dict[str, tuple[Callable[[World], Any], str, str]] = {
    # streams
    "stream(join)": (lambda w: wm.stream(w.joined, time="at"), "`df` is a join;", "as_stream(window="),
    "stream(groups)": (lambda w: wm.stream(w.grouped, time="at"), "`df` is groups;", "wm.write"),
    "stream(stream)": (lambda w: wm.stream(w.a, time="at"), "`df` is a stream;", "it is one already"),
    "stream(None)": (lambda w: wm.stream(None, time="at"), "`df` is None;", "spark.readStream"),
    "stream(text)": (lambda w: wm.stream("bids", time="at"), "`df` is a str;", "spark.readStream"),
    "time=Column": (lambda w: wm.stream(w.df, time=w.column), "`time` is a Column;", 'time="…"'),
    "time=None": (lambda w: wm.stream(w.df, time=None), "`time` is None;", 'time="…"'),
    "window=auto": (
        lambda w: w.stream("a", window="auto"),
        '`window` of a stream is "auto";',
        'wm.join(…, window="auto")',
    ),
    "window=10": (lambda w: w.stream("a", window=10), "`window` is 10;", "wm.rows(10)"),
    "window=10 months": (lambda w: w.stream("a", window="10 months"), '`window` is "10 months";', '"30 days"'),
    "delay=text of a number": (lambda w: w.stream("a", delay="10"), '`delay` is "10";', '"10 seconds"'),
    "delay=10": (lambda w: w.stream("a", delay=10), "`delay` is 10;", '"10 seconds"'),
    "delay=None": (lambda w: w.stream("a", delay=None), "`delay` is None;", '"10 seconds"'),
    "idle_after=5": (lambda w: w.stream("a", idle_after=5), "`idle_after` is 5;", '"5 seconds"'),
    "late_share=text": (
        lambda w: w.stream("a", delay="auto", late_share="1%"),
        "`late_share` of stream `a` is a str;",
        "0.001",
    ),
    "order_by=Column": (lambda w: w.stream("a", order_by=w.column), "`order_by` is a Column;", 'order_by="…"'),
    "name=1": (lambda w: wm.stream(w.df, time="at", name=1), "`name` is an int;", 'name="…"'),
    "punctuation=text": (
        lambda w: w.stream("a", punctuation="k"),
        "`punctuation` of stream `a` is a str.",
        "wm.unique",
    ),
    "punctuation=1": (lambda w: w.stream("a", punctuation=1), "`punctuation` of stream `a` is an int.", "wm.unique"),
    "punctuation=Column": (
        lambda w: w.stream("a", punctuation=w.column),
        "`punctuation` of stream `a` is a Column.",
        "wm.unique",
    ),
    "unique(Column)": (lambda w: w.stream("a", punctuation=wm.unique(w.column)), "`punctuation` is a Column;", '"…"'),
    "rows(text)": (lambda w: wm.rows("5"), "`rows` is '5';", "how many"),
    # joins
    "join(join)": (lambda w: w.join(w.joined, w.c), "`join` takes streams; got join.", "as_stream(window="),
    "join(groups)": (lambda w: w.join(w.a, w.grouped), "`join` takes streams; got groups.", "wm.write"),
    "join(DataFrame)": (lambda w: w.join(w.a, w.df), "`join` takes streams; got DataFrame.", "wm.stream(df"),
    "join(None)": (lambda w: w.join(w.a, None), "`join` takes streams; got None.", "wm.stream(df"),
    "join(list)": (lambda w: w.join([w.a, w.b]), "`join` takes streams one by one;", "wm.join(*streams"),
    "on=Column": (lambda w: w.join(on=w.column), "`on` is a Column, k; it is an equality", "on=a.df.id == b.df"),
    "on=eqNullSafe, computed": (
        lambda w: w.join(on=w.a.df.k.eqNullSafe(F.lower(w.b.df.k))),
        "`on` is a Column, <=>(k, lower(k)); it is an equality",
        "withColumn",
    ),
    "on=computed": (
        lambda w: w.join(on=F.lower(w.a.df.k) == F.lower(w.b.df.k)),
        "`on` is a Column, =(lower(k), lower(k)); it is an equality",
        "withColumn",
    ),
    "on=less": (lambda w: w.join(on=w.a.df.k < w.b.df.k), "`on` is a Column, <(k, k); it is an equality", "`where`"),
    "on=of another": (
        lambda w: w.join(on=w.df.at == w.b.df.k),
        "`on` is a Column, at = k, which is no equality between columns of two of the streams a, b;",
        "the streams' own DataFrames",
    ),
    "on=None": (lambda w: w.join(on=None), "`on` is None;", 'on="k"'),
    "on=[Column]": (lambda w: w.join(on=[w.column]), "`on` is a Column, k; it is an equality", "on=a.df"),
    "how=list": (lambda w: w.join(how=["left"]), "`how` is a list;", 'how="…"'),
    "how=None": (lambda w: w.join(how=None), "`how` is None;", 'how="…"'),
    "where=1": (lambda w: w.join(where=1), "`where` is an int;", "price > reserve"),
    "window=5": (lambda w: w.join(window=5), "`window` is 5;", "wm.rows(5)"),
    "algorithm=None": (lambda w: w.join(algorithm=None), "`algorithm` is None;", 'algorithm="…"'),
    "order=text": (lambda w: w.join(order="ab"), "`order` is a str;", "order=[…]"),
    "order=1": (lambda w: w.join(order=1), "`order` is an int;", "order=[…]"),
    "max_matches=text": (lambda w: w.join(max_matches_per_row="1"), "`max_matches_per_row` is '1';", "filter"),
    "closed=left": (lambda w: w.join(closed="left"), '`closed` is "left"; a window reaches', 'closed="right"'),
    "closed=ends": (lambda w: w.join(closed="ends"), "`closed` is 'ends';", 'closed="both"'),
    "how=cross": (lambda w: w.join(how="cross"), '`how` is "cross"; a join is one of inner,', "df.crossJoin"),
    "how=outer left": (lambda w: w.join(how="outer left"), '`how` is "outer left";', "leftouter"),
    "LazyJoin(every=5)": (lambda w: w.join(algorithm=wm.LazyJoin(every=5)), "`every` is 5;", '"5 seconds"'),
    "between=text": (lambda w: w.join(between="1 hour"), "`between` is '1 hour'; it is a pair", "-10 minutes"),
    "between=one": (lambda w: w.join(between=("1 hour",)), "`between` is ('1 hour',); it is a pair", "-10 minutes"),
    "between=numbers": (lambda w: w.join(between=(1, 2)), "`between` is 1; a duration has a unit", '"1 seconds"'),
    "between=turned": (
        lambda w: w.join(between=("2 hours", "1 hour")),
        "`between` is (2 hours, 1 hour); the lower bound is above the upper one",
        'between=("1 hour", "2 hours")',
    ),
    "between, window": (
        lambda w: w.join(between=("0 hours", "1 hour"), window="1 hour"),
        "`window` and `between` are given;",
        "leave one of them out.",
    ),
    "between, windows": (
        lambda w: w.join(between=("0 hours", "1 hour")),
        "stream `a` has a window (1 hour), and the join has `between`;",
        "leave one of them out.",
    ),
    "between, wo_join": (
        lambda w: w.join(between=("0 hours", "1 hour"), algorithm="wo_join"),
        '`algorithm` is "wo_join" and `between` is given;',
        'algorithm="auto"',
    ),
    "bucket, windows": (
        lambda w: w.join(on=["k", wm.bucket("a_at", MINUTE)]),
        "`on` has a bucket, and stream `a` has a window;",
        "leave one of them out.",
    ),
    "bucket, window": (
        lambda w: w.join(
            w.stream("a", window=None), w.stream("b", window=None), on=wm.bucket("a_at", MINUTE), window=MINUTE
        ),
        "`on` has a bucket, and `window` is given;",
        "leave one of them out.",
    ),
    "bucket of a value": (
        lambda w: w.join(on=["k", wm.bucket("a_v", MINUTE)]),
        "`on` has a bucket of `a_v`, which is the time of no stream;",
        'wm.bucket("a_at", …)',
    ),
    "bucket of three": (
        lambda w: w.join(w.a, w.b, w.c, on=["k", wm.bucket("a_at", MINUTE)]),
        "`on` has a bucket, and 3 streams are joined;",
        "join two of them first",
    ),
    "two buckets": (
        lambda w: w.join(on=[wm.bucket("a_at", MINUTE), wm.bucket("a_at", MINUTE)]),
        "`on` has two buckets;",
        "leave one of them out.",
    ),
    "bucket called as a column": (
        lambda w: w.join(
            w.stream("a", window=None), w.stream("b", window=None), on=wm.bucket("a_at", MINUTE, name="k")
        ),
        "the bucket in `on` is called `k`, as a column of stream `a` is.",
        'name="…"',
    ),
    "null-safe, no windows": (
        lambda w: w.join(on="a.k <=> b.k", window="auto"),
        "`on` joins NULLs of `k`, which is for one operator with windows,",
        "coalesce(…)",
    ),
    "null-safe, split keys": (
        lambda w: w.join(on="a.k IS NOT DISTINCT FROM b.k", split_keys=[1]),
        "`on` joins NULLs of `k`, which is for one operator with windows,",
        "coalesce(…)",
    ),
    "between of three": (
        lambda w: w.join(w.a, w.b, w.c, between=("0 hours", "1 hour")),
        "`between` bounds the times of two streams; 3 given.",
        "join two of them first",
    ),
    "allow_unbounded=text": (lambda w: w.join(allow_unbounded="yes"), "`allow_unbounded` is 'yes';", ""),
    "memory=text": (lambda w: w.join(window="auto", memory="much"), "`memory` is 'much';", "256 MB"),
    "shards=text": (lambda w: w.join(shards="2"), "`shards` is '2';", ""),
    "shards=2.5": (lambda w: w.join(shards=2.5), "`shards` is 2.5;", ""),
    "split_keys=text": (lambda w: w.join(split_keys="12"), "`split_keys` is a str;", "split_keys=[…]"),
    "foo=5": (lambda w: w.join(foo=5), "`foo` is no argument of `join`.", "it takes on, how, where, window,"),
    "hwo=left": (lambda w: w.join(hwo="left"), "`hwo` is no argument of `join`.", "did you mean `how`?"),
    "every=5": (
        lambda w: w.join(every=5),
        "`every` is no argument of `join`; it is an option of LazyJoin, GeneralLazyJoin, HybridJoin.",
        "algorithm=wm.GeneralLazyJoin(every=…).",
    ),
    "order twice": (
        lambda w: w.join(order=["a", "b"], algorithm=wm.EagerJoin(order=(1, 0))),
        "`order` is given to `join` and to EagerJoin.",
        "one of them",
    ),
    "every=0": (lambda w: w.join(algorithm=wm.LazyJoin(every="0 seconds")), "`every` is 0 seconds;", "every batch"),
    # what a join gives
    "as_stream()": (
        lambda w: w.join(w.joined.as_stream(), w.c),
        "stream `a_b` has no window,",
        "joined.as_stream(window=",
    ),
    "as_stream(1)": (lambda w: w.joined.as_stream(1), "`name` is an int;", 'name="…"'),
    "as_stream(window=1)": (lambda w: w.joined.as_stream(window=1), "`window` is 1;", "wm.rows(1)"),
    "as_stream(window=auto)": (
        lambda w: w.joined.as_stream(window="auto"),
        '`window` of a stream is "auto";',
        "wm.join(",
    ),
    "group_by(Column)": (
        lambda w: w.joined.group_by(w.column),
        "`group_by` takes names of columns and buckets; got a Column.",
        "wm.bucket",
    ),
    "group_by(lists)": (
        lambda w: w.joined.group_by(["k"], ["a_at"]),
        "`group_by` takes names of columns and buckets; got a list.",
        "wm.bucket",
    ),
    "agg(Column)": (
        lambda w: w.grouping.agg(F.count("*")),
        "`agg` takes aggregates by name; got a Column.",
        "n=wm.count()",
    ),
    "agg(dict)": (
        lambda w: w.grouping.agg({"k": "count"}),
        "`agg` takes aggregates by name; got a dict.",
        "n=wm.count()",
    ),
    "agg(n=Column)": (
        lambda w: w.grouping.agg(n=F.count("*")),
        "`n` is a Column; `agg` takes aggregates.",
        "wm.count()",
    ),
    "max(Column)": (lambda w: wm.max(w.column), "`col` is a Column;", 'col="…"'),
    "count(1)": (lambda w: wm.count(1), "`col` is an int;", 'col="…"'),
    "bucket(Column)": (lambda w: wm.bucket(w.column, MINUTE), "`col` is a Column;", 'col="…"'),
    "bucket(60)": (lambda w: wm.bucket("a_at", 60), "`duration` is 60;", '"60 seconds"'),
    "statistics=1": (lambda w: w.joined.explain(statistics=1), "`statistics` is an int;", '"rate"'),
    "analyze=1": (lambda w: w.live.explain(1), "`analyze` is an int;", "query.lastProgress"),
    # queries in SQL
    "sql(None)": (lambda w: wm.sql(None, a=w.a), "`query` is None;", 'query="…"'),
    "sql(join)": (
        lambda w: wm.sql("SELECT a.k FROM a, b WHERE a.k = b.k", a=w.a, b=w.joined),
        "`b` is a join;",
        "as_stream(window=",
    ),
    "sql(DataFrame)": (
        lambda w: wm.sql("SELECT a.k FROM a, b WHERE a.k = b.k", a=w.a, b=w.df),
        "`b` is a DataFrame;",
        "b=wm.stream(",
    ),
    # what runs
    "write(DataFrame)": (
        lambda w: wm.write(w.live.df, checkpoint="c", results="r"),
        "`write` takes a join or its groups; got a DataFrame.",
        "not its `df`",
    ),
    "write(stream)": (
        lambda w: wm.write(w.a, checkpoint="c", results="r"),
        "`write` takes a join or its groups; got a stream.",
        "wm.join",
    ),
    "write(grouping)": (
        lambda w: wm.write(w.live.group_by("k"), checkpoint="c", results="r"),
        "`write` takes a join or its groups; got a `group_by` without `agg`.",
        ".agg(",
    ),
    "checkpoint=None": (lambda w: w.write(checkpoint=None), "`checkpoint` is None;", "out/checkpoint"),
    "checkpoint=''": (lambda w: w.write(checkpoint=""), "`checkpoint` is '';", "out/checkpoint"),
    "results=1": (lambda w: w.write(results=1), "`results` is an int;", "lambda df, batch"),
    "late=DataFrame": (lambda w: w.write(late=w.df), "`late` is a DataFrame;", "lambda df, batch"),
    "trigger=10": (lambda w: w.write(trigger=10), "`trigger` is 10;", "availableNow"),
    "checkpoint twice": (
        lambda w: w.write(checkpointLocation="/nowhere/else"),
        "`checkpoint` and `checkpointLocation` are both given;",
        "give one",
    ),
    "outputMode=complete": (
        lambda w: w.write(outputMode="complete"),
        "`outputMode` is 'complete', and this query has \"append\":",
        'emit="update"',
    ),
    "trigger=availableNow": (
        lambda w: w.write(trigger="availableNow"),
        "`trigger` is 'availableNow';",
        '{"availableNow": True}',
    ),
    "monitor(DataFrame)": (
        lambda w: wm.monitor(w.live.df, log=True),
        "`monitor` takes a join or its groups; got a DataFrame.",
        "not its `df`",
    ),
    "counters(None)": (lambda w: wm.counters(None), "`progress` is None;", "query.lastProgress"),
    "counters(session)": (lambda w: wm.counters(w.spark), "`progress` is a SparkSession;", "query.lastProgress"),
    "read_state(text)": (lambda w: wm.read_state("checkpoint", "x"), "`spark` is a str;", "wm.read_state(spark"),
    "read_state(None)": (lambda w: wm.read_state(w.spark, None), "`checkpoint` is None;", "out/checkpoint"),
    "read_state(batch=text)": (lambda w: wm.read_state(w.spark, "x", batch="1"), "`batch` is '1';", ""),
    "rescale_state(text)": (
        lambda w: wm.rescale_state("a", "b", "c", shards=2),
        "`spark` is a str;",
        "wm.rescale_state(spark",
    ),
    "rescale_state(None)": (lambda w: wm.rescale_state(w.spark, None, "c", shards=2), "`checkpoint` is None;", "out/"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_refused_in_a_sentence(world: World, call: str) -> None:
    wrong, begins, hint = CALLS[call]
    with pytest.raises(WatersmeetError) as caught:
        wrong(world)
    text, error_hint = str(caught.value), caught.value.hint or ""
    assert text.startswith(begins)
    assert hint in error_hint


#: Of what a user of PySpark would try, what is there under another name.
METHODS = ("writeStream", "write", "select", "filter", "show", "groupby", "isStreaming", "schema", "withWatermark")


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("of", ["joined", "grouped", "grouping", "a"])
def test_methods_of_dataframes_are_refused_with_what_to_do_instead(world: World, of: str, name: str) -> None:
    thing = getattr(world, of)
    assert not hasattr(thing, name)
    with pytest.raises(MethodError) as caught:
        getattr(thing, name)
    kind = {"joined": "a join", "grouped": "groups", "grouping": "a `group_by` without `agg`", "a": "a stream"}[of]
    assert str(caught.value).startswith(f"`{name}` is called on {kind}; DataFrames have it.\nHint: ")


def test_what_is_done_instead_of_a_method_of_a_dataframe(world: World) -> None:
    def hint(of: Any, name: str) -> str | None:
        with pytest.raises(MethodError) as caught:
            getattr(of, name)
        return caught.value.hint

    assert hint(world.joined, "groupby") == "here it is called `group_by`."
    assert hint(world.grouped, "isStreaming") == "here it is called `streaming`."
    assert hint(world.joined, "select") == "joined.df.select is that of the results."
    assert hint(world.joined, "writeStream") == (
        "wm.write(joined, results=…, checkpoint=…), or joined.df.writeStream for the results alone."
    )
    assert hint(world.a, "filter") == (
        "do it with the DataFrame before wm.stream(df, …), or with the results: wm.join(…).df."
    )
    assert hint(world.grouping, "show") == "add what to compute first: .agg(n=wm.count()).df."


def test_columns_are_not_attributes(world: World) -> None:
    with pytest.raises(MethodError) as caught:
        world.a.k  # type: ignore[attr-defined]  # noqa: B018
    assert str(caught.value) == (
        '`k` is a column of a stream, not an attribute.\nHint: take it from its DataFrame: a.df.k, or name it: "k".'
    )
    with pytest.raises(MethodError, match=r"`a_v` is a column of a join, not an attribute.\nHint: joined.df.a_v, or"):
        world.joined.a_v  # type: ignore[attr-defined]  # noqa: B018
    assert copy.copy(world.a) == world.a


def test_other_attributes_are_missing_as_ever_and_properties_keep_their_errors(world: World) -> None:
    with pytest.raises(AttributeError, match="'Joined' object has no attribute 'price'") as caught:
        world.joined.price  # type: ignore[attr-defined]  # noqa: B018
    assert not isinstance(caught.value, QueryError)

    class Failing(wm.Joined):
        @property
        def names(self) -> list[str]:
            raise AttributeError("its own reason")

    joined = world.joined
    failing = Failing(
        joined.streams, joined.query, joined.ids, joined.streaming, joined.operator, joined.planner, joined.plan
    )
    with pytest.raises(AttributeError, match="its own reason"):
        failing.names  # noqa: B018
