"""Redistributes the state of all shards of an operator among another number of shards.

The state of a key goes to the key's new shard; the state of whole streams (watermarks, closed ranges) goes to all
shards. The new shards hold what they would hold had their number never changed, with two exceptions that do not change
results: a window-oblivious join measures the disorder of its streams afresh, and the
statistics for join orders are collected again.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.checkpoints.convert_rows import SplitKeys, convert
from watersmeet.checkpoints.gaps import GAPS
from watersmeet.checkpoints.redistribute_closed_keys import RedistributedClosedKeys
from watersmeet.checkpoints.reopen import operator_of, query_of, reopen, schemas_of
from watersmeet.errors import StateCorruptError, StateMismatchError
from watersmeet.joins import Operator
from watersmeet.joins.group_by.operator import GROUPS
from watersmeet.joins.wo_join.key_ranks import key_ranks
from watersmeet.model.grouping import GroupedQuery
from watersmeet.model.queries import JoinQuery, StreamSpec, digest_of
from watersmeet.model.windows import RowsWindow
from watersmeet.state import segments
from watersmeet.state.durable.log import Entry, Header, Store, Version, read
from watersmeet.state.durable.parts import metadata_of
from watersmeet.state.gone_rows import names_of
from watersmeet.state.groups import keys_of
from watersmeet.state.hot_keys.phases import HOT_KEYS, from_json
from watersmeet.state.hot_keys.routes import stored_copies
from watersmeet.state.keys import Bools, Int64s, encode_key
from watersmeet.state.segments import pack
from watersmeet.state.shards import ShardKeys, split

#: Temporary column of rows: whether they have matched.
_MARK = "watersmeet matched"
#: Kinds of parts about single rows in segments, and of parts that are measured afresh.
_ABOUT_ROWS, _MEASURED = ("matched", "gone"), ("maxima", "tail")
#: Metadata that is the same in all shards.
_SHARED = ("last_active", "last_shown", "delay", "order", GAPS)
_NONE = np.empty(0, np.int64)


def redistribute(
    old: Sequence[Store],
    new: Sequence[Store],
    ids: Sequence[int],
    upstream_shards: Sequence[int] = (),
    *,
    into: Operator | None = None,
    split_keys: SplitKeys | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write the state of the stores `old`, in the order of their shards, into `new`; `ids` are the new shards' ids.

    `upstream_shards` has for each stream the shards of the join whose output it is (0: none), if those change as well.
    `into` is the operator that continues the state, if that changes (`evolve` checks whether it can), and
    `split_keys` are those that it splits; `metadata` is that of the change.
    """
    headers = [_header(store) for store in old]
    first = headers[0]
    for header in headers:
        if (header.digest, header.watermarks, header.ids) != (first.digest, first.watermarks, first.ids):
            raise StateCorruptError(
                f"shards {first.index} and {header.index} of the state are not of one batch of one query.",
                hint="restore the checkpoint from a copy; nothing was changed.",
            )
    first.refuse_ended()
    schemas: dict[int, pa.Schema] = {}
    for header, store in zip(headers, old, strict=True):
        schemas |= schemas_of(header, store)
    target = None if into is None else Target(into, split_keys)
    query = query_of(first, schemas) if into is None else into.query
    if query.is_theta and first.operator["name"] != GROUPS:
        _copy(headers, old, new, ids, upstream_shards)
        return
    _Redistribution(
        headers, query, list(old), list(new), list(ids), list(upstream_shards), target, metadata or {}
    ).run()


def _copy(
    headers: Sequence[Header],
    old: Sequence[Store],
    new: Sequence[Store],
    ids: Sequence[int],
    upstream_shards: Sequence[int],
) -> None:
    """Write the state of a join without equality as it is, into as many shards."""
    upstream = [s.get("upstream_shards", 0) for s in headers[0].query["streams"]]
    if len(old) != len(new) or list(upstream_shards or upstream) != upstream:
        raise StateMismatchError(
            "the state is of a join without equality; rows of a stream are copied to every shard, and their copies "
            "cannot be divided anew.",
            hint="go on with the number of shards as it is, or start from a new checkpoint.",
        )
    for header, source, target, id in zip(headers, old, new, ids, strict=True):
        for entry in header.segments:
            read(entry, source)  # refuses what is not what was written
            target.write_segment(entry.id, pa.py_buffer(source.read_segment(entry.id)))
        target.write_header(replace(header, shard=id, ids=list(ids)).pack())


