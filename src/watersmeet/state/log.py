"""The durable form of a state: a log of deltas in any store of named bytes.

Per batch one segment (or a few) of the rows that stay, and one small header that says which segments are alive.
Bytes written follow the batch, not the state. The header is JSON, segments are Arrow IPC streams; both carry what is
needed to refuse them: the format's version, a digest of the query, checksums.

A header also names the state it stands for by a random token, and remembers the last few tokens with what was added
since, so that a working copy that is a little behind can catch up by reading only what it missed.
"""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.errors import MemoryLimitError, StateCorruptError, StateError, StateFormatError, StateMismatchError
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.queries import JoinQuery
from watersmeet.state.keys import Int64s
from watersmeet.state.segments import Segment, pack, slices, unpack
from watersmeet.state.stream_state import Arrivals, StreamState

FORMAT = 1
#: A working copy may be this many batches behind and still catch up.
REMEMBERED_VERSIONS = 8


class Store(Protocol):
    """Named bytes. Reading what is not there gives None."""

    def read_header(self) -> bytes | None: ...

    def write_header(self, data: bytes) -> None: ...

    def read_segment(self, id: int) -> bytes | None: ...

    def write_segment(self, id: int, data: pa.Buffer) -> None: ...

    def remove_segment(self, id: int) -> None: ...


class MemoryStore:
    """A store in a dictionary: the durable form of a join that runs without Spark."""

    def __init__(self) -> None:
        self.header: bytes | None = None
        self.segments: dict[int, bytes] = {}

    def read_header(self) -> bytes | None:
        return self.header

    def write_header(self, data: bytes) -> None:
        self.header = data

    def read_segment(self, id: int) -> bytes | None:
        return self.segments.get(id)

    def write_segment(self, id: int, data: pa.Buffer) -> None:
        self.segments[id] = data.to_pybytes()

    def remove_segment(self, id: int) -> None:
        del self.segments[id]


@dataclass(frozen=True, slots=True)
class Entry:
    """A living segment: of which stream, how large, what its bytes must sum to, and what it holds: rows, or a delta."""

    id: int
    stream: int
    size: int
    checksum: int
    kind: str = "rows"


@dataclass(frozen=True, slots=True)
class Delta:
    """Something durable beside the rows: what a batch added to it or, if `whole`, all there is of it now.

    `removed` are segments of earlier deltas that are not needed any more.
    """

    kind: str
    stream: int
    rows: pa.RecordBatch
    whole: bool = False
    removed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """One batch in the life of a state. `rewritten`: segments were compacted, older copies cannot catch up over it."""

    token: str
    added: list[int]
    rewritten: bool = False


@dataclass(slots=True)
class Header:
    """What a shard's state is made of."""

    digest: str
    query: dict[str, Any]
    shard: int
    shards: int
    progress: list[int]
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    next_id: int = 0
    batches: int = 0
    segments: list[Entry] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)  # of all shards

    def pack(self) -> bytes:
        body = json.dumps(_fields(self), separators=(",", ":"), default=_fields).encode()
        return f"watersmeet-state {FORMAT} {zlib.crc32(body):08x}\n".encode() + body

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """The header that was packed; says what is wrong when it was not, or not by this version."""
        first, _, body = bytes(data).partition(b"\n")
        words = first.split(b" ")
        if len(words) != 3 or words[0] != b"watersmeet-state" or not words[1].isdigit():
            raise StateCorruptError(
                "the state's header does not begin as one.", hint="restore the checkpoint from a copy."
            )
        if int(words[1]) != FORMAT:
            raise StateFormatError(
                f"the state has format {int(words[1])}; this version reads format {FORMAT}.",
                hint="use the version that wrote it, or start from a new checkpoint.",
            )
        if f"{zlib.crc32(body):08x}".encode() != words[2]:
            raise StateCorruptError(
                "the state's header is not what was written (checksum differs).",
                hint="restore the checkpoint from a copy; nothing was changed.",
            )
        with _of_this_format("header"):
            said = json.loads(body)
            said["segments"] = [Entry(**e) for e in said["segments"]]
            said["versions"] = [Version(**v) for v in said["versions"]]
            header = cls(**said)
            header._check_types()
            return header

    def _check_types(self) -> None:
        """JSON has no types; that every value has the one it must have is not said by a checksum."""
        numbers = [self.shard, self.shards, self.next_id, self.batches, *self.progress, *self.ids]
        numbers += [n for e in self.segments for n in (e.id, e.stream, e.size, e.checksum)]
        numbers += [id for v in self.versions for id in v.added]
        texts = [self.digest, self.token, *(e.kind for e in self.segments), *(v.token for v in self.versions)]
        for kind, values in ((int, numbers), (str, texts), (dict, [self.query, self.notes])):
            wrong = [value for value in values if type(value) is not kind]
            if wrong:
                raise TypeError(f"{wrong[0]!r} is no {kind.__name__}")

    def check(self, query: JoinQuery, shard: int, shards: int, ids: Sequence[int] = ()) -> None:
        """Refuse a state that belongs to another query or another division into shards."""
        if (self.shards, self.shard, self.ids) != (shards, shard, list(ids)):
            raise StateMismatchError(
                f"the checkpoint was written with {self.shards} shards (this one is shard {self.shard}); "
                f"the query now has {shards} (and asks for shard {shard}). "
                "Keys would be looked for in the wrong shard.",
                hint=f"run with shards={self.shards}, or start from a new checkpoint.",
            )
        if self.digest != query.digest():
            changes = _differences(self.query, query.describe())
            raise StateMismatchError(
                f"the checkpoint belongs to another query: {'; '.join(changes)}. What it kept is not what this needs.",
                hint="undo the change, or start from a new checkpoint.",
            )


