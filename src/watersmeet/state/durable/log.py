"""The durable form of a state: a log of deltas in any store of named bytes.

Per batch one segment (or a few) of the rows that stay, and one small header that lists the living segments.
Bytes written follow the batch, not the state. The header is JSON, segments are Arrow IPC streams; both carry what is
needed to verify them: the format's version, a digest of the query, checksums.

A header also names its state by a random token, and keeps the last few tokens with the segments added since, so that a
working copy that is a few batches behind can catch up by reading only these.
"""

from __future__ import annotations

import json
import re
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.errors import MemoryLimitError, StateCorruptError, StateError, StateFormatError, StateMismatchError
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import format_length
from watersmeet.state.durable import parts
from watersmeet.state.durable.parts import DurablePart, ReadPiece, load_metadata, metadata_of
from watersmeet.state.keys import Int64s
from watersmeet.state.segments import Segment, pack, slices, unpack
from watersmeet.state.stream_state import Arrivals, StreamState

FORMAT = 2
#: Metadata of a state after its last batch (`wm.write(ends=True)`).
ENDED = "ended"
#: A working copy may be this many batches behind and still catch up.
KNOWN_VERSIONS = 8


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
    """A living segment: its stream, size and checksum, and its kind: "rows", or the kind of a part."""

    id: int
    stream: int
    size: int
    checksum: int
    kind: str = "rows"


@dataclass(frozen=True, slots=True)
class Version:
    """One batch in the life of a state. `rewritten`: segments were compacted, older copies cannot catch up over it."""

    token: str
    added: list[int]
    rewritten: bool = False


@dataclass(slots=True)
class Header:
    """The contents of a shard's state."""

    digest: str
    query: dict[str, Any]
    operator: dict[str, Any]  # its name and options; empty before the first commit
    shard: int
    shards: int
    watermarks: list[int]
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    next_id: int = 0
    batches: int = 0
    segments: list[Entry] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)  # of all shards

    @property
    def index(self) -> int:
        """The index of the shard among all of them, from 0 on; `shard` is its id in Spark."""
        return self.ids.index(self.shard) if self.shard in self.ids else self.shard

    def pack(self) -> bytes:
        body = json.dumps(_fields(self), separators=(",", ":"), default=_fields).encode()
        return f"watersmeet-state {FORMAT} {zlib.crc32(body):08x}\n".encode() + body

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        """The header that was packed; refuses other bytes and other formats."""
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
            header_json = json.loads(body)
            header_json["segments"] = [Entry(**e) for e in header_json["segments"]]
            header_json["versions"] = [Version(**v) for v in header_json["versions"]]
            header = cls(**header_json)
            header._check_types()
            return header

    def _check_types(self) -> None:
        """Check the type of every value: the checksum of a JSON text does not."""
        numbers = [self.shard, self.shards, self.next_id, self.batches, *self.watermarks, *self.ids]
        numbers += [n for e in self.segments for n in (e.id, e.stream, e.size, e.checksum)]
        numbers += [id for v in self.versions for id in v.added]
        texts = [self.digest, self.token, *(e.kind for e in self.segments), *(v.token for v in self.versions)]
        for kind, values in ((int, numbers), (str, texts), (dict, [self.query, self.operator, self.metadata])):
            wrong = [value for value in values if type(value) is not kind]
            if wrong:
                raise TypeError(f"{wrong[0]!r} is no {kind.__name__}")
        for token in (self.token, *(v.token for v in self.versions)):  # the name of a folder
            if re.fullmatch("[0-9a-f]{32}", token) is None:
                raise ValueError(f"a token has 32 hexadecimal digits, not {token!r}")

    def check(self, query: JoinQuery, shard: int, shards: int, ids: Sequence[int] = ()) -> None:
        """Refuse a state that belongs to another query or another division into shards."""
        if (self.shards, self.shard, self.ids) != (shards, shard, list(ids)):
            same = self.shards == shards
            now = "as many, but others (spark.sql.shuffle.partitions was another number)" if same else str(shards)
            before = "with spark.sql.shuffle.partitions as it was" if same else f"with shards={self.shards}"
            raise StateMismatchError(
                f"the checkpoint was written with {self.shards} shards; the query now has {now}. "
                "Keys would be looked for in the wrong shard.",
                hint=f"run {before}, or divide the state anew: "
                f'wm.rescale_state(spark, "checkpoint", "new-checkpoint", shards={shards}).',
            )
        if self.digest != query.digest():
            changes = _differences(self.query, query.describe())
            raise StateMismatchError(
                f"the checkpoint belongs to another query: {'; '.join(changes)}. What it kept is not what this needs.",
                hint="undo the change, or carry the state over: "
                'wm.evolve_state("checkpoint", "new-checkpoint", joined); else start from a new checkpoint, with new '
                "folders for what is written.",
            )

    def refuse_ended(self) -> None:
        """Refuse a state after its last batch."""
        if self.metadata.get(ENDED):
            raise StateMismatchError(
                "the checkpoint has ended: its query was run with ends=True, and its last batch wrote out all that was "
                "final because nothing more would come.",
                hint="start from a new checkpoint, with new folders for what is written.",
            )


