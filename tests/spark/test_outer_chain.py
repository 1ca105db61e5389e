"""A chain of outer joins through `as_stream` is exact: what the batch join gives, over a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, remove_working_states, run

pytestmark = pytest.mark.spark

SECOND = 1_000_000
WINDOW = 15
#: Times and numbers by stream; None where the stream has no row in a result.
Parts = dict[str, tuple[int, int]]
Row = tuple[int | None, Parts]
CHAINS = [("left", "left"), ("full", "full"), ("semi", "left"), ("anti", "full"), ("right", "anti")]
MARKS = [() if n == 0 else pytest.mark.more for n in range(len(CHAINS))]


def outer(how: str, left: list[Row], right: list[Row]) -> list[Row]:
    """The join of rows with (key, parts) by its definition; the time of a row is that of its newest part."""

    def time(row: Row) -> int:
        return max(t for t, _ in row[1].values())

    pairs = [
        (a, b) for a in left for b in right if a[0] is not None and a[0] == b[0] and abs(time(a) - time(b)) <= WINDOW
    ]
    matched = [[a for a, _ in pairs], [b for _, b in pairs]]
    if how in ("semi", "anti"):
        return [row for row in left if (row in matched[0]) == (how == "semi")]
    out = [(a[0], a[1] | b[1]) for a, b in pairs]
    out += [row for row in left if row not in matched[0]] if how in ("left", "full") else []
    return out + ([row for row in right if row not in matched[1]] if how in ("right", "full") else [])


@pytest.mark.parametrize(
    ("first", "second"), [pytest.param(*chain, marks=mark) for chain, mark in zip(CHAINS, MARKS, strict=True)]
)
def test_a_chain_is_the_batch_answer(spark: SparkSession, tmp_path: Path, first: str, second: str) -> None:
    chance, names = Random(7), "abcd" if (first, second) == ("left", "left") else "abc"
    feeds = {n: Feed(spark, tmp_path / n, f"k long, {n}_ts timestamp, {n}_n long") for n in names}
    rows: dict[str, list[Row]] = {n: [] for n in names}

    def add(batch: int, count: int) -> None:
        for n, feed in feeds.items():
            made = [
                (chance.choice([0, 1, 2, None]), 12 * batch + chance.randrange(12), len(rows[n]) + i)
                for i in range(count)
            ]
            made += [(9, 12 * batch + 12, -batch)]  # the key 9 moves the watermarks
            feed.add_rows([(k, t * SECOND, i) for k, t, i in made])
            rows[n] += [(k, {n: (t, i)}) for k, t, i in made]

    def chained(*, static: bool) -> wm.Joined:
        read = Feed.static if static else Feed.stream
        a, b, *more = (wm.stream(read(f), time=f"{n}_ts", window=f"{WINDOW} seconds", name=n) for n, f in feeds.items())
        joined = wm.join(a, b, on="k", how=first, shards=2)
        for s in more:
            joined = wm.join(joined.as_stream(window=f"{WINDOW} seconds"), s, on="k", how=second, shards=2)
        return joined

    def found(table: Any) -> Counter[Any]:
        columns = [f"{n}_n" for n in names if f"{n}_n" in table.column_names]
        return Counter(tuple(row[c] for c in ("k", *columns)) for row in table.to_pylist())

    for batch in range(3):
        add(batch, 5)
    streamed = run(chained(static=False).tagged, tmp_path / "checkpoint").table.to_pylist()
    remove_working_states()
    add(3, 5)
    for batch in (20, 40, 60):
        add(batch, 0)  # all that came before is final
    streamed += run(chained(static=False).tagged, tmp_path / "checkpoint").table.to_pylist()
    whole: list[Row] = outer(first, rows["a"], rows["b"])
    for n in names[2:]:
        whole = outer(second, whole, rows[n])
    shown = chained(static=True).df.toArrow()
    columns = [n for n in names if f"{n}_n" in shown.column_names]
    wanted = Counter((k, *(parts[n][1] if n in parts else None for n in columns)) for k, parts in whole)
    assert found(shown) == wanted
    assert not [r for r in streamed if r["kind"] == "late"]
    results = Counter(
        tuple(r[c] for c in ("k", *(f"{n}_n" for n in columns))) for r in streamed if r["kind"] == "result"
    )

    def early(counted: Counter[Any]) -> Counter[Any]:
        return Counter({row: n for row, n in counted.items() if row[0] != 9})

    assert early(results) == early(wanted)
