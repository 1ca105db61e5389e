"""The runs of `benchmarks.punctuations`: operators of the engine on punctuated streams, one shard, no Spark.

A run hands an operator its batches one after the other, as a shard gets them from Spark, and settles each with a
durable log kept in memory. Time is CPU time of the process, so other programs on the machine matter little.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.measure.contender import Contender
from watersmeet.joins import plan
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.hash_join import RunningHashJoin
from watersmeet.joins.pwjoin import RunningPWJoin
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.punctuations import BatchPunctuations, Unique
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.state.durable import log
from watersmeet.state.keys import Int64s
from watersmeet.workload import AuctionHouse
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.punctuated_streams import Punctuated, stream_spec
from watersmeet.workload.tables import AUCTIONS, BIDS, ORIGIN, bid_table, plain_table

Step = Sequence[Batch]
HOUR = 1.0  # seconds of stream time that stand for an hour of the auction house
TWELVE_HOURS = round(12 * HOUR * SECOND)


#: Counters that are summed over a run.
COUNTERS = ("rows_in", "results", "probed", "inserted", "expired", "purged", "dead", "propagated", "late", "violations")
OPERATORS = {
    "nested_loop": Contender("nested_loop", punctuations=False),
    "hash, 100 buckets": Contender("hash", {"buckets": 100}, punctuations=False),
    "hash": Contender("hash", punctuations=False),
    "hash, informed": Contender("hash", punctuations=False),
    "pjoin": Contender("pjoin", windows=False),
    "pwjoin": Contender("pwjoin"),
    "pwjoin, none": Contender("pwjoin", punctuations=False),
}


@dataclass(frozen=True)
class Case:
    """A load and its contenders. `make` gives the query and the batches of an operator."""

    name: str
    about: str
    make: Callable[[Contender], tuple[JoinQuery, Iterator[Step]]]
    contenders: tuple[str, ...]
    repetitions: int = 5


def run(case: Case, name: str) -> dict[str, Any]:
    """One operator over a case: CPU seconds of its steps, of the log, and (both) of the batches without tuples.

    `samples` are (time, tuples stored, bytes, values propagated so far, results so far) after each batch.
    """
    operator = OPERATORS[name]
    query, steps = case.make(operator)
    informed = name == "hash, informed"
    join = InformedJoin(query, stored_by_pwjoin(case)) if informed else operator_of(operator, query)
    store, header = log.MemoryStore(), log.begin(query)
    found: dict[str, Any] = {"contender": name, "step_s": 0.0, "log_s": 0.0, "closing_s": 0.0}
    totals = dict.fromkeys(COUNTERS, 0)
    punctuations, samples, seen = 0, [], set[Any]()
    for batches in steps:
        began = time.process_time()
        for _ in join.step(batches):
            pass
        joined = time.process_time()
        header = log.commit(join, header, store)
        settled = time.process_time()
        found["step_s"] += joined - began
        found["log_s"] += settled - joined
        if not any(b.rows.num_rows for b in batches):
            found["closing_s"] += settled - began
        for counter in totals:
            totals[counter] += getattr(join.counters, counter)
        for batch, spec in zip(batches, query.streams, strict=True):
            seen.update(batch.rows.column(spec.key[0]).unique().to_pylist())
        punctuations += sum(b.punctuations.times.size for b in batches if b.punctuations is not None)
        at = max(b.seen for b in batches if b.seen is not None)
        size = sum(s.bytes for s in join.streams)
        samples.append((at, join.counters.stored, size, totals["propagated"], totals["results"]))
    return found | totals | {"closed_keys": punctuations, "distinct": len(seen), "samples": samples}


def operator_of(operator: Contender, query: JoinQuery) -> RunningJoin[Any]:
    return plan(query, operator.algorithm, **operator.options).start()


class InformedJoin(RunningHashJoin):
    """The plain window join, which knows without any work which rows PWJoin does not store on arrival.

    What PWJoin would cost at least, were punctuations free.
    """

    def __init__(self, query: JoinQuery, stored: Iterator[Int64s]) -> None:
        super().__init__(query)
        self.stored = stored

    def insert(self, i: int, which: Int64s) -> None:
        super().insert(i, next(self.stored))


class _RecordingJoin(RunningPWJoin):
    def __init__(self, query: JoinQuery) -> None:
        super().__init__(query)
        self.stored: list[Int64s] = []

    def insert(self, i: int, which: Int64s) -> None:
        super().insert(i, which)
        self.stored.append(which)


def stored_by_pwjoin(case: Case) -> Iterator[Int64s]:
    """The rows that PWJoin stores on arrival, in the order in which it does."""
    query, steps = case.make(OPERATORS["pwjoin"])
    join = _RecordingJoin(query)
    store, header = log.MemoryStore(), log.begin(query)
    for batches in steps:
        for _ in join.step(batches):
            pass
        header = log.commit(join, header, store)
    return iter(join.stored)


def punct(
    patterns: tuple[str, str], tuples: int, gap: float, window: float, batch: float, **options: Any
) -> Callable[[Contender], tuple[JoinQuery, Iterator[Step]]]:
    """Two punctuated streams with equal windows and numbers of tuples, in batches of `batch` seconds."""
    made = [Punctuated(pattern, seed, gap, **options).take(tuples) for seed, pattern in enumerate(patterns)]

    def make(operator: Contender) -> tuple[JoinQuery, Iterator[Step]]:
        specs = [stream_spec(name, window if operator.windows else None) for name in "ab"]
        cuts = [m.batches(s, batch, punctuations=operator.punctuations) for m, s in zip(made, specs, strict=True)]
        return JoinQuery(tuple(specs)), zip(*cuts, strict=False)

    return make


def many_punctuations(kind: pa.DataType, per_batch: int, batches: int) -> Callable[[Contender], Any]:
    """Stream b closes, one by one, the keys of stream a's last batch; those steps contain nothing else."""

    def make(operator: Contender) -> tuple[JoinQuery, Iterator[Step]]:
        a, b = stream_spec("a", 10.0, kind), stream_spec("b", 10.0, kind)
        return JoinQuery((a, b)), _closed_in_turn(a, b, kind, per_batch, batches)

    return make