def needs_one_shard(query: JoinQuery) -> bool:
    """Whether rows of a whole stream are counted, which needs a single shard."""
    return any(isinstance(s.window, RowsWindow) and not s.window.per_key for s in query.streams)


def _header(store: Store) -> Header:
    data = store.read_header()
    if data is None:
        raise StateCorruptError("a shard of the state has no header.", hint="restore the checkpoint from a copy.")
    return Header.unpack(data)


@dataclass
class _Pile:
    """Rows for one stream of one new shard, until there are enough of them for a segment."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class Target:
    """The operator that continues a state, and what it takes over of it."""

    def __init__(self, operator: Operator, split_keys: SplitKeys | None) -> None:
        self.query, self.split_keys = operator.query, split_keys
        started = operator.start()
        self.operator = started.operator
        self.kinds = {part.kind for part in started.parts()}

    def convert(self, stream: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a stream as the query has them; groups stay as they are."""
        specs = self.query.streams
        if self.operator["name"] == GROUPS or stream >= len(specs) * (1 + _defers(self.operator, self.query)):
            return rows
        return convert(rows, stream % len(specs), specs[stream % len(specs)], self.split_keys)

    def keeps_delay(self, header: Header, stream: str) -> bool:
        """Whether the measured delay of a stream goes on."""
        share = self.query.streams[int(stream)].late_share
        return bool(header.query["streams"][int(stream)].get("late_share") == share)


