"""The streams of the window-oblivious paper's first query, joins over them, and their optimal buffers by hindsight.

Three streams of 20 ms mean gap and multiplicity 2, with scrambling factors of 1 to 500; the second one's rate dips to
an eighth for 30 s at 10 s, the third one's grows eightfold for 10 s at 80 s. Each in 120 batches of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.joins import Join
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.wo_join.key_ranks import running as running_join
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.joins.wo_join.retention import PaperBuffers
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import FOREVER, Unbounded
from watersmeet.state.keys import Int64s
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.scrambled import Scrambled, cut, three_streams

SECONDS = 120


class BareEquation(PaperBuffers):
    """Equation 8 to the letter: usual rates, the size of the moment. The operator smooths both."""

    def ratio(self, i: int, j: int) -> float:
        return self.rates[i].rate / max(self.rates[j].rate, 1e-9)

    def smoothed(self, size: float, before: float) -> float:
        return size


@dataclass(frozen=True)
class Outcome:
    """One run: results over possible results, tuples in memory (mean over the batches, all streams), rows too late."""

    accuracy: float
    kept: float
    too_late: int


def query(n: int) -> JoinQuery:
    """n streams of `scrambled.SCHEMA` that meet on `epoch`; no tuple is late."""
    streams = []
    for i in range(n):
        schema = pa.schema([(f"at_{i}", pa.int64()), ("epoch", pa.int64()), (f"reading_{i}", pa.float64())])
        streams.append(StreamSpec(f"s{i}", schema, f"at_{i}", ("epoch",), Unbounded(), FOREVER))
    return JoinQuery(tuple(streams))


def possible(rows: Sequence[pa.RecordBatch]) -> int:
    """Results of the join of all rows."""
    counts = [np.bincount(r.column("epoch").to_numpy()) for r in rows]
    least = min(c.size for c in counts)
    return int(np.prod([c[:least] for c in counts], axis=0).sum())


def run(
    join: Join[RunningMultiway], rows: Sequence[pa.RecordBatch], seconds: float = SECONDS, batch: float = 1.0
) -> Outcome:
    return follow(join.start(), rows, seconds, batch)


def arrivals(step: Sequence[pa.RecordBatch], of: JoinQuery) -> list[Batch]:
    """A batch of every stream, with the column names of the query."""
    return [Batch.of(r.rename_columns(s.schema.names), s.time) for r, s in zip(step, of.streams, strict=True)]


def follow(running: RunningMultiway, rows: Sequence[pa.RecordBatch], seconds: float, batch: float) -> Outcome:
    """Let a join run until all has arrived; what waits then is not among the results."""
    results, kept, late = 0, [], 0
    for step in cut(rows, seconds, batch):
        for _ in running.step(arrivals(step, running.query)):
            pass
        running.arrivals = []
        results += running.counters.results
        late += running.counters.too_late
        kept.append(running.counters.stored + running.counters.deferred)
    return Outcome(results / max(1, possible(rows)), float(np.mean(kept)), late)


def optimal_buffers(rows: Sequence[pa.RecordBatch], seconds: float = SECONDS) -> NDArray[np.float64]:
    """The sizes that first-in-first-out buffers need, by hindsight: a row per stream, a column per second.

    A size is the largest distance, in tuples, to which a result of that second reaches back; 1 without a result.
    """
    at = [r.column("at").to_numpy() for r in rows]
    keys = [r.column("epoch").to_numpy() for r in rows]
    top = 1 + max(int(k.max(initial=0)) for k in keys)
    last = np.full((len(rows), top), -1, np.int64)  # time of the last tuple of each key
    for i, k in enumerate(keys):
        np.maximum.at(last[i], k, at[i])
    needed = np.ones((len(rows), int(seconds) + 1))
    for i, k in enumerate(keys):
        others = np.delete(last, i, axis=0)
        wanted = np.where((others >= 0).all(axis=0), others.max(axis=0), -1)[k]  # its last result, if it has one
        back = np.searchsorted(at[i], wanted, side="right") - np.arange(k.size)
        some = wanted > at[i]
        np.maximum.at(needed[i], np.minimum(wanted[some] // SECOND, int(seconds)), back[some])
    return needed[:, :-1]


def optimum(rows: Sequence[pa.RecordBatch], seconds: float = SECONDS) -> float:
    """The optimal size of all buffers together, as the mean over the seconds."""
    return float(optimal_buffers(rows, seconds).mean(axis=1).sum())


def depths(rows: Sequence[pa.RecordBatch]) -> Int64s:
    """The distance, in tuples, to which each result reaches back into each stream: a row per result.

    Every key has at most two tuples in a stream, so results are the combinations of first and second ones.
    """
    at = [r.column("at").to_numpy() for r in rows]
    top = 1 + max(int(r.column("epoch").to_numpy().max(initial=0)) for r in rows)
    places = np.full((len(rows), 2, top), -1, np.int64)
    for i, r in enumerate(rows):
        keys = r.column("epoch").to_numpy()
        places[i, 0, keys[::-1]] = np.arange(keys.size)[::-1]  # the first of its key stays
        places[i, 1, keys] = np.arange(keys.size)
        places[i, 1, places[i, 1] == places[i, 0]] = -1
    out = []
    for chosen in product((0, 1), repeat=len(rows)):
        there = np.array([places[i, c] for i, c in enumerate(chosen)])
        there = there[:, (there >= 0).all(axis=0)]
        last = np.max([at[i][p] for i, p in enumerate(there)], axis=0)
        out.append(np.array([np.searchsorted(at[i], last, side="right") - p for i, p in enumerate(there)]).T)
    return np.concatenate(out)


def fixed_windows(seeds: Sequence[int]) -> tuple[float, float]:
    """Row windows as large, per stream, as the measured sound buffer is on average.

    Returns the share of the results that they find, and the factor by which they must grow to find as many as it.
    """
    shares, factors = [], []
    for seed in seeds:
        rows = [s.rows(SECONDS, seed=seed, stream=i) for i, s in enumerate(streams(seed))]
        found, back = run(Join(query(3), WOJoin()), rows), depths(rows).max(axis=1)
        size = found.kept / len(rows)
        shares.append(float(np.mean(back <= size)))
        factors.append(float(np.quantile(back, found.accuracy)) / size)
    return float(np.mean(shares)), float(np.mean(factors))


def streams(seed: int, *, steady: bool = False) -> tuple[Scrambled, ...]:
    """The three streams; steady ones neither dip nor burst."""
    factors = np.random.default_rng((seed, 1)).integers(1, 501, 3).tolist()
    made = three_streams(factors)
    return tuple(replace(s, swings=()) for s in made) if steady else made


def compare(seeds: Sequence[int], *, steady: bool = False) -> dict[str, list[Outcome]]:
    """The outcomes of every buffer, with known and measured factors; the optimum counts as a run without loss."""
    out: dict[str, list[Outcome]] = {}
    for seed in seeds:
        made = streams(seed, steady=steady)
        rows = [s.rows(SECONDS, seed=seed, stream=i) for i, s in enumerate(made)]
        known = tuple(s.scrambling for s in made)
        for name, options in {
            "sound, known": {"scrambling": known},
            "sound, measured": {},
            "learned": {"buffer": "learned"},
            "equation 8, known": {"buffer": "eq8", "scrambling": known},
            "equation 8, measured": {"buffer": "eq8"},
        }.items():
            out.setdefault(name, []).append(run(Join(query(3), WOJoin(**options)), rows))
        bare = running_join(query(3), BareEquation("eq8", known))
        out.setdefault("equation 8, known, to the letter", []).append(follow(bare, rows, SECONDS, 1.0))
        out.setdefault("optimum", []).append(Outcome(1.0, optimum(rows), 0))
    return out
