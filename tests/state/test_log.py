"""The durable form: what is written, how much of it, and everything that is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lab.joins.oracle import step, stored
from watersmeet.errors import StateCorruptError, StateError, StateFormatError, StateMismatchError
from watersmeet.joins.hash_join import HashJoin, RunningHashJoin
from watersmeet.model.batches import Batch
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.state import stream_state
from watersmeet.state.durable import log
from watersmeet.state.durable.log import Entry, Header, MemoryStore, Version

RESTORE = "Hint: restore the checkpoint from a copy"


def query(window: int = 10) -> JoinQuery:
    def side(name: str) -> StreamSpec:
        schema = pa.schema([("k", pa.int64()), (f"{name}_ts", pa.timestamp("us", "UTC")), (f"{name}_n", pa.int64())])
        return StreamSpec(name, schema, f"{name}_ts", ("k",), TimeWindow(window))

    return JoinQuery((side("a"), side("b")))


class CountingStore(MemoryStore):
    """Counts the bytes that are written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def write_header(self, data: bytes) -> None:
        self.written += len(data)
        super().write_header(data)

    def write_segment(self, id: int, data: pa.Buffer) -> None:
        self.written += data.size
        super().write_segment(id, data)


class Run:
    """A join that is committed after every step; step n brings `rows` tuples of time n to both sides."""

    def __init__(self, requested: JoinQuery, rows: int = 2) -> None:
        self.query, self.rows = requested, rows
        self.store = CountingStore()
        self.header = log.begin(requested)
        self.join = HashJoin().start(requested)
        self.n = 0

    def step(self) -> int:
        """Bytes that the step wrote."""
        before = self.store.written
        batches = []
        for s in self.query.streams:
            keys = [self.n * self.rows + i for i in range(self.rows)]
            times = pa.array([self.n] * self.rows, pa.int64()).cast(s.schema.field(s.time).type)
            rows = pa.record_batch([pa.array(keys), times, pa.array(keys)], schema=s.schema)
            batches.append(Batch.of(rows, s.time))
        step(self.join, batches)
        self.header = log.commit(self.join, self.header, self.store)
        self.n += 1
        return self.store.written - before

    def fresh(self) -> RunningHashJoin:
        return HashJoin().start(self.query)


@pytest.fixture
def run() -> Run:
    made = Run(query())
    for _ in range(3):
        made.step()
    return made


# ---------------------------------------------------------------- the header


def test_a_header_comes_back_as_it_was(run: Run) -> None:
    header = replace(run.header, watermarks=[2**61, -(2**62)])
    assert Header.unpack(header.pack()) == header
    assert header.pack().startswith(f"watersmeet-state {log.FORMAT} ".encode())
    assert header.batches == 3
    assert header.next_id == 6
    assert [(e.id, e.stream) for e in header.segments] == [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0), (5, 1)]
    assert all(isinstance(e, Entry) for e in header.segments)
    assert [(v.added, v.rewritten) for v in header.versions] == [([0, 1], False), ([2, 3], False), ([4, 5], False)]
    assert all(isinstance(v, Version) for v in header.versions)
    assert header.versions[-1].token == header.token
    assert run.header.watermarks == [2, 2]


def test_every_state_has_its_own_token(run: Run) -> None:
    assert len({v.token for v in run.header.versions} | {log.begin(query()).token}) == 4
    assert all(len(v.token) == 32 for v in run.header.versions)


def test_the_store_holds_what_was_returned(run: Run) -> None:
    assert run.store.header is not None
    assert Header.unpack(run.store.header) == run.header


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"{}", b"watersmeet-state\n{}", b"watersmeet-state x 0\n{}", b"other 1 0\n"]
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(StateCorruptError) as caught:
        Header.unpack(data)
    assert str(caught.value) == f"the state's header does not begin as one.\n{RESTORE}."


@pytest.mark.parametrize("other", [1, 99])
def test_another_format_is_refused(run: Run, other: int) -> None:
    data = run.header.pack().replace(f" {log.FORMAT} ".encode(), f" {other} ".encode(), 1)
    with pytest.raises(StateFormatError) as caught:
        Header.unpack(data)
    assert str(caught.value) == (
        f"the state has format {other}; this version reads format {log.FORMAT}.\n"
        "Hint: use the version that wrote it, or start from a new checkpoint."
    )