@contextmanager
def _of_this_format(what: str) -> Iterator[None]:
    """Turn errors of reading into StateCorruptError. Not for code that reads from the store."""
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
    return dict(zip(names := type(record).__slots__, attrgetter(*names)(record), strict=True))


#: Fields of a query's description that are microseconds.
_DURATIONS = ("window", "delay", "idle_after", "idle_clock", "length", "lower", "upper", "tumbling")


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(k for k in new if k not in old)]
        return [d for k in keys for d in _differences(old.get(k), new.get(k), f"{path}.{k}" if path else k)]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in _differences(a, b, f"{path}[{i}]")]
    formatted = format_length if path.rpartition(".")[2] in _DURATIONS else repr
    return [] if old == new else [f"{path} was {formatted(old)}, is {formatted(new)}"]


class HasState(Protocol):
    """A running join as the log sees it."""

    query: JoinQuery
    operator: dict[str, Any]  # name and options, as JSON
    streams: list[StreamState[Any]]
    watermarks: list[int]
    arrivals: list[Arrivals]

    def alive_from(self, i: int) -> int: ...

    def check_operator(self, stored: dict[str, Any]) -> None:
        """Refuse the state of an operator that this one cannot continue."""

    def parts(self) -> list[DurablePart]: ...

    def restored(self) -> None:
        """All is read: evict tuples that are dead by the watermarks and punctuations together."""


def begin(query: JoinQuery, shard: int = 0, shards: int = 1, ids: Sequence[int] = ()) -> Header:
    """The header of a state that holds nothing yet."""
    watermarks = [BEFORE_ALL] * len(query.streams)
    return Header(query.digest(), query.describe(), {}, shard, shards, watermarks, ids=list(ids))


def attach(join: HasState, header: Header, store: Store) -> None:
    """Let parts read their spilled segments from the store during a batch."""
    listed = _entries_by_part(header)
    for part in join.parts():
        part.attach(_reader(listed.get((part.kind, part.stream), []), store))


def _reader(entries: Sequence[Entry], store: Store) -> ReadPiece:
    return lambda number: read(entries[number], store).rows


def _entries_by_part(header: Header) -> dict[tuple[str, int | None], list[Entry]]:
    out: dict[tuple[str, int | None], list[Entry]] = {}
    for entry in header.segments:
        out.setdefault((entry.kind, entry.stream), []).append(entry)
    return out


def rebuild(join: HasState, header: Header, store: Store) -> None:
    """Fill an empty join with everything the header lists."""
    _load_metadata(join, header)
    _restore(join, header.segments, store)


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
    _load_metadata(join, header)
    _restore(join, [entry for entry in header.segments if entry.id in added], store)
    for i, stream in enumerate(join.streams):
        stream.expire_before(join.alive_from(i))
        for number in stream.segments.empty():
            if stream.segments.parts[number].id not in listed:  # else the next commit removes it from the store, too
                stream.segments.drop(number)
    return True


