"""A shard's report about each stream after a batch, beside the counters of the join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.joins.base import RunningJoin
from watersmeet.model.batches import Batch
from watersmeet.model.json_values import plain_column
from watersmeet.model.punctuations import Unique
from watersmeet.model.queries import StreamSpec
from watersmeet.state.statistics.heavy_hitters import hottest_rows
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Hot keys of a stream in a report, and letters of each.
HOTTEST, LETTERS = 3, 48


def about_arrivals(join: RunningJoin[Any], batches: Sequence[Batch]) -> list[dict[str, Any]]:
    """The arrivals of each stream, before they are made durable; empty for groups behind another operator.

    `seen` is the newest event time of the whole stream, None if the batch has none; `closed` counts the keys that
    the stream closed one by one, `ranges` the intervals of keys; `hot` are the most frequent keys and their shares of
    this shard's rows.
    """
    specs = join.query.streams
    if len(batches) != len(specs):
        return []
    return [
        {
            "name": spec.name,
            "rows_in": 0 if join.copied(i) else batch.rows.num_rows,
            "late": join.late[i].num_rows,
            "violations": _violations(join, i, batch),
            "seen": batch.seen,
            "closed": _closed(spec, batch, join.arrivals[i]),
            "ranges": 0 if batch.punctuations is None else len(batch.punctuations.ranges),
            "hot": _hottest(spec, join.arrivals[i]),
        }
        for i, (spec, batch) in enumerate(zip(specs, batches, strict=True))
    ]


def about_states(join: RunningJoin[Any], reports: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same reports with the state after the batch; `keys` are those of the stored tuples."""
    out = []
    for i, report in enumerate(reports):
        spec = join.query.streams[i]
        states = [s for s in join.streams if s.spec == spec]  # its own, and that of pending tuples
        stored = 0 if join.copied(i) else sum(map(len, states))
        held = {"stored": stored, "bytes": sum(s.bytes for s in states)}
        keys = _keys(states[0])
        if keys is not None:
            held["keys"] = keys
        out.append(report | held)
    return out


def _keys(state: StreamState[Any]) -> int | None:
    """Distinct keys of stored tuples; without those that the stream itself has closed, unless it is unique."""
    if _is_unique(state.spec):
        return len(state)
    return state.lists.keys - state.lists.closed_keys if isinstance(state.lists, ValueLists) else None


def _is_unique(spec: StreamSpec) -> bool:
    return any(isinstance(p, Unique) for p in spec.constraints)


def _violations(join: RunningJoin[Any], i: int, batch: Batch) -> int:
    violations = join.violations[i].num_rows if join.violations else 0
    return violations + (0 if batch.rejected is None else batch.rejected.num_rows)


def _closed(spec: StreamSpec, batch: Batch, arrivals: Arrivals) -> int:
    """Keys that the stream closed, by punctuations or by being unique."""
    closed = 0 if batch.punctuations is None else batch.punctuations.keys.num_rows
    return closed + (int(arrivals.which.size) if _is_unique(spec) else 0)


def _hottest(spec: StreamSpec, arrivals: Arrivals) -> list[tuple[str, float]]:
    found = hottest_rows(arrivals.keys.words, arrivals.which, HOTTEST) if spec.key else []
    keys = key_texts(spec, arrivals, [row for row, _ in found])
    return [(key, round(share, 4)) for key, (_, share) in zip(keys, found, strict=True)]


def key_texts(spec: StreamSpec, arrivals: Arrivals, which: Sequence[int]) -> list[str]:
    """The keys of these rows, as people read them."""
    if not which:
        return []
    rows = arrivals.rows.select(list(spec.key)).take(list(which))
    return list(map(_short, zip(*map(plain_column, rows.columns), strict=True)))


def _short(key: tuple[Any, ...]) -> str:
    text = ", ".join(map(str, key))
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
