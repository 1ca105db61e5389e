"""Joins of several streams without Spark: loads with unequal streams, and the work of an order over them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.joins import plan
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.progress.adaptive_order import FollowedOrder
from watersmeet.spark.progress.shard_statistics import Watch
from watersmeet.state.durable import log

NAMES = "abcdefgh"
SECOND = 1_000_000
ADAPTIVE = "adaptive"


@dataclass(frozen=True)
class Load:
    """Streams over the same keys, one batch a second; `rows[i]` are those of stream i in a batch."""

    rows: tuple[int, ...]
    keys: int
    window: int  # seconds, of every stream
    batches: int
    turned: tuple[int, ...] | None = None  # rows of a batch from the middle of the run on

    @property
    def query(self) -> JoinQuery:
        specs = []
        for name in NAMES[: len(self.rows)]:
            schema = pa.schema([("k", pa.int64()), (f"{name}_ts", pa.int64()), (f"{name}_v", pa.int64())])
            specs.append(StreamSpec(name, schema, f"{name}_ts", ("k",), TimeWindow(self.window * SECOND)))
        return JoinQuery(tuple(specs))

    def steps(self) -> Iterator[list[Batch]]:
        rng, query = np.random.default_rng(7), self.query
        for n in range(self.batches):
            counts = self.rows if self.turned is None or n < self.batches // 2 else self.turned
            batch = []
            for spec, count in zip(query.streams, counts, strict=True):
                times = np.sort(rng.integers(n * SECOND, (n + 1) * SECOND, count))
                keys = pa.array(rng.integers(0, self.keys, count))
                rows = pa.record_batch([keys, pa.array(times), keys], schema=spec.schema)
                batch.append(Batch(rows, (n + 1) * SECOND - 1))
            yield batch


def run(load: Load, contender: str, algorithm: str = "general_lazy", **options: Any) -> dict[str, Any]:
    """One order (its streams by name, or "adaptive") over a load.

    `probed` are tuples looked at and `step_s` CPU seconds, of the join alone; `order_s` CPU seconds for statistics and
    for the choice of orders; `samples` has (tuples looked at, CPU seconds) of every batch.
    """
    query = load.query
    order = None if contender in (ADAPTIVE, algorithm) else tuple(NAMES.index(name) for name in contender)
    definition = plan(query, algorithm, order=order, **options)
    join = definition.start()
    assert isinstance(join, RunningMultiway)
    followed = Watch(definition, join, FollowedOrder(join)) if contender == ADAPTIVE else None
    store, header = log.MemoryStore(), log.begin(query)
    found: dict[str, Any] = {"contender": contender, "probed": 0, "results": 0, "rows_in": 0}
    samples, changes, order_s = [], [], 0.0
    for n, batches in enumerate(load.steps()):
        began = time.process_time()
        for _ in join.step(batches):
            pass
        joined = time.process_time()
        if followed:
            counters = followed.after(n, batches)
            changes += [counters["order_change"]] if "order_change" in counters else []
        order_s += time.process_time() - joined
        samples.append((join.counters.probed, joined - began))
        for counter in ("probed", "results", "rows_in"):
            found[counter] += getattr(join.counters, counter)
        header = log.commit(join, header, store)
    state = {"stored": join.counters.stored, "state_bytes": sum(s.bytes for s in join.streams)}
    times = {"step_s": sum(seconds for _, seconds in samples), "order_s": order_s}
    return found | state | times | {"samples": samples, "changes": changes}


def orders(streams: int) -> list[str]:
    """All orders of so many streams, by their names."""
    return ["".join(order) for order in permutations(NAMES[:streams])]
