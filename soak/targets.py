"""The targets of fuzzing. A target runs one case from a seed and returns its end: exact, or the error that refused it.

Any other end (another exception, a wrong result, a different state) is raised and counted as a finding.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pyarrow as pa

from lab import ROOT
from lab.dashboard.run_events import run as events_of_a_run
from lab.joins.scripts import Comparison, Script
from lab.query.query_mistakes import QUERIES, STREAMS, TIMES
from soak import random_scripts
from watersmeet.checkpoints.reopen import reopen
from watersmeet.dashboard.event_files import read_events
from watersmeet.dashboard.feed import Feed
from watersmeet.errors import EventError, PipelineError, QueryError, StateError
from watersmeet.joins import plan
from watersmeet.model import durations
from watersmeet.model.queries import columns_of
from watersmeet.model.windows import Unbounded
from watersmeet.pipelines.loader import from_text
from watersmeet.query.lowering import DeclaredStream, lower
from watersmeet.query.parser import read
from watersmeet.query.predicate_parser import parse
from watersmeet.state import segments
from watersmeet.state.durable import log

Target = Callable[[Random], str]
TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


def about(name: str) -> str:
    return (TARGETS[name].__doc__ or "").strip().splitlines()[0].rstrip(".")


# ---------------------------------------------------------------- rows and punctuations


@target
def two_streams(chance: Random) -> str:
    """Two streams of any kind of key, join and constraint, violations included, with restarts: against the rules."""
    given = random_scripts.script(chance)
    return _follow(given, "pwjoin", {}, chance)


@target
def several_streams(chance: Random) -> str:
    """Two or three streams, windows of rows and of time, results put off or not, with restarts: against the rules."""
    given = random_scripts.script(chance, counted=True)
    return _follow(given, "general_lazy", {"every": chance.choice((None, 1, 4))}, chance)


def _follow(given: Script, algorithm: str, options: dict[str, Any], chance: Random) -> str:
    query = given.query()
    operator = plan(query, algorithm, **options)
    join = operator.start()
    comparison = Comparison(given, getattr(join, "every", 0))
    store, header = log.MemoryStore(), log.begin(query)
    for n in range(len(given.batches)):
        comparison.step(join, n)
        header = log.commit(join, header, store)
        if chance.random() < 0.3:
            join = operator.start()
            log.rebuild(join, log.Header.unpack(store.header or b""), store)
    return "exact"


# ---------------------------------------------------------------- state bytes


class Kept:
    """A state to damage: made once per process, of a few batches."""

    made: ClassVar[list[tuple[Script, str, dict[str, Any], log.MemoryStore]]] = []

    @classmethod
    def some(cls, chance: Random) -> tuple[Script, str, dict[str, Any], log.MemoryStore]:
        if len(cls.made) < 40:
            counted = chance.random() < 0.5
            given = random_scripts.script(chance, counted=counted)
            algorithm = "general_lazy" if counted else "pwjoin"
            join, store, header = plan(given.query(), algorithm).start(), log.MemoryStore(), log.begin(given.query())
            for n, streams in enumerate(given.batches):
                list(join.step([given.batch(n, i) for i in range(len(streams))]))
                header = log.commit(join, header, store)
            cls.made.append((given, algorithm, {}, store))
            return cls.made[-1]
        return chance.choice(cls.made)


@target
def state_bytes(chance: Random) -> str:
    """Bits flipped, bytes cut off, doubled, zeroed or swapped in a header or a segment: read as it was, or refused."""
    given, algorithm, options, whole = Kept.some(chance)
    query, store = given.query(), log.MemoryStore()
    store.header, store.segments = whole.header, dict(whole.segments)
    assert store.header is not None
    places: list[int | None] = [None, *store.segments]
    place = chance.choice(places)
    before = store.header if place is None else store.segments[place]
    after = damaged(before, chance)
    if place is None:
        store.header = after
    else:
        store.segments[place] = after
    join = plan(query, algorithm, **options).start()
    try:
        header = log.Header.unpack(store.header)
        header.check(query, 0, 1)
        log.rebuild(join, header, store)
    except StateError as error:
        return type(error).__name__
    if after != before:
        raise AssertionError(f"damage of {'the header' if place is None else 'a segment'} was not noticed")
    return "exact"


class Bomb:
    """Unpickled, it would run a command."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch owned",))