def _closed_in_turn(
    a: StreamSpec, b: StreamSpec, kind: pa.DataType, per_batch: int, batches: int
) -> Iterator[list[Batch]]:
    none = [Batch(no_rows(s.schema)) for s in (a, b)]
    for number in range(batches):
        numbers = np.arange(number * per_batch, (number + 1) * per_batch) * 7919  # neighbours would merge into ranges
        keys = pa.array(numbers)
        if kind == pa.string():
            keys = pc.binary_join_element_wise("item", keys.cast(kind), "-")
        times = number * SECOND + np.arange(per_batch) * SECOND // per_batch
        rows = pa.record_batch([keys, pa.array(times), pa.array(numbers)], schema=a.schema)
        yield [Batch.of(rows, a.time), none[1]]
        yield [
            none[0],
            Batch(none[1].rows, int(times[-1]), punctuations=BatchPunctuations(rows.select(["key"]), times)),
        ]


def auction_house(hours: float, rate: float, lost: float, bids_wait: float) -> Callable[[Contender], Any]:
    """Bids within 12 hours of their auction's opening; auctions are unique, bids close them, some of that is lost.

    `bids_wait` is the bids' window in hours: 12 means "12 hours apart", 0 means that a bid never precedes its auction.
    """
    house = AuctionHouse(rate / HOUR, 1, round(rate / 16), 1.0 * HOUR, lost=lost)

    def make(operator: Contender) -> tuple[JoinQuery, Iterator[Step]]:
        constraints = (Unique(),) if operator.punctuations else ()
        waits = TimeWindow(round(bids_wait * HOUR * SECOND))
        auctions = StreamSpec("auctions", AUCTIONS, "opened_at", ("item_id",), TimeWindow(TWELVE_HOURS), 0, constraints)
        bids = StreamSpec("bids", BIDS, "bid_at", ("item_id",), waits)
        return JoinQuery((auctions, bids)), _hours(house, operator, hours)

    return make


def _hours(house: AuctionHouse, operator: Contender, hours: float) -> Iterator[list[Batch]]:
    step = round(HOUR * SECOND / 2)
    for start in range(0, round(hours * HOUR * SECOND), step):
        opened, delivered = house.auctions(start, start + step), house.bids(start, start + step)
        closed = delivered["closed"]
        keys = pa.record_batch([pa.array(delivered["item_id"][closed])], names=["item_id"])
        punctuations = BatchPunctuations(keys, delivered["bid_at"][closed] + ORIGIN)
        bids = bid_table({name: values[~closed] for name, values in delivered.items()}, BIDS)
        seen = start + step - 1 + ORIGIN  # the newest event time of both streams
        yield [
            Batch(_rows(plain_table(opened, AUCTIONS)), seen),
            Batch(_rows(bids), seen, punctuations=punctuations if operator.punctuations else None),
        ]


def _rows(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else no_rows(table.schema)
