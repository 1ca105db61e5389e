"""Query 2 of the window-oblivious paper: two three-way joins joined, in one process."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.ascending_keys import ascending, cuts, factor, whole_join
from lab.joins.oracle import bag, rows_of
from watersmeet.checkpoints.reopen import reopen
from watersmeet.cost.parameters import Statistics
from watersmeet.cost.window_oblivious import output_scrambling
from watersmeet.errors import QueryError
from watersmeet.joins import Join
from watersmeet.joins.wo_join.key_ranks import key_ranks
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.joins.wo_join.tree import RunningWOTree, WOTree
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import FOREVER, Unbounded
from watersmeet.state.durable import log
from watersmeet.workload.scrambled import Scrambled, cut


def leaf_query(first: int, n: int) -> JoinQuery:
    streams = []
    for i in range(first, first + n):
        schema = pa.schema([(f"at_{i}", pa.int64()), ("epoch", pa.int64()), (f"reading_{i}", pa.float64())])
        streams.append(StreamSpec(f"s{i}", schema, f"at_{i}", ("epoch",), Unbounded(), FOREVER))
    return JoinQuery(tuple(streams))


def root_query(leaves: list[JoinQuery]) -> JoinQuery:
    """A result's time is that of its first stream's tuple: nothing is late, so any will do."""
    return JoinQuery(
        tuple(
            StreamSpec(f"leaf{i}", q.schema, q.streams[0].time, ("epoch",), Unbounded(), FOREVER)
            for i, q in enumerate(leaves)
        )
    )


def tree(sizes: tuple[int, ...], factors: list[int | None], scrambling: Any = None) -> WOTree:
    queries = [leaf_query(sum(sizes[:i]), n) for i, n in enumerate(sizes)]
    ends = np.cumsum(sizes).tolist()
    leaves = [Join(q, WOJoin(scrambling=factors[e - n : e])) for q, n, e in zip(queries, sizes, ends, strict=True)]
    return WOTree(tuple(leaves), root_query(queries), scrambling)


def batch(i: int, keys: list[int], first: int, *, ended: bool = False) -> Batch:
    spec = leaf_query(i, 2).streams[0]
    at = np.arange(first, first + len(keys))
    return Batch.of(
        pa.record_batch([at, np.array(keys, np.int64), at * 1.0], schema=spec.schema), spec.time, ended=ended
    )


def grouped(sizes: tuple[int, ...], batches: list[Batch]) -> list[list[Batch]]:
    return [batches[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes))]


def step(running: RunningWOTree, batches: list[list[Batch]]) -> list[tuple[Any, ...]]:
    return [row for table in running.step(batches) for row in rows_of(table)]


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from([(2, 2), (3, 2), (3, 3)]))
def test_a_tree_gives_what_one_join_would(data: st.DataObject, sizes: tuple[int, ...]) -> None:
    streams = [data.draw(ascending(20)) for _ in range(sum(sizes))]
    definition = tree(sizes, [factor(keys) for keys in streams])
    running, at, found = definition.start(), [0] * len(streams), []
    for keys in data.draw(cuts(streams)):
        arrivals = [batch(i, some, at[i]) for i, some in enumerate(keys)]
        at = [a + len(some) for a, some in zip(at, keys, strict=True)]
        found += step(running, grouped(sizes, arrivals))
        for join in running.joins:
            join.arrivals = []
            assert join.counters.too_late == 0
    assert bag(found) == bag(whole_join(streams))
    assert step(running, grouped(sizes, [batch(i, [], 0, ended=True) for i in range(len(streams))])) == []
    assert [len(s) for join in running.joins for s in join.own] == [0] * (len(streams) + len(sizes))


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_every_join_of_a_tree_restarts(data: st.DataObject) -> None:
    sizes = (2, 2)
    streams = [data.draw(ascending(20)) for _ in range(4)]
    definition = tree(sizes, [factor(keys) for keys in streams])
    running, at, found = definition.start(), [0] * 4, []
    stores = [log.MemoryStore() for _ in running.joins]
    headers = [log.begin(j.query) for j in running.joins]
    for keys in data.draw(cuts(streams)):
        arrivals = [batch(i, some, at[i]) for i, some in enumerate(keys)]
        at = [a + len(some) for a, some in zip(at, keys, strict=True)]
        found += step(running, grouped(sizes, arrivals))
        headers = [log.commit(j, h, s) for j, h, s in zip(running.joins, headers, stores, strict=True)]
        if data.draw(st.booleans(), label="restart"):
            running = definition.start()
            for j, h, s in zip(running.joins, headers, stores, strict=True):
                log.rebuild(j, h, s)
    for j, h, s in zip(running.joins, headers, stores, strict=True):
        again = reopen(h, s)
        assert again.operator == j.operator
        assert [len(state) for state in again.streams] == [len(state) for state in j.streams]
    assert bag(found) == bag(whole_join(streams))


def query_2(seed: int) -> tuple[list[Scrambled], list[pa.RecordBatch]]:
    """Six streams in step, of multiplicity 2; the factors of the one side are half those of the other."""
    made = [Scrambled(k) for k in (20, 30, 40, 40, 60, 80)]
    return made, [s.rows(20, seed=seed, stream=i) for i, s in enumerate(made)]


@pytest.mark.parametrize("seed", [1, 2])
def test_theorem_31_bounds_the_results_of_a_leaf(seed: int) -> None:
    """Rates and scrambling factors of the results, tuple by tuple, stay below the bounds; the root loses nothing."""
    made, rows = query_2(seed)
    figures = [Statistics(f"s{i}", 1 / s.gap, scrambling=s.scrambling, multiplicity=2) for i, s in enumerate(made)]
    bounds = [round(output_scrambling(figures[:3])), round(output_scrambling(figures[3:]))]
    assert bounds == [4 * (20 + 30 + 40), 4 * (40 + 60 + 80)]
    found = tree((3, 3), [s.scrambling for s in made]).start()
    bounded = tree((3, 3), [s.scrambling for s in made], bounds).start()
    kept, results, orders = [0, 0], [0, 0], [[], []]
    for parts in cut(rows, 20, 0.05):
        names = [s.schema.names for leaf in found.leaves for s in leaf.query.streams]
        arrivals = [Batch.of(r.rename_columns(n), n[0]) for r, n in zip(parts, names, strict=True)]
        for t, running in enumerate((found, bounded)):
            results[t] += len(step(running, grouped((3, 3), arrivals)))
            kept[t] += running.root.counters.stored
            for i, leaf in enumerate(running.leaves):
                if t == 0:
                    orders[i].append(key_ranks(running.root).buffers.disorder[i].scrambling)
                leaf.arrivals = []
            running.root.arrivals = []
            assert running.root.counters.too_late == 0
    assert results[0] == results[1] > 0
    assert kept[0] <= kept[1]  # what the leaves say is never worse than what their factors imply
    for i in (0, 1):
        assert orders[i][-1] <= bounds[i]
    first = figures[:3]
    rate = sum(s.rate * math.prod(o.multiplicity for o in first if o is not s) for s in first)  # equation 9
    assert key_ranks(found.root).buffers.disorder[0].count <= 20 * rate


def test_errors() -> None:
    queries = [leaf_query(0, 2), leaf_query(2, 2)]
    with pytest.raises(QueryError, match=r"(?s)stream `leaf0` of the root has columns .*Hint: give it the schema"):
        WOTree(tuple(Join(q, WOJoin()) for q in reversed(queries)), root_query(queries))