#: Texts that something which takes them for more than texts would run, load or open.
HOSTILE = (
    "__import__('os').system('touch owned')",
    "{0.__class__.__mro__[1].__subclasses__}",
    "!!python/object/apply:os.system ['touch owned']",
    "${jndi:ldap://127.0.0.1:1/x}",
    "../../../../../../etc/passwd",
    "$(touch owned)",
    "os.system",
    "java_method('java.lang.Runtime', 'getRuntime')",
    pickle.dumps(Bomb(), 0).decode(),
    base64.b64encode(pickle.dumps(Bomb())).decode(),
)
_VALUES: tuple[Any, ...] = (None, True, -1, 0, 7, 1 << 40, 1 << 70, 0.5, "", "x", [], [7], {}, {"x": 1}, *HOSTILE)


def _header_json(whole: log.MemoryStore) -> Any:
    return json.loads((whole.header or b"").partition(b"\n")[2])


def sealed(header_json: Any) -> bytes:
    """A header of this content, with a checksum that fits."""
    body = json.dumps(header_json).encode()
    return f"watersmeet-state {log.FORMAT} {zlib.crc32(body):08x}\n".encode() + body


@target
def forged_states(chance: Random) -> str:
    """Headers with a value put in, taken out or exchanged, under checksums that fit: read, or refused."""
    given, algorithm, options, whole = Kept.some(chance)
    header_json = _header_json(whole)
    for _ in range(chance.choice((1, 1, 2))):
        _forge(header_json, chance)
    join = plan(given.query(), algorithm, **options).start()
    try:
        header = log.Header.unpack(sealed(header_json))
        header.check(given.query(), 0, 1)
        log.rebuild(join, header, whole)
    except StateError as error:
        return type(error).__name__
    return "read"


@target
def reopened_states(chance: Random) -> str:
    """Such headers where no program is known, so that they also say what the state is of: read, or refused."""
    *_, whole = Kept.some(chance)
    header_json = _header_json(whole)
    for _ in range(chance.choice((1, 1, 2))):
        part = header_json.get(chance.choice(("query", "operator", "segments")))
        _forge(part if isinstance(part, dict) else header_json, chance)
    try:
        reopen(log.Header.unpack(sealed(header_json)), whole)
    except StateError as error:
        return type(error).__name__
    return "read"


@target
def forged_segments(chance: Random) -> str:
    """Segments of other columns, types and lengths, or damaged ones, under checksums that fit: read, or refused."""
    given, algorithm, options, whole = Kept.some(chance)
    if not whole.segments:
        return "read"
    header_json = _header_json(whole)
    store = _with_forged_segment(whole, header_json, chance)
    join = plan(given.query(), algorithm, **options).start()
    try:
        log.rebuild(join, log.Header.unpack(sealed(header_json)), store)
    except StateError as error:
        return type(error).__name__
    return "read"


@cache
def golden_states() -> list[log.MemoryStore]:
    """Stored states of every kind of operator."""
    from lab.golden.operator_states import states

    return states(log.FORMAT)


@target
def operator_states(chance: Random) -> str:
    """Forged headers and segments of every kind of operator, under checksums that fit: read, or refused."""
    store = chance.choice(golden_states())
    header_json = _header_json(store)
    if store.segments and chance.random() < 0.5:
        store = _with_forged_segment(store, header_json, chance)
    else:
        part = header_json.get(chance.choice(("operator", "metadata", "segments", "query")))
        _forge(part if isinstance(part, dict) else header_json, chance)
    try:
        reopen(log.Header.unpack(sealed(header_json)), store)
    except StateError as error:
        return type(error).__name__
    return "read"


def _with_forged_segment(whole: log.MemoryStore, header_json: Any, chance: Random) -> log.MemoryStore:
    """The state with a segment forged; the header lists its size and checksum."""
    store = log.MemoryStore()
    store.segments = dict(whole.segments)
    id = chance.choice(list(store.segments))
    store.segments[id] = data = _forged_segment(bytes(store.segments[id]), chance)
    for entry in header_json["segments"]:
        if entry["id"] == id:
            entry |= {"size": len(data), "checksum": zlib.crc32(data)}
    return store