def _load_metadata(join: HasState, header: Header) -> None:
    with _of_this_format("header"):
        if len(header.watermarks) != len(join.watermarks):
            raise ValueError(f"watermarks of {len(header.watermarks)} streams, not of {len(join.watermarks)}")
        if header.operator:
            join.check_operator(header.operator)
        join.watermarks[:] = header.watermarks
        load_metadata(join.parts(), header.metadata)


def read(entry: Entry, store: Store) -> Segment:
    """A segment that a header lists, or an error if it is not there, or not what was written."""
    data = store.read_segment(entry.id)
    if data is None:
        raise StateCorruptError(
            f"segment {entry.id} of the state is missing, though the header lists it.",
            hint="restore the checkpoint from a copy; nothing was changed.",
        )
    return unpack(entry.id, data, entry.checksum)


def _restore(join: HasState, entries: Sequence[Entry], store: Store) -> None:
    """Take up these segments, but for those of spilled parts; then let all parts settle."""
    of = {(part.kind, part.stream): part for part in join.parts()}
    for entry in entries:
        part = of.get((entry.kind, entry.stream))
        if part is not None and part.spilled:
            continue
        segment = read(entry, store)
        with _of_this_format(f"segment {entry.id}"):
            if not 0 <= entry.stream < len(join.streams):
                raise ValueError(f"stream {entry.stream} of {len(join.streams)}")
            if entry.kind == "rows":
                join.streams[entry.stream].restore(segment, join.alive_from(entry.stream))
            elif part is None:
                raise ValueError(f"the join has no part {entry.kind} of stream {entry.stream}")
            else:
                part.replay(segment.rows)
    with _of_this_format("content"):
        for part in join.parts():
            part.restored()
        join.restored()


def commit(join: HasState, header: Header, store: Store) -> Header:
    """Write what the last step changed; returns the header of the new state. The store then holds that state."""
    writer = _Writer(header.next_id, store)
    removed: list[int] = []
    moved: set[int | None] = set()  # streams whose rows have moved to other segments
    for i, (stream, arrivals) in enumerate(zip(join.streams, join.arrivals, strict=True)):
        rows = stream.settle(arrivals)
        if rows is not None:
            writer.write(stream, i, rows, arrivals.slots)
        removed += [stream.segments.drop(number).id for number in stream.segments.empty()]
        worn = stream.worn()
        if worn:
            moved.add(i)
            for numbers, living, slots in stream.rewrite(worn):
                removed += [stream.segments.drop(number).id for number in numbers]
                writer.write(stream, i, living, slots)
    rewritten = bool(moved)
    listed = _entries_by_part(header)
    for part in join.parts():
        ids = [entry.id for entry in listed.get((part.kind, part.stream), [])]
        change = part.changes(len(ids) >= parts.MOST_PIECES or (part.about_rows and part.stream in moved))
        if change is None:
            continue
        gone_now = ids if change.whole else [ids[number] for number in change.removed]
        removed += gone_now
        written = writer.write_part(part, change.rows)
        rewritten |= not part.spilled and bool(gone_now or (change.whole and written))
    gone = set(removed)
    for id in removed:
        store.remove_segment(id)
    token = secrets.token_hex(16)
    new = Header(
        header.digest,
        header.query,
        join.operator,
        header.shard,
        header.shards,
        list(join.watermarks),
        token,
        writer.next_id,
        header.batches + 1,
        [e for e in [*header.segments, *writer.entries] if e.id not in gone],
        [*header.versions, Version(token, [e.id for e in writer.entries], rewritten)][-KNOWN_VERSIONS:],
        metadata_of(join.parts()),
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

    def write_part(self, part: DurablePart, rows: Sequence[pa.RecordBatch]) -> int:
        """Write a segment for each of these that has rows; returns how many were written."""
        some = [one for one in rows if one.num_rows]
        for one in some:
            assert part.stream is not None, "rows are of a stream"
            self._put(pack(one), part.stream, part.kind)
        return len(some)

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
