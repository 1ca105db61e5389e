"""Writes a golden state: `python -m lab.golden.hash_join_state`, once per state format, when the format is final.

A folder `format-<n>` holds the durable state of one shard after some batches, as a store has it (`header`, and segments
as `<id>.arrow`), and the whole input in `input.json`, so that the rest of it can be joined by any later version.
"""

from __future__ import annotations

import json
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from lab import ROOT
from lab.joins.oracle import Scenario, Side, step
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.windows import TimeWindow
from watersmeet.state import stream_state
from watersmeet.state.durable import log

FOLDER = ROOT / "tests" / "golden"
#: Batches before the written state; the tests join the rest of the input.
WRITTEN, BATCHES, ROWS = 6, 9, 5
SEED = 1
KIND, TIME = "two columns", pa.timestamp("us", "UTC")
WINDOWS = (TimeWindow(12_000_000), TimeWindow(25_000_000))
DELAYS = (3_000_000, 0)
IDS = (0, 2)


def scenario(batches: list[list[list[list[Any]]]]) -> Scenario:
    """Two streams from their rows as `input.json` has them: stream, batch, row, (time, key)."""
    sides = []
    for rows, window, delay in zip(batches, WINDOWS, DELAYS, strict=True):
        number = count()
        tuples = tuple(tuple(Tuple(ts, tuple(key), next(number)) for ts, key in batch) for batch in rows)
        sides.append(Side(window, delay, tuples))
    return Scenario(KIND, TIME, (sides[0], sides[1]))


def made_up() -> list[list[list[list[Any]]]]:
    """Rows with ties, disorder, late ones, NULL keys and a NULL time."""
    chance = Random(SEED)

    def row(batch: int) -> list[Any]:
        ts = 1_700_000_000_000_000 + 1_000_000 * (batch * 8 + chance.randint(-4, 8))
        return [ts if chance.random() > 0.04 else None, [chance.choice([0, 1, None]), chance.choice(["", "ä"])]]

    return [[[row(batch) for _ in range(ROWS)] for batch in range(BATCHES)] for _ in range(2)]


def main() -> None:
    rows = made_up()
    given = scenario(rows)
    join, store = HashJoin().start(given.query()), log.MemoryStore()
    tokens = map("{:032x}".format, count(1))
    with (
        patch.object(log, "secrets", SimpleNamespace(token_hex=lambda _: next(tokens))),
        patch.object(stream_state, "MAX_SMALL_SEGMENTS", 3),  # so that there is a rewritten segment, too
    ):
        header = log.begin(given.query(), 0, len(IDS), IDS)
        for n in range(WRITTEN):
            step(join, given.batches(n))
            header = log.commit(join, header, store)
    folder = FOLDER / f"format-{log.FORMAT}"
    folder.mkdir()  # a golden state is never written anew
    assert store.header is not None
    (folder / "header").write_bytes(store.header)
    for id, data in store.segments.items():
        (folder / f"{id}.arrow").write_bytes(data)
    (folder / "input.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