def _forged_segment(data: bytes, chance: Random) -> bytes:
    """Another well-formed segment, one whose schema names code, or damaged bytes."""
    rows = pa.ipc.open_stream(data).read_next_batch()
    match chance.randrange(6):
        case 0:
            rows = rows.drop_columns([chance.choice(rows.schema.names)])
        case 1:
            at = chance.randrange(rows.num_columns)
            rows = rows.set_column(at, rows.schema.names[at], pa.array([chance.choice(HOSTILE)] * rows.num_rows))
        case 2:
            at = chance.randrange(rows.num_columns)
            rows = rows.set_column(at, rows.schema.names[at], pa.nulls(rows.num_rows, rows.schema.types[at]))
        case 3:
            rows = rows.slice(0, chance.randrange(rows.num_rows + 1))
        case 4:  # Arrow once unpickled such types
            name = chance.choice(("arrow.py_extension_type", "pandas", "arrow.opaque"))
            code = {"ARROW:extension:name": name, "ARROW:extension:metadata": pickle.dumps(Bomb())}
            fields = [field.with_metadata(code) for field in rows.schema]
            rows = pa.RecordBatch.from_arrays(rows.columns, schema=pa.schema(fields, {"pandas": pickle.dumps(Bomb())}))
        case _:  # in what is not compressed, more of the damage is in the values
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema) as writer:
                writer.write_batch(rows)
            return damaged(chance.choice((data, sink.getvalue().to_pybytes())), chance)
    return segments.pack(rows).to_pybytes()


def _forge(node: Any, chance: Random) -> None:
    """Change one value, at any depth."""
    while True:
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not places:
            return
        place = chance.choice(places)
        below = node[place]
        if isinstance(below, dict | list) and below and chance.random() < 0.8:
            node = below
            continue
        match chance.randrange(3):
            case 0:
                del node[place]
            case 1:
                other = chance.choice(places)
                node[place], node[other] = node[other], node[place]
            case _:
                node[place] = chance.choice(_VALUES)
        return