def test_a_damaged_header_is_refused(run: Run) -> None:
    data = run.header.pack()
    with pytest.raises(StateCorruptError) as caught:
        Header.unpack(data[:-1])
    assert str(caught.value) == (
        f"the state's header is not what was written (checksum differs).\n{RESTORE}; nothing was changed."
    )


def test_a_flipped_bit_of_a_header_is_noticed_wherever_it_is(run: Run) -> None:
    data = run.header.pack()
    for at in range(len(data)):
        with pytest.raises(StateError):
            Header.unpack(data[:at] + bytes([data[at] ^ 2]) + data[at + 1 :])


# ---------------------------------------------------------------- segments


def test_a_missing_segment_is_refused(run: Run) -> None:
    run.store.remove_segment(3)
    with pytest.raises(StateCorruptError) as caught:
        log.rebuild(run.fresh(), run.header, run.store)
    assert str(caught.value) == (
        f"segment 3 of the state is missing, though the header lists it.\n{RESTORE}; nothing was changed."
    )


def test_a_damaged_segment_is_refused(run: Run) -> None:
    good = run.store.segments[2]
    bad = run.store.segments[2] = good[:-1] + bytes([good[-1] ^ 1])
    with pytest.raises(StateCorruptError) as caught:
        log.rebuild(run.fresh(), run.header, run.store)
    assert str(caught.value) == (
        "segment 2 of the state is not what was written "
        f"(checksum {zlib.crc32(bad):08x}, not {zlib.crc32(good):08x}).\n"
        f"{RESTORE}; nothing was changed."
    )


def test_catching_up_looks_as_closely(run: Run) -> None:
    token, copy = run.header.token, run.fresh()
    log.rebuild(copy, run.header, run.store)
    run.step()
    run.store.remove_segment(7)
    with pytest.raises(StateCorruptError, match=r"^segment 7 of the state is missing"):
        log.catch_up(copy, token, run.header, run.store)


# ---------------------------------------------------------------- another query, other shards

PARTITIONS = "spark.sql.shuffle.partitions as it was"


def test_the_own_query_fits(run: Run) -> None:
    run.header.check(query(), 0, 1)


@pytest.mark.parametrize(
    ("shard", "shards", "now", "before"),
    [
        (0, 2, "2", "shards=1"),
        (1, 1, "as many, but others (spark.sql.shuffle.partitions was another number)", PARTITIONS),
        (1, 2, "2", "shards=1"),
    ],
)
def test_another_division_into_shards_is_refused(run: Run, shard: int, shards: int, now: str, before: str) -> None:
    with pytest.raises(StateMismatchError) as caught:
        run.header.check(query(), shard, shards)
    assert str(caught.value) == (
        f"the checkpoint was written with 1 shards; the query now has {now}. "
        "Keys would be looked for in the wrong shard.\n"
        f"Hint: run with {before}, or divide the state anew: "
        f'wm.rescale_state(spark, "checkpoint", "new-checkpoint", shards={shards}).'
    )


def altered(change: Callable[[StreamSpec], StreamSpec]) -> JoinQuery:
    a, b = query().streams
    return JoinQuery((a, change(b)))


RENAMED = pa.schema([("k", pa.int64()), ("b_ts", pa.timestamp("us", "UTC")), ("x", pa.int64())])


