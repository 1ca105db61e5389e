"""The protocol's state machine over every kind of operator: runs of subjects, compared with runs without troubles."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import hypothesis
import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from lab.tws.attempts import Attempt
from lab.tws.mishaps import state, untroubled
from lab.tws.protocol import Protocol, Run
from lab.tws.subjects import IDS, SUBJECTS, Input, subject
from lab.tws.task import frames_of
from watersmeet.model.batches import Batch
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import PUNCTUATION
from watersmeet.state.durable.log import Header

#: More keys than any subject has: those in which ranges are compared.
KEYS = range(-20, 200)
#: What a subject may be given.
INPUTS = tuple(Input(seed, 8, 4 + 3 * (seed % 3)) for seed in range(6))


class SubjectRun(Run):
    """A subject with one of its inputs, batch after batch."""

    def __init__(self, name: str, input: Input) -> None:
        self.name, self.input = name, input
        self.subject = subject(name, input)
        self.wanted = untroubled(name, input)
        self.done = 0
        self.propagated: set[tuple[int, Any]] = set()  # keys, by shard
        self.wanted_keys: set[tuple[int, Any]] = set()  # the same without troubles
        self.decoded: dict[tuple[int, int], list[Batch]] = {}
        super().__init__(self.subject.query, self.subject.join, IDS)
        self.stores = self.subject.stores()

    def processor(self, *, ended: bool = False) -> ShardProcessor:
        return self.subject.processor(ended=ended)

    def draw_batch(self, data: st.DataObject) -> bool:
        return self.done < self.input.batches

    def blobs(self, chance: Random) -> pa.Table:
        return self.subject.pack(self.done, chance)

    def following(self, header: Header) -> Sequence[Batch]:
        n = header.batches - self.subject.batches_before
        if (n, header.shard) not in self.decoded:
            ended = n >= self.input.batches
            frames = iter(()) if ended else frames_of(self.subject.given[n], header.shard, Random(n))
            processor = self.processor(ended=ended)
            clock = 1000 * header.batches if processor.follows_clock else None
            self.decoded[n, header.shard] = [replace(batch, clock=clock) for batch in processor._decode(frames)]
        return self.decoded[n, header.shard]

    def check(self, attempts: Sequence[Attempt]) -> None:
        output: Counter[str] = Counter()
        for attempt in attempts:
            output += attempt.output(self.query.schema.names)
        (own, keys), (wanted, wanted_keys) = divided(output), divided(self.wanted.batches[self.done])
        assert own == wanted
        self.propagated |= keys
        self.wanted_keys |= wanted_keys
        assert self.propagated == self.wanted_keys
        assert state(self.subject, self.stores) == self.wanted.states[self.done]
        self.done += 1

    def agree(self, twins: Sequence[Attempt]) -> None:
        (one, keys), (two, others) = (divided(twin.output(self.query.schema.names)) for twin in twins)
        assert one == two
        assert keys | self.propagated == others | self.propagated


def divided(output: Counter[str]) -> tuple[Counter[str], set[tuple[int, Any]]]:
    """An output without the keys that it propagates, and those by shard, be it one by one or as ranges.

    A state that was rebuilt has lost some marks, and may propagate keys once more, which is harmless. So runs are
    compared by the keys that they have propagated by now.
    """
    rest, keys = Counter(output), set()
    for row in output:
        detail = json.loads(row)[1] if row.startswith(f"[{PUNCTUATION}, ") else {"row": {}}
        pattern = detail["row"]
        if "key" in pattern:
            keys.add((detail["shard"], tuple(pattern["key"])))
        elif "range" in pattern:
            keys |= {(detail["shard"], (key,)) for key in KEYS if _covers(pattern["range"], key)}
        if pattern.keys() & {"key", "range"}:
            del rest[row]
    return rest, keys


def _covers(interval: dict[str, int], key: int) -> bool:
    return interval.get("low", key) <= key <= interval.get("high", key) and key < interval.get("below", key + 1)


class SubjectProtocol(Protocol):
    """Runs of two subjects, which share the caches of three machines."""

    subjects: tuple[str, str]

    def drawn_run(self, data: st.DataObject, which: int) -> Run:
        name = self.subjects[which]
        return SubjectRun(name, data.draw(st.sampled_from(INPUTS), label=f"input of {name}"))


def pairs(apart: int) -> list[tuple[str, str]]:
    """Every subject once, with one that stands so far from it in the list; the last may come twice."""
    left, out = list(SUBJECTS), []
    while left:
        one = left.pop(0)
        other = left.pop(min(apart, len(left)) - 1) if left else next(iter(SUBJECTS))
        out.append((one, other))
    return out


def check(pair: tuple[str, str], *, examples: int, steps: int, seed: int = 1) -> None:
    """So many examples of runs of two subjects: the same for the same seed. A failure is shown as it was found."""
    machine = type("Pair", (SubjectProtocol,), {"subjects": pair})
    drawn = hypothesis.seed(zlib.crc32(f"{pair} {seed}".encode()))(machine)
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # to shrink takes long, where an example runs for a second
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(drawn, settings=how)
