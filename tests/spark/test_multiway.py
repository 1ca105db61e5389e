"""Several streams on a real Spark, against DuckDB: restarts, late rows, windows of rows, different attributes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree as ET

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, QueryOutput, failure, remove_working_states, run
from watersmeet.errors import QueryError, WindowError
from watersmeet.joins import REGISTRY
from watersmeet.joins.multiway_options import MultiwayJoin
from watersmeet.spark.runtime.spark_versions import joins_static
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
KEYS = {"a": ("x",), "b": ("x", "y"), "c": ("x", "y"), "d": ("y",)}


class Feeds:
    """Streams of files with key columns, a time and a number; kept as plain tables, too, for DuckDB."""

    def __init__(self, spark: SparkSession, folder: Path, keys: dict[str, tuple[str, ...]]) -> None:
        self.keys, self.chance, self.numbers = keys, Random(7), 0
        self.rows: dict[str, list[tuple[int, ...]]] = {n: [] for n in keys}
        ddl = {n: ", ".join(f"{k} long" for k in ks) for n, ks in keys.items()}
        self.feeds = {n: Feed(spark, folder / n, f"{ddl[n]}, {n}_ts timestamp, {n}_n long") for n in keys}

    def add(self, batch: int, count: int, late: int = 0) -> None:
        """A batch for all streams, ten seconds long, with some disorder and a few rows that come too late."""
        for n, keys in self.keys.items():
            rows = []
            for _ in range(count + late):
                at = 10 * batch + self.chance.randrange(10)
                rows.append((*(self.chance.randrange(6) for _ in keys), at * SECOND, self.numbers))
                self.numbers += 1
            rows[count:] = [(*row[:-2], row[-2] - 60 * SECOND, row[-1]) for row in rows[count:]]
            self.rows[n] += rows[:count]
            self.feeds[n].add(self.table(n, rows, pa.timestamp("us", "UTC")))

    def table(self, n: str, rows: list[tuple[int, ...]], time: pa.DataType) -> pa.Table:
        columns = [pa.array(c, pa.int64()) for c in zip(*rows, strict=True)]
        names = [*self.keys[n], f"{n}_ts", f"{n}_n"]
        return pa.table({m: c.cast(time) if m == f"{n}_ts" else c for m, c in zip(names, columns, strict=True)})

    def frame(self, n: str, *, static: bool) -> DataFrame:
        return self.feeds[n].static() if static else self.feeds[n].stream()

    def duckdb(self, sql: str) -> Counter[tuple[int, ...]]:
        """What a query says over the rows that are not late; times are microseconds."""
        with duckdb.connect(config={"threads": 1}) as database:
            for n, rows in self.rows.items():
                database.register(n, self.table(n, rows, pa.int64()))
            return Counter(database.execute(sql).fetchall())


def numbers(given: QueryOutput | pa.Table, names: str) -> Counter[tuple[int, ...]]:
    """Results by the numbers of their rows."""
    rows = (given.table if isinstance(given, QueryOutput) else given).to_pylist()
    return Counter(tuple(r[f"{n}_n"] for n in names) for r in rows if r.get("kind", "result") == "result")


def windowed(names: str, seconds: dict[str, int], on: str) -> str:
    """All combinations that fit, each window written out."""
    now = f"greatest({', '.join(f'{n}_ts' for n in names)})"
    inside = " AND ".join(f"{n}_ts >= {now} - {seconds[n] * SECOND}" for n in seconds)
    return f"SELECT {', '.join(f'{n}_n' for n in names)} FROM {', '.join(names)} WHERE {on} AND {inside}"


SECONDS = {"a": 9, "b": 14, "c": 6}


def three(feeds: Feeds, *, static: bool, seconds: dict[str, int] = SECONDS, **options: Any) -> wm.Joined:
    streams = [
        wm.stream(
            feeds.frame(n, static=static), time=f"{n}_ts", window=f"{seconds[n]} seconds", delay="9 seconds", name=n
        )
        for n in "abc"
    ]
    return wm.join(*streams, on="k", **options)


def test_three_streams_restarts_late_rows_and_the_order(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, dict.fromkeys("abc", ("k",)))
    for batch in range(2):
        feeds.add(batch, 30)
    output = run(three(feeds, static=False).tagged, tmp_path / "checkpoint")
    remove_working_states()
    for batch in range(2, 5):
        feeds.add(batch, 30, late=batch)
    other = three(feeds, static=False, seconds={**SECONDS, "a": 8})
    assert "another query" in failure(lambda: run(other.tagged, tmp_path / "checkpoint"))
    more = run(three(feeds, static=False).tagged, tmp_path / "checkpoint")
    want = feeds.duckdb(windowed("abc", SECONDS, "a.k = b.k AND b.k = c.k"))
    assert len(want) > 500
    assert numbers(output, "abc") + numbers(more, "abc") == want
    late = [row for row in more.table.to_pylist() if row["kind"] == "late"]
    assert Counter(row["stream"] for row in late) == dict.fromkeys("abc", 2 + 3 + 4)
    assert [m["late"] for m in more.metrics] == [6, 9, 12]
    last = more.metrics[-1]
    assert last["stored"] < 3 * 80
    assert all(len(shard["order"]) == 3 for shard in last["shards"])
    assert all(figure["rate"] > 0 for shard in last["shards"] for figure in shard["statistics"])


def test_static_streams_a_where_and_groups(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, dict.fromkeys("abc", ("k",)))
    for batch in range(3):
        feeds.add(batch, 20)
    same = "a.k = b.k AND b.k = c.k"
    want = feeds.duckdb(windowed("abc", SECONDS, f"{same} AND (a_n + b_n + c_n) % 3 = 0"))
    assert len(want) > 50
    for algorithm in ("auto", "eager"):
        joined = three(feeds, static=True, where="(a_n + b_n + c_n) % 3 = 0", algorithm=algorithm)
        assert numbers(joined.df.toArrow(), "abc") == want
    grouped = three(feeds, static=True).group_by("k").agg(found=wm.count(), last=wm.max("c_n"), emit="update")
    inside = windowed("abc", SECONDS, same).replace("SELECT a_n, b_n, c_n", "SELECT a.k, count(*), max(c_n)")
    assert Counter(tuple(r.values()) for r in grouped.df.toArrow().to_pylist()) == feeds.duckdb(
        f"{inside} GROUP BY a.k"
    )


def in_last(n: str, rows: int, key: str = "true") -> str:
    """Whether a row is one of the last of its stream, or of its key, at `now`."""
    later = f"(z.{n}_ts, z.{n}_n) > ({n}.{n}_ts, {n}.{n}_n)"
    now = "greatest(a.a_ts, b.b_ts, c.c_ts)"
    return f"(SELECT count(*) FROM {n} z WHERE {later} AND {key} AND z.{n}_ts <= {now}) < {rows}"


def counted(feeds: Feeds, *, static: bool) -> wm.Joined:
    make = partial(feeds.frame, static=static)
    a = wm.stream(make("a"), time="a_ts", window=wm.rows(15), order_by="a_n", name="a")
    b = wm.stream(make("b"), time="b_ts", window=wm.rows(2, per_key=True), order_by="b_n", name="b")
    return wm.join(a, b, wm.stream(make("c"), time="c_ts", window="8 seconds", name="c"), on="k")


def test_windows_of_rows_and_of_time(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, dict.fromkeys("abc", ("k",)))
    for batch in range(4):
        feeds.add(batch, 12)
    inside = f"{in_last('a', 15)} AND {in_last('b', 2, 'z.k = b.k')}"
    sql = windowed("abc", {"c": 8}, f"a.k = b.k AND b.k = c.k AND {inside}")
    want = feeds.duckdb(sql)
    assert len(want) > 20
    joined = counted(feeds, static=joins_static(spark))
    if joins_static(spark):
        assert numbers(joined.df.toArrow(), "abc") == want
    assert len(joined.ids) == 1
    assert "1 shard, one because rows of a whole stream are counted" in str(joined.explain())
    output = run(counted(feeds, static=False).df, tmp_path / "checkpoint")
    known = "least((SELECT max(a_ts) FROM a), (SELECT max(b_ts) FROM b))"  # as far as rows can be counted
    assert numbers(output, "abc") == feeds.duckdb(f"{sql} AND greatest(a_ts, b_ts, c_ts) < {known}")


# ---------------------------------------------------------------- different attributes

TREE = {"a": 9, "b": 14, "c": 6, "d": 12}
ON = ["a.x = b.x", "b.x = c.x", "c.y = d.y"]


def attributes(feeds: Feeds, names: str, on: Any, *, static: bool, **options: Any) -> wm.Joined:
    def stream(n: str) -> Stream:
        df = feeds.frame(n, static=static)
        df = df.withColumnRenamed("y", "b_y") if n == "b" else df
        return wm.stream(df, time=f"{n}_ts", window=f"{TREE[n]} seconds", delay="9 seconds", name=n)

    return wm.join(*map(stream, names), on=on, **options)


def test_different_attributes_make_a_tree_that_gives_the_definition(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, KEYS)
    for batch in range(2):
        feeds.add(batch, 15)
    output = run(attributes(feeds, "abcd", ON, static=False).df, tmp_path / "checkpoint")
    remove_working_states()
    for batch in range(2, 4):
        feeds.add(batch, 15)
    more = run(attributes(feeds, "abcd", ON, static=False).df, tmp_path / "checkpoint")
    want = feeds.duckdb(windowed("abcd", TREE, "a.x = b.x AND b.x = c.x AND c.y = d.y"))
    assert len(want) > 300
    assert numbers(output, "abcd") + numbers(more, "abcd") == want
    static = attributes(feeds, "abcd", " AND ".join(ON), static=True, where="a_n % 2 = 0")
    assert static.df.columns == ["y", "x", "a_ts", "a_n", "b_y", "b_ts", "b_n", "c_ts", "c_n", "d_ts", "d_n"]
    assert numbers(static.df.toArrow(), "abcd") == Counter({k: v for k, v in want.items() if k[0] % 2 == 0})
    # the tree alone finds more: its pairs have the time of their newer part
    pairs = windowed("abc", {n: TREE[n] for n in "abc"}, "a.x = b.x AND b.x = c.x").replace("SELECT", "SELECT c.y,")
    shortest = min(TREE[n] for n in "abc") * SECOND
    loose = f"""WITH p AS ({pairs.replace("c_n FROM", "c_n, greatest(a_ts, b_ts, c_ts) AS t FROM")})
        SELECT a_n, b_n, c_n, d_n FROM p, d WHERE p.y = d.y AND t >= greatest(t, d_ts) - {shortest}
        AND d_ts >= greatest(t, d_ts) - {TREE["d"] * SECOND}"""
    assert len(feeds.duckdb(loose)) > len(want)


def test_a_tree_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, KEYS)
    joined = attributes(feeds, "abcd", ON, static=False)
    facts = joined.explain().to_dict()
    assert [s["name"] for s in facts["streams"]] == ["a_b_c", "d"]
    assert facts["streams"][0]["window"] == "6 seconds"
    (inner,) = facts["inner"]
    assert (inner["algorithm"], [s["name"] for s in inner["streams"]], inner["on"]) == ("general_lazy", [*"abc"], ["x"])
    text = str(joined.explain(verbose=True))
    assert "every tuple is in its own stream's window at the time of the newest" in text
    assert text.count("settings:") == 1


def test_keys_may_have_different_names(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, {"a": ("x",), "d": ("y",)})
    feeds.add(0, 40)
    joined = attributes(feeds, "ad", "a.x = d.y", static=True)
    assert joined.df.columns == ["x", "a_ts", "a_n", "d_ts", "d_n"]
    want = feeds.duckdb(windowed("ad", {n: TREE[n] for n in "ad"}, "a.x = d.y"))
    assert numbers(joined.df.toArrow(), "ad") == want
    assert joined.explain().to_dict()["algorithm"] == "hash"


# ---------------------------------------------------------------- explain


def test_explain_tells_of_orders(spark: SparkSession, tmp_path: Path) -> None:
    feeds = Feeds(spark, tmp_path, dict.fromkeys("abc", ("k",)))
    joined = three(feeds, static=False)
    assert "chosen by cost from the rates measured" in str(joined.explain())
    assert "b and c are past its a_ts + 9 seconds" in str(joined.explain())
    figures = [
        [{"rate": r, "distinct": 50, "window_tuples": 9 * r, "punctuation_rate": 0, "row_bytes": 90} for r in rates]
        for rates in ((10, 900, 20), (10, 700, 20))
    ]
    found = [{"shard": i, "idle": 0, "statistics": f} for i, f in enumerate(figures)]
    progress = {"observedMetrics": {"watersmeet": {"shards": [json.dumps(s) for s in found]}}}
    order = joined.explain(progress).to_dict()["order"]
    assert order["orders"][0] == ["a", "c", "b"]
    assert order["cost"] < order["runner_up"]["cost"]
    assert [f["rate"] for f in order["statistics"]] == [20, 1600, 40]
    assert "; next best " in str(joined.explain(progress))
    assert "1,600 rows/s" in joined.explain(progress).to_svg()
    given = three(feeds, static=False, order=["c", "a", "b"]).explain()
    assert given.to_dict()["order"]["orders"] == [["a", "c", "b"], ["b", "c", "a"], ["c", "a", "b"]]
    assert ET.fromstring(given.to_svg()).tag.endswith("svg")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"how": "left"},
        {"algorithm": "nested_loop"},
        {"algorithm": wm.WindowedHashJoin(buckets=10)},
        {"algorithm": "eager"},
        {"algorithm": "naive_multiway", "order": ["d", "a"]},
        {"algorithm": wm.LazyJoin(every="5 seconds", expiration="1 minute")},
        {"algorithm": wm.HybridJoin(index=("d",))},
        {"max_matches_per_row": 3},
    ],
)
def test_every_plan_can_be_explained_and_drawn(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    feeds = Feeds(spark, tmp_path, {"a": ("x",), "d": ("y",)})
    explained = attributes(feeds, "ad", "a.x = d.y", static=False, **options).explain()
    facts = explained.to_dict()
    taken = {"how": "pwjoin", "max_matches_per_row": "general_lazy"}
    wanted = next((taken[o] for o in taken if o in options), options.get("algorithm", "hash"))
    wanted = wanted if isinstance(wanted, str) else wanted.name
    assert facts["algorithm"] == wanted
    assert ("order" in facts) == issubclass(REGISTRY[wanted], MultiwayJoin)
    assert str(explained).startswith(f"{wanted} (")
    drawn = "".join(ET.fromstring(explained.to_svg()).itertext())
    assert all(word in drawn for word in (wanted, "kept", "2 shards"))


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda s: wm.join(s("a"), on="x"), QueryError, "`join` takes two to 8 streams; 1 given."),
        (lambda s: wm.join(*(s(n) for n in "abc"), on="x", how="left"), QueryError, "which rows are unmatched"),
        (
            lambda s: wm.join(*(s(n) for n in "abc"), on="x", order=["a", "z", "c"]),
            QueryError,
            "`order` names `z`",
        ),
        (lambda s: wm.join(*(s(n) for n in "abc"), on="x", order=[0, 1]), QueryError, "it names each of the 3 streams"),
        (lambda s: wm.join(s("a", wm.rows(3)), s("c"), on="x", shards=2), WindowError, "rows of the whole stream, and"),
        (
            lambda s: wm.stream(s("a").df, time="a_ts", window=3),
            WindowError,
            "`window` is 3; it is a duration",
        ),
        (lambda s: wm.join(*(s(n) for n in "acd"), on=["a.x = c.x"]), QueryError, "no equality between `a`, `c` and"),
        (lambda s: wm.join(s("a"), s("c"), on="a.x = z.x"), QueryError, "no stream is called `z`"),
        (lambda s: wm.join(s("a"), s("c"), on="a.x = 3"), QueryError, "is no equality of two columns"),
        (
            lambda s: wm.join(*(s(n) for n in "acd"), on=["a.x = c.x", "c.y = d.y", "d.y = c.x"]),
            QueryError,
            "makes `x` and `y` of stream `c` equal",
        ),
        (
            lambda s: wm.join(s("a", wm.rows(3)), s("c"), s("d"), on=["a.x = c.x", "c.y = d.y"]),
            WindowError,
            "cannot be checked behind a tree of joins",
        ),
        (lambda s: wm.join(s("a", None), s("c"), s("d"), on=["a.x = c.x", "c.y = d.y"]), WindowError, "has no window"),
    ],
)
def test_refusals(
    spark: SparkSession, call: Callable[[Callable[..., Stream]], Any], kind: type[Exception], text: str
) -> None:
    def stream(n: str, window: Any = "9 seconds") -> Stream:
        columns = [f"1L AS {k}" for k in KEYS[n]] + [f"timestamp '2024-01-01' AS {n}_ts"]
        df = spark.sql(f"SELECT {', '.join(columns)}")
        return wm.stream(df.withColumnRenamed("y", "b_y") if n == "b" else df, time=f"{n}_ts", window=window, name=n)

    with pytest.raises(kind, match=text):
        call(stream)


def test_the_output_of_a_join_is_one_of_several_streams(spark: SparkSession, tmp_path: Path) -> None:
    """(a, b) within windows of 9 and 14 s, then with c and d at once."""
    feeds = Feeds(spark, tmp_path, dict.fromkeys("abcd", ("k",)))
    for batch in range(4):
        feeds.add(batch, 8)

    def joined(*, static: bool) -> wm.Joined:
        def stream(n: str, seconds: int) -> Stream:
            df = feeds.frame(n, static=static)
            return wm.stream(df, time=f"{n}_ts", window=f"{seconds} seconds", delay="9 seconds", name=n)

        pair = wm.join(stream("a", 9), stream("b", 14), on="k").as_stream("ab", window="7 seconds")
        return wm.join(pair, stream("c", 8), stream("d", 12), on="k")

    pairs = windowed("ab", {"a": 9, "b": 14}, "a.k = b.k").replace("a_n,", "a.k, greatest(a_ts, b_ts) AS t, a_n,")
    now = "greatest(t, c_ts, d_ts)"
    want = feeds.duckdb(f"""SELECT a_n, b_n, c_n, d_n FROM ({pairs}) p, c, d WHERE p.k = c.k AND c.k = d.k
        AND t >= {now} - {7 * SECOND} AND c_ts >= {now} - {8 * SECOND} AND d_ts >= {now} - {12 * SECOND}""")
    assert len(want) > 30
    assert numbers(joined(static=True).df.toArrow(), "abcd") == want
    output = run(joined(static=False).tagged, tmp_path / "checkpoint")
    assert numbers(output, "abcd") == want
    assert all(shard["order"][0][0] == "ab" for m in output.metrics for shard in m["shards"])
