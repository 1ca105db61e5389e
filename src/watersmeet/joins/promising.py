"""What joins that heed the promises of their streams have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.joins.running import RunningJoin, spell_punctuations
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.state.keys import encode
from watersmeet.state.log import Delta, Entry
from watersmeet.state.merging import Mine
from watersmeet.state.promises import Promises
from watersmeet.state.stream_state import Arrivals
from watersmeet.state.value_lists import ValueLists


class PromisingJoin(RunningJoin[ValueLists]):
    """A running join whose streams make promises.

    After a step `violations` holds each stream's rows that came against its word, `announced` the keys (rows of key
    columns) and `announced_ranges` the intervals of which no result can come any more.
    """

    promises: list[Promises]

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        """Set apart what is late, what has no key, and what comes against the stream's own word."""
        arrivals = super()._admit(i, batch)
        broken = self.promises[i].admit(arrivals, batch, self.progress[i])
        self.violations.append(batch.rows.take(pa.array(arrivals.which[broken])))
        self.counters.violations += int(np.count_nonzero(broken))
        arrivals.which = arrivals.which[~broken]
        return arrivals

    def promised_at(self, i: int) -> int | None:
        row = self.violations[i].slice(0, 1)
        time = self.promises[i].time_of(encode([row.column(k) for k in self.query.streams[i].key]))
        return None if time == BEFORE_ALL else time

    def output_punctuations(self) -> list[str]:
        order = self.promises[0].order if self.announced_ranges else None
        return spell_punctuations(self.announced, self.announced_ranges, order, self.output_progress())

    def owns(self, mine: Mine) -> None:
        for promises in self.promises:
            promises.mine = mine

    def notes(self) -> dict[str, Any]:
        shed = [s.shed for s in self.streams]  # rows are to go from the segments with the next batch
        said = {"promises": [p.notes() for p in self.promises]} | ({"shed": shed} if any(shed) else {})
        return super().notes() | said

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        for promises, note in zip(self.promises, notes.get("promises", []), strict=False):
            promises.recall(note)
        for stream, shed in zip(self.streams, notes.get("shed", []), strict=False):
            stream.shed = shed

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        out = super().deltas(entries, rewritten=rewritten)
        for i, promises in enumerate(self.promises):
            known = sum((e.kind, e.stream) == ("closings", i) for e in entries)
            out += [Delta("closings", i, rows, whole) for rows, whole in promises.deltas(known)]
        return out

    def replay(self, delta: Delta) -> None:
        if delta.kind != "closings":
            super().replay(delta)
        self.promises[delta.stream].replay(delta.rows)
