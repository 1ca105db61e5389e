"""What a working state holds, in full: the one in a kept folder is compared with a rebuilding from the store.

Both are compared by what they hold (watermarks, tuples, living rows of segments, all durable parts) and then by what
they do: they are given the same batch and must put out and hold the same.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from operator import eq
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lab.joins.oracle import bag, rows_of, stored
from lab.tws.task import header_of
from watersmeet.joins import Operator
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.baselines.windowed_hash import WindowedHashJoin
from watersmeet.kernels.value_lists import CLOSED
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import End, Heartbeat
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache as caches
from watersmeet.state.durable import log
from watersmeet.state.durable.log import MemoryStore
from watersmeet.state.durable.parts import DurablePart, metadata_of
from watersmeet.state.punctuations.punctuation_set import PunctuationSet
from watersmeet.state.row_windows import RowWindowState
from watersmeet.state.shards import ShardKeys
from watersmeet.state.spill import SpilledPieces
from watersmeet.state.spill_files import SUFFIX

Rows = Sequence[pa.RecordBatch | pa.Table]


#: Closed keys of a stream by their words: when each was closed, and whether it is effective; None: in a merged range.
ClosedKeys = dict[int, tuple[int, bool] | None]


def closed_keys(part: PunctuationSet) -> ClosedKeys:
    """The closed keys of the shard, but for those in a range that the stream has closed.

    Keys in a range may lose their marks. Whether a key is propagated shows in the output of whole runs alone.
    """
    keys, mine = part.keys, part.retention.mine
    lists, nodes = keys.lists.lists, keys.lists.marked()
    nodes = nodes[~keys.closed_nodes(keys.lists, nodes)]
    marked = zip(lists.word[nodes].tolist(), lists.closed_at[nodes].tolist(), lists.mark[nodes].tolist(), strict=True)
    found: ClosedKeys = {word: (time, mark >= CLOSED) for word, time, mark in marked}
    for low, high in [] if keys.merged is None else zip(keys.merged.low, keys.merged.high, strict=True):
        words = np.arange(low, high + 1)
        found |= dict.fromkeys(words[mine(words)].tolist() if mine else words.tolist())
    return found


def rows_of_part(part: DurablePart) -> Rows:
    """All rows that a part would store; parts that store only what is new tell it in another way."""
    if isinstance(part, SpilledPieces):
        return [part.rows_of(piece) for piece in part.pieces]
    if isinstance(part, RowWindowState):  # of a window per key, too, where limits are not stored
        slots = part.lists.living()
        return [pa.record_batch([pa.array(a[slots]) for a in (part.position, part.limit)], names=["position", "limit"])]
    change = part.changes(True)
    return [] if change is None else change.rows


def contents(join: RunningJoin[Any]) -> dict[str, Any]:
    """Watermarks, tuples and the living rows of each segment, metadata and rows of all parts. May change the join."""
    if join.operator["name"] == WindowedHashJoin.traits.name:  # it looks for stale tuples now and then
        for i, stream in enumerate(join.streams):
            stream.expire_before(join.alive_from(i))
    living = [{p.id: int(s.segments.left[number]) for number, p in s.segments.parts.items()} for s in join.streams]
    assert [sum(left.values()) for left in living] == [len(s) for s in join.streams]
    out: dict[str, Any] = {
        "watermarks": list(join.watermarks),
        "tuples": [bag(stored(join, i)) for i in range(len(join.streams))],
        "living": living,
        "metadata": json.loads(json.dumps(metadata_of(join.parts()))),
    }
    for part in join.parts():
        if isinstance(part, PunctuationSet):
            out[f"{part.kind} of {part.stream}"] = closed_keys(part)
            for how_they_are_kept in ("merged", "unmerged"):
                out["metadata"][part.kind][str(part.stream)].pop(how_they_are_kept, None)
        else:
            found = Counter(row for rows in rows_of_part(part) for row in rows_of(rows))
            out[f"{part.kind} of {part.stream}"] = found
    return out


def output(join: RunningJoin[Any], batches: Sequence[Batch]) -> dict[str, Any]:
    """All that a step puts out, but for the keys that it propagates.

    A state that was rebuilt may propagate keys once more, which is harmless: whole runs are compared by them.
    """
    results = bag([row for table in join.step(batches) for row in rows_of(table)])
    patterns = Counter(repr(p) for p in join.output_punctuations() if isinstance(p, Heartbeat | End))
    late, violations = ([bag(rows_of(rows)) for rows in some] for some in (join.late, join.violations))
    return {"results": results, "late": late, "violations": violations, "patterns": patterns}


def opened(join: Operator, folder: Path, store: MemoryStore) -> RunningJoin[Any]:
    """A join over the arrays of a folder, as a task opens it."""
    header, made = header_of(store), join.start(MappedArrays(folder))
    made.owns(ShardKeys(header.ids.index(header.shard), header.shards))
    log.attach(made, header, store)
    return made


def _same_keys(found: ClosedKeys, rebuilt: ClosedKeys) -> bool:
    """Whether both have the same closed keys, and those that neither has merged are closed alike.

    Neighbours are merged from a number of keys on, and what a rebuilt state propagates again is among its keys.
    """
    single = (key for key in found.keys() & rebuilt.keys() if None not in (found[key], rebuilt[key]))
    return found.keys() == rebuilt.keys() and all(found[key] == rebuilt[key] for key in single)


def same(found: dict[str, Any], rebuilt: dict[str, Any]) -> None:
    """Refuse what is in one only, by name."""
    different = {
        name: (value, rebuilt[name])
        for name, value in found.items()
        if not (_same_keys if name.startswith(PunctuationSet.kind) else eq)(value, rebuilt[name])
    }
    assert not different, f"found and rebuilt differ: {different}"


def check_folder(folder: Path, join: Operator, store: MemoryStore, batches: Sequence[Batch], room: Path) -> None:
    """A kept folder holds what a rebuilding from its store gives, and both go on alike. `room` is for copies."""
    header = header_of(store)
    copy, other = room / "copy", room / "other"
    shutil.copytree(folder, copy)
    other.mkdir()
    assert caches.complete(copy)
    found, rebuilt = opened(join, copy, store), opened(join, other, store)
    assert caches.load(found, copy)
    log.rebuild(rebuilt, header, store)
    same(contents(found), contents(rebuilt))
    listed = {f"{e.id}.arrow" for e in header.segments if e.kind == "rows"}
    assert {file.name for file in caches.files_of(folder) if file.suffix == ".arrow"} == listed
    spilled = {piece.name for p in found.parts() if isinstance(p, SpilledPieces) for piece in p.pieces}
    assert not spilled & {file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{SUFFIX}")}, "they are in the store"
    same(output(found, batches), output(rebuilt, batches))
    same(contents(found), contents(rebuilt))
    shutil.rmtree(copy)
    shutil.rmtree(other)


def size(folder: Path) -> int:
    """Bytes of a working state in memory."""
    return sum(file.lstat().st_size for file in folder.iterdir())