class _Redistribution:
    def __init__(
        self,
        headers: list[Header],
        query: JoinQuery,
        old: list[Store],
        new: list[Store],
        ids: list[int],
        upstream_shards: list[int],
        target: Target | None,
        metadata: dict[str, Any],
    ) -> None:
        self.headers, self.query, self.old, self.new, self.ids = headers, query, old, new, ids
        self.of_change = metadata
        self.target = target
        first = headers[0]
        operator = first.operator if target is None else target.operator
        same_key = target is None or [s["key"] for s in first.query["streams"]] == [list(s.key) for s in query.streams]
        #: Whether closed keys are known to the new shards.
        self.closed_keys = same_key and (target is None or "closed_keys" in target.kinds)
        self.operator, self.defers = operator, _defers(operator, query)
        self.shards = len(ids)
        if self.shards > 1 and needs_one_shard(query):
            raise StateMismatchError(
                f"the rows of a whole stream are counted, which one shard only can do; got {self.shards}.",
                hint="count rows per key: wm.rows(n, per_key=True).",
            )
        if _options(operator).get("strategy", "none") != "none":
            raise StateMismatchError(
                f'the join holds tuples back (strategy "{_options(operator)["strategy"]}"); when it may let them go '
                "depends on what each shard has measured, which cannot be divided anew.",
                hint="go on with the number of shards as it is, or start from a new checkpoint.",
            )
        self.upstream_shards = upstream_shards
        behind = operator["name"] == GROUPS  # its only stream holds the groups
        # elsewhere marked rows are gone
        self.marked = () if query.how == "semi" or query.asof is not None or behind else query.preserved
        self.entries: list[list[Entry]] = [[] for _ in ids]
        self.piles: dict[tuple[int, str, int], _Pile] = {}
        self.matched: dict[tuple[int, int], list[pa.RecordBatch]] = {}

    def run(self) -> None:
        for header, store in zip(self.headers, self.old, strict=True):
            marks = self._marks(header, store)
            living = None if self.target is None else _living(header, store)
            for entry in header.segments:
                if entry.kind in (*_ABOUT_ROWS, *_MEASURED) or (entry.kind == "closed_keys" and not self.closed_keys):
                    continue
                rows = read(entry, store).rows
                if entry.kind == "rows":
                    rows = _without_copies(header, entry, self._kept(entry, rows, marks, living))
                    rows = rows if self.target is None else self.target.convert(entry.stream, rows)
                self._divide(entry, rows)
        metadata = self._metadata()
        for shard, kind, stream in list(self.piles):
            self._write(shard, kind, stream)
        for (shard, stream), matched in self.matched.items():
            self._put(shard, "matched", stream, pa.concat_batches(matched))
        for shard, (id, store) in enumerate(zip(self.ids, self.new, strict=True)):
            store.write_header(self._new_header(shard, id, metadata[shard]).pack())

    # ------------------------------------------------------------ rows

    def _marks(self, header: Header, store: Store) -> dict[int, Int64s]:
        """The marked rows of each segment: matched, or (in a semi join, in groups) gone."""
        marks = [read(e, store).rows for e in header.segments if e.kind in _ABOUT_ROWS]
        if not marks:
            return {}
        ids, rows = (np.concatenate([np.asarray(part.column(c)) for part in marks]) for c in (0, 1))
        return {int(id): rows[ids == id].astype(np.int64) for id in np.unique(ids)}

    def _kept(
        self, entry: Entry, rows: pa.RecordBatch, marks: dict[int, Int64s], living: dict[int, Int64s] | None
    ) -> pa.RecordBatch:
        """Rows that go on, where it matters with a column that tells whether they have matched."""
        marked, kept = np.zeros(rows.num_rows, np.bool_), np.full(rows.num_rows, living is None)
        marked[marks.get(entry.id, _NONE)] = True
        if living is not None:
            kept[living.get(entry.id, _NONE)] = True
        if entry.stream in self.marked:
            rows = rows.append_column(_MARK, pa.array(marked))
        elif self.target is None or (self.query.how == "semi" and entry.stream in self.query.preserved):
            kept &= ~marked
        return rows if kept.all() else rows.filter(pa.array(kept))

    def _divide(self, entry: Entry, rows: pa.RecordBatch) -> None:
        if entry.kind == "limits":  # row limits need a single shard
            self._pile(0, entry.kind, entry.stream, rows)
            return
        for shard, part in enumerate(split(rows, lambda: self._words(entry, rows), self.shards)):
            self._pile(shard, entry.kind, entry.stream, part)

    def _words(self, entry: Entry, rows: pa.RecordBatch) -> Int64s:
        """Words of the keys by which the rows of a part are divided."""
        specs, stream = self.query.streams, entry.stream
        if entry.kind == "closed_keys":  # by position: other columns may have the name of a key column
            return _keys(rows, specs[stream])()
        if self.operator["name"] != GROUPS and stream < len(specs) * (1 + self.defers):
            spec = specs[stream % len(specs)]
            return encode_key([rows.column(k) for k in spec.key], spec.null_safe).words
        query = self.query
        assert isinstance(query, GroupedQuery), "a part of no stream holds groups"
        by = query.group_by.by
        if self.operator["name"] == GROUPS:  # divided by all group columns
            return keys_of([rows.column(f"g{n}") for n in range(len(by))]).words
        return encode_key([rows.column(f"g{by.index(k)}") for k in specs[0].key], specs[0].null_safe).words

    def _pile(self, shard: int, kind: str, stream: int, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        pile = self.piles.setdefault((shard, kind, stream), _Pile())
        pile.rows.append(rows)
        pile.bytes += rows.nbytes
        if pile.bytes >= segments.SEGMENT_BYTES and kind in ("rows", "closed_keys"):  # others: one segment
            self._write(shard, kind, stream)

    def _write(self, shard: int, kind: str, stream: int) -> None:
        pile = self.piles.pop((shard, kind, stream))
        rows = pa.concat_batches(pile.rows)
        marked: Bools | None = None
        if _MARK in rows.schema.names:
            marked = np.asarray(rows.column(_MARK))
            rows = rows.drop_columns([_MARK])
        id = self._put(shard, kind, stream, rows)
        if marked is not None and marked.any():
            at = np.flatnonzero(marked).astype(np.int32)
            columns = [pa.array(np.full(at.size, id, np.int64)), pa.array(at)]
            marks = pa.record_batch(columns, names=["segment", "row"])
            self.matched.setdefault((shard, stream), []).append(marks)

    def _put(self, shard: int, kind: str, stream: int, rows: pa.RecordBatch) -> int:
        data, entries = pack(rows), self.entries[shard]
        entry = Entry(len(entries), stream, data.size, zlib.crc32(memoryview(data)), kind)
        self.new[shard].write_segment(entry.id, data)
        entries.append(entry)
        return entry.id

    # ------------------------------------------------------------ headers and metadata

    def _new_header(self, shard: int, id: int, metadata: dict[str, Any]) -> Header:
        first, token, entries = self.headers[0], secrets.token_hex(16), self.entries[shard]
        query = dict(first.query if self.target is None else self.query.describe())
        if any(self.upstream_shards):
            streams = zip(query["streams"], self.upstream_shards, strict=True)
            query["streams"] = [
                s | ({"upstream_shards": upstream_shards} if upstream_shards else {}) for s, upstream_shards in streams
            ]
        return Header(
            digest_of(query),
            query,
            self._new_operator(),
            id,
            self.shards,
            list(first.watermarks),
            token,
            len(entries),
            max(header.batches for header in self.headers),
            entries,
            [Version(token, [e.id for e in entries], rewritten=True)],
            metadata,
            list(self.ids),
        )

    def _new_operator(self) -> dict[str, Any]:
        """The operator of the new headers; stand-alone groups have the new number of upstream shards."""
        operator = self.operator
        return operator | {"options": {"shards": self.shards}} if operator["name"] == GROUPS else operator

    def _metadata(self) -> list[dict[str, Any]]:
        """The metadata of every new shard; closed ranges may become rows of closed keys."""
        first, target = self.headers[0].metadata, self.target
        shared: dict[str, Any] = {name: first[name] for name in _SHARED if name in first}
        if target is not None:
            shared = {name: found for name, found in shared.items() if name in target.kinds}
            if self.operator != self.headers[0].operator:
                shared.pop("order", None)
            if "delay" in shared:
                delays = {i: d for i, d in shared["delay"].items() if target.keeps_delay(self.headers[0], i)}
                shared["delay"] = delays
        shared |= self.of_change
        if "limits" in first:
            counts = {i: max(h.metadata["limits"][i] for h in self.headers) for i in first["limits"]}
            shared["limits"] = counts
        if "upstream_watermarks" in first:
            watermarks = [tuple(of_shard) for h in self.headers for _, of_shard in h.metadata["upstream_watermarks"]]
            least = [min(p) for p in zip(*watermarks, strict=True)]
            shared["upstream_watermarks"] = [[id, least] for id in self.ids] if watermarks else []
        if "low_ranks" in first:
            shared |= self._oblivious()
        out = [dict(shared) for _ in self.ids]
        for i, spec in enumerate(self.query.streams if "closed_keys" in first and self.closed_keys else ()):
            closed = RedistributedClosedKeys(
                self.query, spec, [h.metadata["closed_keys"][str(i)] for h in self.headers]
            )
            for metadata, of_stream in zip(out, closed.metadata(self.shards), strict=True):
                metadata.setdefault("closed_keys", {})[str(i)] = of_stream
            for rows in closed.single:
                for shard, part in enumerate(split(rows, _keys(rows, spec), self.shards)):
                    self._pile(shard, "closed_keys", i, part)
        return out

    def _oblivious(self) -> dict[str, Any]:
        """Metadata of a window-oblivious join: the least low ranks of the old shards; no measurements, no spills."""
        first = self.headers[0]
        fresh = key_ranks(operator_of(first, self.query).start())
        low_ranks = [min(f) for f in zip(*(h.metadata["low_ranks"] for h in self.headers), strict=True)]
        return metadata_of(fresh.parts()) | {"low_ranks": low_ranks, "strategy": first.metadata["strategy"]}


def _options(operator: dict[str, Any]) -> dict[str, Any]:
    """Options of the join; in a grouped join those of the inner one."""
    options: dict[str, Any] = operator.get("join", operator)["options"]
    return options


def _defers(operator: dict[str, Any], query: JoinQuery) -> bool:
    """Whether the state has pending tuples, as further streams."""
    return bool(_options(operator).get("every")) or any(isinstance(s.window, RowsWindow) for s in query.streams)


def _living(header: Header, store: Store) -> dict[int, Int64s]:
    """Rows of each segment that are alive: segments keep evicted rows until they are compacted."""
    out: dict[int, Int64s] = {}
    for state in reopen(header, store).streams:
        ids, rows = names_of(state.lists, state.segments, state.lists.living())
        out |= {int(id): rows[ids == id].astype(np.int64) for id in np.unique(ids)}
    return out


def _without_copies(header: Header, entry: Entry, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows without the copies of hot keys, which their home has as well: all keys go to one shard each again."""
    table = from_json(header.metadata.get(HOT_KEYS, []))
    if not table:
        return rows
    spec = header.query["streams"][entry.stream]
    words = encode_key([rows.column(k) for k in spec["key"]], spec.get("null_safe", ())).words
    copies = stored_copies(words, entry.stream, table, ShardKeys(header.index, header.shards))
    return rows.filter(pa.array(~copies))


def _keys(rows: pa.RecordBatch, spec: StreamSpec) -> Callable[[], Int64s]:
    """Words of closed keys of a stream, which are the first columns."""
    return lambda: encode_key(rows.columns[: len(spec.key)], spec.null_safe).words