@pytest.mark.parametrize(
    ("other_query", "change"),
    [
        (
            altered(lambda s: replace(s, window=TimeWindow(11))),
            "streams[1].window was 10 microseconds, is 11 microseconds",
        ),
        (
            altered(lambda s: replace(s, window=Unbounded())),
            "streams[1].window was 10 microseconds, is none; streams[1].closed was True, is None",
        ),
        (altered(lambda s: replace(s, window=TimeWindow(10, closed=False))), "streams[1].closed was True, is False"),
        (altered(lambda s: replace(s, delay=5)), "streams[1].delay was 0 seconds, is 5 microseconds"),
        (altered(lambda s: replace(s, name="c")), "streams[1].name was 'b', is 'c'"),
        (
            altered(lambda s: replace(s, schema=RENAMED)),
            "streams[1].columns.b_n was 'int64', is None; streams[1].columns.x was None, is 'int64'",
        ),
        (replace(query(), how="left"), "how was 'inner', is 'left'"),
    ],
    ids=["window", "unbounded", "closed", "delay", "name", "columns", "how"],
)
def test_another_query_is_refused_and_the_difference_named(run: Run, other_query: JoinQuery, change: str) -> None:
    with pytest.raises(StateMismatchError) as caught:
        run.header.check(other_query, 0, 1)
    assert str(caught.value) == (
        f"the checkpoint belongs to another query: {change}. What it kept is not what this needs.\n"
        'Hint: undo the change, or carry the state over: wm.evolve_state("checkpoint", "new-checkpoint", joined); else '
        "start from a new checkpoint, with new folders for what is written."
    )


def test_another_bucket_is_named_in_words() -> None:
    a, b = query().streams
    b = replace(b, schema=pa.schema([("k", pa.int64()), ("b_ts", pa.timestamp("us", "UTC"))]))

    def by(seconds: int) -> GroupedQuery:
        bucket = Bucket("b_ts", seconds * 1_000_000, "from")
        return GroupedQuery((a, b), group_by=GroupBy((bucket,), (("n", Aggregate("count")),)))

    with pytest.raises(StateMismatchError, match=r"group_by\.by\[0\]\.length was 1 minute, is 10 minutes\."):
        log.begin(by(60)).check(by(600), 0, 1)


def test_one_stream_more_is_named_too(run: Run) -> None:
    a, b = query().streams
    third = StreamSpec("c", pa.schema([("k", pa.int64()), ("c_ts", pa.int64())]), "c_ts", ("k",), Unbounded())
    with pytest.raises(StateMismatchError, match=r"belongs to another query: streams was \[.*\], is \[.*\]\. What"):
        run.header.check(JoinQuery((a, b, third)), 0, 1)


# ---------------------------------------------------------------- how much is written


def test_a_thousand_batches_leave_a_small_header_and_a_steady_cost() -> None:
    """Nothing ever dies here, so the state grows all the time; what a batch writes must not."""
    run = Run(query(window=10**6), rows=10)
    written, headers = [], []
    for _ in range(1000):
        written.append(run.step())
        headers.append(len(run.header.pack()))
    assert sum(map(len, run.join.streams)) == 20_000
    per_batch = 2 * len(run.store.segments[max(run.store.segments)])
    early, late = sum(written[100:400]) / 300, sum(written[700:]) / 300
    assert max(headers) < 16_000, max(headers)
    assert late < 1.25 * early, (early, late)
    assert late - max(headers) < 4 * per_batch, (late, max(headers), per_batch)


def test_bytes_written_follow_the_batch_and_not_the_state() -> None:
    def average(window: int, rows: int) -> float:
        run = Run(query(window), rows)
        for _ in range(window + 50):
            run.step()
        return sum(run.step() for _ in range(130)) / 130

    small, large = average(10, 20), average(200, 20)
    assert large < 3 * small, (small, large)  # a state of twenty times the size
    assert average(10, 2000) > 2 * small


def test_a_steady_state_takes_steady_room() -> None:
    run = Run(query(window=50), rows=20)
    for _ in range(100):
        run.step()
    early = sum(map(len, run.store.segments.values()))
    for _ in range(150):
        run.step()
    assert sum(map(len, run.store.segments.values())) < 1.5 * early
    assert [len(s) for s in run.join.streams] == [51 * 20] * 2
    for s in run.join.streams:
        assert len(s.segments.parts) <= stream_state.MAX_SMALL_SEGMENTS + 1


def test_a_batch_without_rows_writes_a_header_only(run: Run) -> None:
    empty = [Batch(pa.RecordBatch.from_pylist([], s.schema)) for s in run.query.streams]
    before = stored(run.join, 0)
    segments = dict(run.store.segments)
    step(run.join, empty)
    header = log.commit(run.join, run.header, run.store)
    assert run.store.segments == segments
    assert header.versions[-1].added == []
    assert stored(run.join, 0) == before
