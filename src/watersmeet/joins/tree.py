"""Window-oblivious joins in a tree: the results of some are the streams of another, all in one process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins.buffers import Buffers, Given, SoundBuffers, floors_above
from watersmeet.joins.oblivious import RunningWOJoin
from watersmeet.joins.wo_join import WOJoin
from watersmeet.model.batches import AFTER_ALL, Batch, no_rows
from watersmeet.model.queries import JoinQuery
from watersmeet.state.placed import BEYOND


@dataclass(frozen=True, slots=True)
class WOTree:
    """A window-oblivious join of the results of others. The root's stream i has the columns of leaf i's results.

    ::

        S1, S2, S3 ──► leaf 0 ──► S7 ─┐
                                      ├──► root ──► results
        S4, S5, S6 ──► leaf 1 ──► S8 ─┘

    Emits   what one join of all streams would, in the batch of the latest arrival.
    Forgets in the leaves what they forget by themselves. In the root a result of leaf 0 once leaf 1 can have no more
            results with its key: when all of leaf 1's streams have closed that.

    `scrambling` gives the root's streams factors instead, as theorem 3.1 bounds them
    (`cost.window_oblivious.output_scrambling`): then the root goes by the order in which the leaves' results come.

    References: Wu, Tan and Zhou, Window-oblivious join (2007), section 3.2.
    """

    leaves: tuple[WOJoin, ...]
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
        WOJoin(self.root, scrambling=self.scrambling)  # checks what it is given
        buffers = ToldBuffers(len(self.leaves)) if self.scrambling is None else SoundBuffers("sound", self.scrambling)
        return RunningWOTree([leaf.start() for leaf in self.leaves], RunningWOJoin(self.root, buffers))


class ToldBuffers(Buffers):
    """Every stream's source says how far it is through."""

    def __init__(self, n: int) -> None:
        given: Given = [None] * n
        super().__init__("told", given)
        self.told: list[int | None] = [None] * n

    def closed(self, j: int) -> int | None:
        return self.told[j]

    def floors(self, ended: Sequence[bool]) -> list[int]:
        return floors_above([BEYOND if end else told for told, end in zip(self.told, ended, strict=True)])

    def notes(self) -> dict[str, Any]:
        return super().notes() | {"told": self.told}

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        self.told = notes["told"]


class RunningWOTree:
    """The tree at work. Every join has a state of its own, and is made durable by itself."""

    def __init__(self, leaves: list[RunningWOJoin], root: RunningWOJoin) -> None:
        self.leaves = leaves
        self.root = root

    @property
    def joins(self) -> list[RunningWOJoin]:
        return [*self.leaves, self.root]

    def step(self, batches: Sequence[Sequence[Batch]]) -> Iterator[pa.Table]:
        """Join one micro-batch, a `Batch` per stream of each leaf."""
        results = []
        for leaf, news in zip(self.leaves, batches, strict=True):
            found = pa.Table.from_batches([b for t in leaf.step(news) for b in t.to_batches()], leaf.query.schema)
            results.append(found.combine_chunks().to_batches())
        buffers = self.root.buffers
        if isinstance(buffers, ToldBuffers):
            buffers.told = [closed_by(leaf) for leaf in self.leaves]
        said = []
        for leaf, stream, rows in zip(self.leaves, self.root.query.streams, results, strict=True):
            whole = rows[0] if rows else no_rows(stream.schema)
            said.append(Batch.of(whole, stream.time, ended=min(leaf.progress) >= AFTER_ALL))
        yield from self.root.step(said)


def closed_by(join: RunningWOJoin) -> int | None:
    """The largest place with which no result can come any more: all streams have closed it."""
    closed = [BEYOND if end else join.buffers.closed(j) for j, end in enumerate(join.ended)]
    return None if None in closed else min(c for c in closed if c is not None)
