"""Window-oblivious joins in a tree, all in one process: for experiments alone, `wm.join` refuses such trees.

The results of some joins are the streams of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins.algorithm import Join
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.wo_join.key_ranks import key_ranks, running
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.joins.wo_join.retention import Buffers, Given
from watersmeet.model.batches import AFTER_ALL, Batch, no_rows
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays

#: The name of a tree's root in the header of its state.
ROOT = "wo_tree"


@dataclass(frozen=True, slots=True)
class WOTree:
    """A window-oblivious join of the results of others. The root's stream i has the columns of leaf i's results.

    ::

        S1, S2, S3 ──► leaf 0 ──► S7 ─┐
                                      ├──► root ──► results
        S4, S5, S6 ──► leaf 1 ──► S8 ─┘

    Emits   what one join of all streams would, in the batch of the latest arrival.
    Evicts  in the leaves what each evicts by itself; in the root a result of leaf 0 once leaf 1 has no further results
            of its key, that is when all of leaf 1's streams have closed the key.

    `scrambling` gives the root's streams factors instead, as theorem 3.1 bounds them
    (`cost.window_oblivious.output_scrambling`): then the root goes by the order in which the leaves' results come.

    References: Wu, Tan and Zhou, Window-oblivious join (2007), section 3.2.
    """

    leaves: tuple[Join[RunningMultiway], ...]
    root: JoinQuery
    scrambling: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for leaf, stream in zip(self.leaves, self.root.streams, strict=True):
            if leaf.query.schema != stream.schema:
                raise QueryError(
                    f"stream `{stream.name}` of the root has columns {', '.join(stream.schema.names)}; the results of "
                    f"its leaf have {', '.join(leaf.query.schema.names)}.",
                    hint="give it the schema of the leaf's query.",
                )

    def start(self) -> RunningWOTree:
        """The joins with empty states."""
        return RunningWOTree([leaf.start() for leaf in self.leaves], WORoot(self.root, self.scrambling).start())


@dataclass(frozen=True, slots=True)
class WORoot:
    """The root of such a tree."""

    query: JoinQuery
    scrambling: Sequence[int] | None = None

    def start(self, arrays: Arrays | None = None) -> RunningMultiway:
        """The join with empty state."""
        algorithm = WOJoin(scrambling=self.scrambling)
        if self.scrambling is not None:
            return algorithm.start(self.query, arrays)
        algorithm.check(self.query)
        buffers = LeafBuffers(len(self.query.streams))
        root = running(self.query, buffers, arrays=arrays)
        root.operator = {"name": ROOT, "options": {"buffer": buffers.name, "strategy": "none"}}
        return root


class LeafBuffers(Buffers):
    """The rule of a root: each stream has closed the ranks that its leaf has closed."""

    def __init__(self, n: int) -> None:
        given: Given = [None] * n
        super().__init__("leaves", given)
        self.by_leaf: list[int | None] = [None] * n  # the largest rank that each leaf has closed

    def closed(self, j: int) -> int | None:
        return self.by_leaf[j]

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"by_leaf": self.by_leaf}

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        super().load_metadata(metadata)
        self.by_leaf = metadata["by_leaf"]


class RunningWOTree:
    """The tree at work. Every join has a state of its own, and is made durable by itself."""

    def __init__(self, leaves: list[RunningMultiway], root: RunningMultiway) -> None:
        self.leaves = leaves
        self.root = root

    @property
    def joins(self) -> list[RunningMultiway]:
        return [*self.leaves, self.root]

    def step(self, batches: Sequence[Sequence[Batch]]) -> Iterator[pa.Table]:
        """Join one micro-batch, a `Batch` per stream of each leaf."""
        results = []
        for leaf, arrivals in zip(self.leaves, batches, strict=True):
            found = pa.Table.from_batches([b for t in leaf.step(arrivals) for b in t.to_batches()], leaf.query.schema)
            results.append(found.combine_chunks().to_batches())
        buffers = key_ranks(self.root).buffers
        if isinstance(buffers, LeafBuffers):
            buffers.by_leaf = [closed_by(leaf) for leaf in self.leaves]
        root_batches = []
        for leaf, stream, rows in zip(self.leaves, self.root.query.streams, results, strict=True):
            whole = rows[0] if rows else no_rows(stream.schema)
            root_batches.append(Batch.of(whole, stream.time, ended=min(leaf.watermarks) >= AFTER_ALL))
        yield from self.root.step(root_batches)


def closed_by(join: RunningMultiway) -> int | None:
    """The largest rank that all streams have closed; no further result has it or a smaller one."""
    closed = key_ranks(join).closed(join)
    return None if None in closed else min(c for c in closed if c is not None)