def damaged(data: bytes, chance: Random) -> bytes:
    """The bytes with one or a few random changes."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 3))):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(6):
            case 0:
                del out[at:]
            case 1 if out:
                out[at % len(out)] ^= 1 << chance.randrange(8)
            case 2:
                out[at:at] = out[at : at + chance.randint(1, 64)]
            case 3:
                out[at : at + 16] = bytes(len(out[at : at + 16]))
            case 4:
                other = chance.randrange(len(out) + 1)
                out[at : at + 4], out[other : other + 4] = out[other : other + 4], out[at : at + 4]
            case _:
                out[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(out)


# ---------------------------------------------------------------- texts

_QUERIES = [text for text in QUERIES.strip().splitlines() if text]
_QUERIES += [  # and some without a mistake
    "SELECT A.item_id, COUNT(*) AS n FROM auction [RANGE 12 HOURS] A, bid [UNBOUNDED] B WHERE A.item_id = B.item_id "
    "GROUP BY A.item_id HAVING COUNT(*) > 3",
    "SELECT seller, price * 2 AS twice FROM auction [RANGE 5 MINUTES SLIDE 1 MINUTE] A LEFT JOIN bid [NOW] B "
    "ON A.item_id = B.item_id AND B.price > A.reserve WHERE seller <> 'x'",
    "ISTREAM(SELECT seller FROM auction [ROWS 5] A JOIN bid [PARTITION BY item_id ROWS 2] B USING (item_id))",
    "SELECT * FROM auction A, bid B, view V WHERE A.item_id = B.item_id AND B.item_id = V.item_id AND price > 1.5",
]
_TOKENS = (
    *"()[],.*=<>+-/%'\"`;\\\n\0é",
    "SELECT",
    "FROM",
    "WHERE",
    "NULL",
    "BETWEEN",
    "0",
    "1e400",
    "99999999999999999999",
    "(" * 500,
    "NOT " * 500,
)


@target
def queries(chance: Random) -> str:
    """Queries in the query language, with words lost, doubled, swapped or put in: planned, or refused."""
    text = _mangled(chance.choice(_QUERIES), chance)
    try:
        parsed = read(text, STREAMS)
        lower(text, parsed, {one.name: DeclaredStream(TIMES[one.stream]) for one in parsed.inputs})
    except QueryError as error:
        return type(error).__name__
    return "planned"


_PREDICATES = ("a_n % 2 = b_n % 2", "NOT (b_n > 4 OR NULL)", "a_n <> 0 AND b_n / a_n BETWEEN 0.5 AND 2", "a_ts <= b_ts")
_SCHEMA = columns_of(Script("int64", "inner", (Unbounded(),) * 2, (0, 0), ((), ()), ()).query().streams)


@target
def conditions(chance: Random) -> str:
    """Conditions across streams, mangled in the same way: read, or refused."""
    try:
        parse(_mangled(chance.choice(_PREDICATES), chance), _SCHEMA)
    except QueryError as error:
        return type(error).__name__
    return "read"


@target
def times(chance: Random) -> str:
    """Durations, mangled: a number of microseconds, or refused."""
    text = _mangled(chance.choice(("10 seconds", "1 hour 5 minutes", "interval 3 days", "-2 weeks", "1.5 s")), chance)
    try:
        durations.parse(text, "window")
    except QueryError as error:
        return type(error).__name__
    return "read"


PIPELINES = [path.read_text() for path in sorted((ROOT / "examples" / "pipelines").glob("*.toml"))]
_LINES = (
    "[streams.x]",
    "x = 1",
    "window = -1",
    'format = "rm -rf"',
    "[[sinks]]",
    'time = ["a"]',
    "options = 3",
    "=",
    "[",
    "x = " + "[" * 5000,
    "x = " + "9" * 5000,
    *(f"{key} = {json.dumps(text)}" for key in ("when", "schema", "select", "path") for text in HOSTILE),
)


@target
def pipeline_files(chance: Random) -> str:
    """Pipeline files, with lines and words lost, doubled, swapped or put in: read, or refused."""
    lines = chance.choice(PIPELINES).splitlines()
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        at = chance.randrange(len(lines))
        match chance.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, chance.choice(lines))
            case 2:
                lines.insert(at, chance.choice(_LINES))
            case _:
                lines[at] = _mangled(lines[at], chance)
        lines = lines or [""]
    try:
        from_text("\n".join(lines), "pipeline.toml", Path("."), {"BROKERS": "127.0.0.1:1"})
    except PipelineError as error:
        return type(error).__name__
    return "read"


@target
def event_files(chance: Random) -> str:
    """Event files, with values and bytes changed, lines lost, doubled or put in: handed to the page, or refused."""
    events = [{"v": 1, **event} for event in events_of_a_run(3)]
    for _ in range(chance.choice((0, 1, 3))):
        _forge(chance.choice(events), chance)
    lines = [json.dumps(event).encode() for event in events]
    for _ in range(chance.choice((0, 1, 2))):
        at = chance.randrange(len(lines))
        match chance.randrange(4):
            case 0:
                lines[at : at + 1] = [lines[at]] * chance.choice((0, 2))
            case 1:
                lines.insert(
                    at, chance.choice((b"[" * 50_000, b'{"v":1,"kind":"batch","x":NaN}', pickle.dumps(Bomb())))
                )
            case _:
                lines[at] = damaged(lines[at], chance)
        lines = lines or [b""]
    try:
        handed_on(b"\n".join(lines) + b"\n")
    except EventError as error:
        return type(error).__name__
    return "read"


def handed_on(data: bytes) -> None:
    """Read the bytes as an event file, and publish its events to a page."""
    file, feed = os.memfd_create("events"), Feed()  # a file that has no place
    try:
        os.write(file, data)
        for event in read_events(f"/proc/self/fd/{file}"):
            feed.publish(event)
    finally:
        os.close(file)
    for _, line in feed.since(0, 0):
        assert line.isascii(), "one line of one message"
        assert line.isprintable()


def _mangled(text: str, chance: Random) -> str:
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at, end = sorted(chance.randrange(len(text) + 1) for _ in range(2))
        match chance.randrange(4):
            case 0:
                text = text[:at] + text[min(end, at + 6) :]
            case 1:
                text = text[:at] + text[at : at + 8] + text[at:]
            case 2:
                text = f"{text[:at]} {chance.choice(_TOKENS)} {text[at:]}"
            case _:
                tokens = text.split(" ")
                one, other = chance.randrange(len(tokens)), chance.randrange(len(tokens))
                tokens[one], tokens[other] = tokens[other], tokens[one]
                text = " ".join(tokens)
    return text