@contextmanager
def _of_this_format(what: str) -> Iterator[None]:
    """What cannot be read, though checksums fit, is refused by name. No store is asked in here."""
    try:
        yield
    except (StateError, MemoryLimitError, MemoryError, OSError):
        raise
    except Exception as error:  # of JSON, Arrow, NumPy, Numba
        raise StateCorruptError(
            f"the state's {what} is not one of this format ({type(error).__name__}: {error}).",
            hint="restore the checkpoint from a copy; nothing was changed.",
        ) from error


def _fields(record: Any) -> dict[str, Any]:
    """A record's fields by name; what they hold is left as it is (`asdict` would copy all of it)."""
    return {f.name: getattr(record, f.name) for f in fields(record)}


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(k for k in new if k not in old)]
        return [d for k in keys for d in _differences(old.get(k), new.get(k), f"{path}.{k}" if path else k)]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in _differences(a, b, f"{path}[{i}]")]
    return [] if old == new else [f"{path} was {old!r}, is {new!r}"]


class HasState(Protocol):
    """A running join as the log sees it."""

    query: JoinQuery
    streams: list[StreamState[Any]]
    progress: list[int]
    arrivals: list[Arrivals]
    apart: frozenset[str]  # kinds of deltas that are not taken up again: whoever needs one reads it

    def alive_from(self, i: int) -> int: ...

    def notes(self) -> dict[str, Any]:
        """Small facts beside the rows, as JSON."""

    def recall(self, notes: dict[str, Any]) -> None:
        """Take such facts up again, before any segment."""

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        """What the last step changed beside the rows; `entries` are the deltas that are durable by now."""

    def replay(self, delta: Delta) -> None:
        """Take a delta up again, after the rows it may speak of."""

    def restored(self) -> None:
        """All is read: forget what the progress and the promises, taken together, say is dead."""


def begin(query: JoinQuery, shard: int = 0, shards: int = 1, ids: Sequence[int] = ()) -> Header:
    """The header of a state that holds nothing yet."""
    progress = [BEFORE_ALL] * len(query.streams)
    return Header(query.digest(), query.describe(), shard, shards, progress, ids=list(ids))


def rebuild(join: HasState, header: Header, store: Store) -> None:
    """Fill an empty join with everything the header lists."""
    _recall(join, header)
    for entry in header.segments:
        _restore(join, entry, store)
    with _of_this_format("content"):
        join.restored()


def catch_up(join: HasState, behind: str, header: Header, store: Store) -> bool:
    """Bring a join whose state has token `behind` to the header's; False (and nothing done) if it is too far back."""
    tokens = [v.token for v in header.versions]
    if behind not in tokens:
        return False
    missed = header.versions[tokens.index(behind) + 1 :]
    if any(v.rewritten for v in missed):
        return False
    added = {id for v in missed for id in v.added}
    listed = {entry.id for entry in header.segments}
    _recall(join, header)
    for entry in header.segments:
        if entry.id in added:
            _restore(join, entry, store)
    with _of_this_format("content"):
        join.restored()
    for i, stream in enumerate(join.streams):
        stream.expire_before(join.alive_from(i))
        for number in stream.segments.empty():
            if stream.segments.parts[number].id not in listed:  # else the next commit removes it from the store, too
                stream.segments.drop(number)
    return True


