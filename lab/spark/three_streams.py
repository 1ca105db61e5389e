"""Three streams of files, and joins of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed

START = datetime(2026, 1, 1, tzinfo=UTC)
DDL = "k bigint, {n}_at timestamp, {n} string, {n}_over boolean"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Three:
    """Three streams of files, a second apart; some rows close their key."""

    def __init__(self, spark: SparkSession, folder: Path, names: str = "abc") -> None:
        self.names = names
        self.feeds = {n: Feed(spark, folder / n, DDL.format(n=n)) for n in names}
        self.rows: dict[str, list[list[tuple[Any, ...]]]] = {n: [] for n in names}

    def add(self, batch: int, keys: int = 6, rows: int = 20) -> None:
        for n in self.names:
            chance = Random(f"{n}{batch}")
            made = [
                (
                    chance.randrange(keys) + batch,
                    at(batch * 10 + 10 * r / rows),
                    f"{n}{batch}.{r}",
                    chance.random() < 0.1,
                )
                for r in range(rows)
            ]
            self.rows[n].append(made)
            self.feeds[n].add_rows(made)

    def stream(self, n: str, *, static: bool = False, **options: Any) -> wm.Stream:
        df = self.feeds[n].static() if static else self.feeds[n].stream()
        return wm.stream(df, time=f"{n}_at", name=n, **options)

    def window_join(self, **options: Any) -> wm.Joined:
        streams = [self.stream(n, window="15 seconds") for n in self.names[:2]]
        return wm.join(*streams, on="k", **options)

    def punctuated(self, how: str = "inner") -> wm.Joined:
        closes = {n: wm.when(f"{n}_over", on="k") for n in self.names}
        a, b = (self.stream(n, window="15 seconds", punctuation=closes[n]) for n in "ab")
        return wm.join(a, b, on="k", how=how)
