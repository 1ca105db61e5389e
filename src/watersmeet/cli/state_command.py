"""`watersmeet state`: prints the contents of a checkpoint or changes in it, or writes it with other shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from watersmeet.cli import spark_log

#: Fields of `Change` and `HeavyKey`, which are the titles of the tables.
_CHANGES = ("stream", "operator", "tuples_then", "tuples_now", "came", "left", "watermark_then", "watermark_now")
_KEYS = ("stream", "operator", "shard", "key", "tuples")


def show(
    checkpoint: str,
    *,
    rows: str | None = None,
    limit: int = 20,
    keys: bool = False,
    diff: tuple[int, int] | None = None,
    rescale: tuple[int, str] | None = None,
    tasks: int | None = None,
    master: str | None = None,
) -> None:
    """Print parts of a checkpoint; by default, the contents of every shard by stream."""
    console = Console(highlight=False, soft_wrap=True)
    import watersmeet as wm

    with spark_log.aside() as log:
        with console.status("starting Spark …"), spark_log.redirected(log):
            spark = wm.session(master=master or "local[2]")
        try:
            if rescale is not None:
                shards, new = rescale
                # the session here is not that of the query, which may have many more cores
                state = wm.rescale_state(spark, checkpoint, new, shards=shards, tasks=tasks or shards)
                console.print(str(state), markup=False)
                console.print(
                    f"{new} is written; start the query with shards={shards} and this checkpoint.", markup=False
                )
                return
            state = wm.read_state(spark, checkpoint, batch=None if diff is None else max(diff))
            if diff is not None:
                console.print(_table(_CHANGES, state.difference(min(diff))))
            if rows is not None:
                for row in state.rows(rows).limit(limit).toJSON().collect():
                    console.print(row, markup=False)
            if keys:
                console.print(_table(_KEYS, state.keys()))
            if diff is None and rows is None and not keys:
                console.print(str(state), markup=False)
        finally:
            spark.stop()


def _table(titles: Sequence[str], records: Sequence[Any]) -> Table:
    table = Table(*(title.replace("_", " ") for title in titles), box=None, pad_edge=False)
    for record in records:
        values = asdict(record)
        table.add_row(*("" if values[t] is None else str(values[t]).removesuffix("+00:00") for t in titles))
    return table