def _recall(join: HasState, header: Header) -> None:
    with _of_this_format("header"):
        if len(header.progress) != len(join.progress):
            raise ValueError(f"progress of {len(header.progress)} streams, not of {len(join.progress)}")
        join.progress[:] = header.progress
        join.recall(header.notes)


def read(entry: Entry, store: Store) -> Segment:
    """A segment that a header lists, or an error if it is not there, or not what was written."""
    data = store.read_segment(entry.id)
    if data is None:
        raise StateCorruptError(
            f"segment {entry.id} of the state is missing, though the header lists it.",
            hint="restore the checkpoint from a copy; nothing was changed.",
        )
    return unpack(entry.id, data, entry.checksum)


def _restore(join: HasState, entry: Entry, store: Store) -> None:
    if entry.kind in join.apart:
        return
    segment = read(entry, store)
    with _of_this_format(f"segment {entry.id}"):
        if not 0 <= entry.stream < len(join.streams):
            raise ValueError(f"stream {entry.stream} of {len(join.streams)}")
        if entry.kind == "rows":
            join.streams[entry.stream].restore(segment, join.alive_from(entry.stream))
        else:
            join.replay(Delta(entry.kind, entry.stream, segment.rows))


def commit(join: HasState, header: Header, store: Store) -> Header:
    """Write what the last step changed; returns the header of the new state. The store then holds that state."""
    writer = _Writer(header.next_id, store)
    removed: list[int] = []
    rewritten = False
    for i, (stream, arrivals) in enumerate(zip(join.streams, join.arrivals, strict=True)):
        rows = stream.settle(arrivals)
        if rows is not None:
            writer.write(stream, i, rows, arrivals.slots)
        removed += [stream.segments.drop(number).id for number in stream.segments.empty()]
        worn = stream.worn()
        if worn:
            rewritten = True
            living, slots = stream.rewrite(worn)
            for number in worn:
                removed.append(stream.segments.drop(number).id)
            writer.write(stream, i, living, slots)
    known = [e for e in header.segments if e.kind != "rows"]
    for delta in join.deltas(known, rewritten=rewritten):
        if delta.whole:
            rewritten = True
            removed += [e.id for e in known if (e.kind, e.stream) == (delta.kind, delta.stream)]
        if delta.removed:
            rewritten |= delta.kind not in join.apart
            removed += delta.removed
        writer.note(delta)
    gone = set(removed)
    for id in removed:
        store.remove_segment(id)
    token = secrets.token_hex(16)
    new = Header(
        header.digest,
        header.query,
        header.shard,
        header.shards,
        list(join.progress),
        token,
        writer.next_id,
        header.batches + 1,
        [e for e in [*header.segments, *writer.entries] if e.id not in gone],
        [*header.versions, Version(token, [e.id for e in writer.entries], rewritten)][-REMEMBERED_VERSIONS:],
        join.notes(),
        header.ids,
    )
    store.write_header(new.pack())
    join.arrivals = []
    return new


class _Writer:
    """Turns rows into segments with new ids, in the store and in the working state."""

    def __init__(self, next_id: int, store: Store) -> None:
        self.next_id = next_id
        self.store = store
        self.entries: list[Entry] = []

    def note(self, delta: Delta) -> None:
        if delta.rows.num_rows:
            data = pack(delta.rows)
            self._put(data, delta.stream, delta.kind)

    def _put(self, data: pa.Buffer, stream: int, kind: str) -> Entry:
        entry = Entry(self.next_id, stream, data.size, zlib.crc32(memoryview(data)), kind)
        self.store.write_segment(entry.id, data)
        self.entries.append(entry)
        self.next_id += 1
        return entry

    def write(self, stream: StreamState[Any], index: int, rows: pa.RecordBatch | pa.Table, slots: Int64s) -> None:
        at = 0
        for piece in slices(rows):
            data = pack(piece)
            entry = self._put(data, index, "rows")
            segment = Segment(entry.id, piece, piece.nbytes, entry.checksum)
            stream.adopt(segment, slots[at : at + piece.num_rows])
            at += piece.num_rows
