"""Packer and processor together give the reference's results, batch by batch, for any number of shards."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import KEYS, Scenario, bag, canonical, expected, expected_state, scenarios
from lab.tws.task import Shards, Task, keyless, late_at, late_rows, packed, read, rows_at
from watersmeet.errors import StateCorruptError, StateError, StateFormatError, StateMismatchError, WatersmeetError
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.runtime.packing import one
from watersmeet.spark.runtime.placement import even_tasks, shard_ids, spark_hash
from watersmeet.state.durable.log import MemoryStore

pytestmark = pytest.mark.tws

chances = st.integers(0, 1 << 32).map(Random)


def endless(scenario: Scenario) -> Scenario:
    """The same with streams that go on: a streaming query never ends a stream by itself."""
    a, b = scenario.sides
    return replace(scenario, sides=(replace(a, ends_after=None), replace(b, ends_after=None)))


def ended(scenario: Scenario) -> Scenario:
    """Two streams that end with their first batch, as static DataFrames do."""
    a, b = (replace(side, batches=side.batches[:1], ends_after=0) for side in scenario.sides)
    return replace(scenario, sides=(a, b))


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=10)
@given(data=st.data(), shards=st.integers(1, 3), chance=chances)
def test_shards_give_the_result_by_definition(kind: str, data: st.DataObject, shards: int, chance: Random) -> None:
    scenario = endless(data.draw(scenarios(st.just(kind), batches=4, rows=6)))
    run, inserted = Shards(scenario.query(), shards), 0
    for n, results in enumerate(expected(scenario)):
        out = run.step(rows_at(scenario, n), chance)
        assert bag(out.results) == bag(results)
        late = late_at(scenario, n)
        assert Counter(late_rows(scenario, out.late)) == Counter((name, row[0], row[-1]) for name, row in late)

        assert [row["shard"] for row in out.stats] == list(range(shards)), (
            "numbers, not the ids by which Spark places them"
        )
        assert out.total("rows_in") == sum(len(side.batches[n]) for side in scenario.sides)
        assert out.total("late") == len(late)
        assert out.total("null_keys") == sum(keyless(t) for side in scenario.sides for t in side.admitted()[n])
        assert out.total("results") == len(results)
        assert out.total("probed") >= len(results)
        assert out.total("stored") == sum(len(expected_state(scenario, i)[n]) for i in (0, 1))
        inserted += out.total("inserted") - out.total("expired")
        assert inserted == out.total("stored")
        assert out.total("cache_hit") == (shards if n else 0)

        assert {tuple(header.watermarks) for header in run.headers()} == {
            tuple(s.watermarks()[n] for s in scenario.sides)
        }


@settings(max_examples=30)
@given(scenario=scenarios(rows=12).map(ended), shards=st.integers(1, 3), chance=chances)
def test_static_inputs_are_one_batch_that_keeps_nothing(scenario: Scenario, shards: int, chance: Random) -> None:
    run = Shards(scenario.query(), shards, ended=True)
    out = run.step(rows_at(scenario, 0), chance)
    assert bag(out.results) == bag(expected(scenario)[0])
    assert out.total("stored") == 0
    assert all(not header.segments for header in run.headers())


# ---------------------------------------------------------------- what rows carry

EVERYTHING = {
    "flag": (pa.bool_(), [True, None]),
    "tiny": (pa.int8(), [-128, None]),
    "big": (pa.int64(), [2**63 - 1, None]),
    "double": (pa.float64(), [math.inf, None]),
    "text": (pa.string(), ['a "quoted" ä', None]),
    "bytes": (pa.binary(), [b"\x00\xff", None]),
    "day": (pa.date32(), [date(1, 1, 1), None]),
    "money": (pa.decimal128(38, 10), [Decimal("-9999999999999999999999999999.9999999999"), None]),
    "instant": (pa.timestamp("us", "UTC"), [datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), None]),
    "clock": (pa.timestamp("us"), [datetime(1, 1, 1), None]),
    "span": (pa.duration("us"), [timedelta(days=-1, microseconds=1), None]),
    "nothing": (pa.null(), [None, None]),
}
NESTED = {
    "list": (
        pa.list_(pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])),
        [[{"x": 0.5, "y": ["", None]}], None],
    ),
    "map": (pa.map_(pa.string(), pa.decimal128(5, 2)), [[("k", Decimal("1.50"))], None]),
    "struct": (
        pa.struct([("when", pa.timestamp("us", "UTC")), ("raw", pa.binary())]),
        [{"when": None, "raw": b"\xff"}, None],
    ),
}


def spec(name: str, columns: dict[str, tuple[pa.DataType, list[Any]]], window: int = 10, delay: int = 0) -> StreamSpec:
    fields = [("k", pa.int64()), (f"{name}_ts", pa.timestamp("us")), *((c, kind) for c, (kind, _) in columns.items())]
    return StreamSpec(name, pa.schema(fields), f"{name}_ts", ("k",), TimeWindow(window), delay)


def rows(spec: StreamSpec, keys: list[int | None], times: list[int | None], *columns: list[Any]) -> pa.RecordBatch:
    time = pa.array(times, pa.int64()).cast(pa.timestamp("us"))
    arrays = [pa.array(keys, pa.int64()), time]
    arrays += [pa.array(c, kind) for c, kind in zip(columns, spec.schema.types[2:], strict=True)]
    return pa.record_batch(arrays, schema=spec.schema)


@pytest.mark.parametrize("columns", [EVERYTHING, EVERYTHING | NESTED], ids=["flat", "nested"])
def test_payloads_of_every_type_come_out_as_they_went_in(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> None:
    query = JoinQuery((spec("a", columns), spec("b", {})))
    a, b = query.streams
    values = [column for _, column in columns.values()]
    run, found = Shards(query, 2), []
    run.step([rows(a, [1, 2], [0, 0], *values), rows(b, [], [])], Random(0))
    for other in ([1], [2]):
        blobs = packed(query, run.ids, [rows(a, [], [], *([] for _ in values)), rows(b, other, [3])], Random(0))
        for shard in run.ids:
            task = Task(query, run.ids, shard, run.stores[shard], ended=False)
            frames = list(task.run(blobs, Random(0)))
            found += read(frames, query).results
    plain = pa.table([pa.array(column, kind) for kind, column in columns.values()], names=list(columns))
    ours = [tuple(row.values()) for row in plain.to_pylist()]
    assert [row[2:-1] for row in sorted(found)] == [tuple(map(canonical, row)) for row in ours]


@pytest.mark.parametrize("packs", [False, True])
def test_a_late_row_is_written_in_json(packs: bool) -> None:
    columns = EVERYTHING | NESTED if packs else EVERYTHING
    query = JoinQuery((spec("a", columns), spec("b", {})))
    a, b = query.streams
    values = [[column[0]] for _, column in columns.values()]
    nothing = rows(b, [], [])
    run = Shards(query, 1)
    run.step([rows(a, [1], [5], *values), nothing], Random(0))
    out = run.step([rows(a, [1], [4], *values), nothing], Random(0))
    assert out.results == []
    found = {
        "k": 1,
        "a_ts": "1970-01-01 00:00:00.000004",
        "flag": True,
        "tiny": -128,
        "big": 2**63 - 1,
        "double": "Infinity",
        "text": 'a "quoted" ä',
        "bytes": "AP8=",
        "day": "0001-01-01",
        "money": "-9999999999999999999999999999.9999999999",
        "instant": "9999-12-31 23:59:59.999999Z",
        "clock": "0001-01-01 00:00:00.000000",
        "span": "-1 day, 0:00:00.000001",
        "nothing": None,
    }
    nested = {"list": [{"x": 0.5, "y": ["", None]}], "map": [["k", "1.50"]], "struct": {"when": None, "raw": "/w=="}}
    assert out.late == [{"shard": 0, "stream": "a", "row": found | nested if packs else found}]


@pytest.mark.parametrize(("number", "word"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_what_json_has_no_number_for_is_written_in_words(number: float, word: str) -> None:
    query = JoinQuery((spec("a", {"x": (pa.float64(), []), "xs": (pa.list_(pa.float64()), [])}), spec("b", {})))
    a, b = query.streams
    run = Shards(query, 1)
    run.step([rows(a, [1], [5], [0.0], [[]]), rows(b, [], [])], Random(0))
    blobs = packed(query, run.ids, [rows(a, [1], [4], [number], [[number, 1.0]]), rows(b, [], [])], Random(0))
    frames = list(Task(query, run.ids, run.ids[0], run.stores[run.ids[0]], ended=False).run(blobs, Random(0)))
    detail = frames[0].iloc[0, 1]
    row = json.loads(detail, parse_constant=pytest.fail)["row"]
    assert (row["x"], row["xs"]) == (word, [word, 1.0])


def test_watermarks_are_exact_in_distant_years() -> None:
    """A partition without rows sends no time; beside it pandas must not make floats of the others'."""
    query = JoinQuery((spec("a", {}), spec("b", {})))
    a, b = query.streams
    for newest in (253_402_300_799_999_999, -62_135_596_799_999_999):
        run = Shards(query, 2)
        for seed in range(4):
            run.step([rows(a, [1], [newest]), rows(b, [], [])], Random(seed))
            assert {header.watermarks[0] for header in run.headers()} == {newest}


# ---------------------------------------------------------------- what is refused


def test_more_than_arrow_can_hold_in_a_column_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflow(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")

    monkeypatch.setattr(pa, "concat_batches", overflow)
    half = pa.record_batch({"text": ["x"]})
    assert one([half]) is half
    with pytest.raises(WatersmeetError) as caught:
        one([half, half])
    assert str(caught.value) == (
        "a shard has more than 2 GiB of text or bytes in one column in one batch.\n"
        "Hint: take smaller batches (maxFilesPerTrigger, maxOffsetsPerTrigger and their like), or more shards."
    )


def test_a_shard_without_a_state_begins_with_the_first_batch_that_reaches_it() -> None:
    query = JoinQuery((spec("a", {}), spec("b", {})))
    run = Shards(query, 2)
    assert not any(store.header for store in run.stores.values())
    run.step([rows(s, [1], [0]) for s in query.streams], Random(0))
    assert [header.ids for header in run.headers()] == [list(run.ids)] * 2


def test_shard_0_is_there_whatever_the_number_of_shards_and_partitions() -> None:
    assert all(0 in shard_ids(shards, partitions) for shards in range(1, 9) for partitions in range(1, 9))


@pytest.mark.parametrize("shards", [6, 64, 96])
def test_ids_are_the_same_for_every_number_of_tasks_that_divides_the_shards_evenly(shards: int) -> None:
    for tasks in (n for n in range(1, shards + 1) if shards % n == 0):
        assert shard_ids(shards, tasks) == shard_ids(shards, shards)
        loads = Counter(spark_hash(id) % tasks for id in shard_ids(shards, tasks))
        assert set(loads.values()) == {shards // tasks}


@pytest.mark.parametrize(
    ("shards", "cores", "tasks"), [(2, 2, 2), (64, 2, 2), (64, 3, 4), (3, 2, 3), (10, 4, 5), (2, 8, 2), (7, 2, 7)]
)
def test_tasks_keep_all_cores_busy_and_have_equally_many_shards(shards: int, cores: int, tasks: int) -> None:
    assert even_tasks(shards, cores) == tasks


A, B = spec("a", {"j": (pa.int64(), [])}), spec("b", {})
AB = JoinQuery((A, B))
CHANGES = {
    "window": ((replace(A, window=TimeWindow(11)), B), "streams[0].window was 10 microseconds, is 11 microseconds"),
    "half-open": ((A, replace(B, window=TimeWindow(10, closed=False))), "streams[1].closed was True, is False"),
    "delay": ((A, replace(B, delay=3)), "streams[1].delay was 0 seconds, is 3 microseconds"),
    "key": ((replace(A, key=("j",)), B), "streams[0].key[0] was 'k', is 'j'"),
    "time": ((replace(A, schema=A.schema.set(2, pa.field("j", pa.timestamp("us"))), time="j"), B), "streams[0].time"),
    "column": ((spec("a", {"x": (pa.int8(), [])}), B), "streams[0].columns.x was None, is 'int8'"),
    "name": ((replace(A, name="z"), B), "streams[0].name was 'a', is 'z'"),
}


def some_rows(times: list[int]) -> list[pa.RecordBatch]:
    keys = list(range(len(times)))
    return [rows(A, keys, times, keys), rows(B, keys, times)]


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_query_is_refused(what: str) -> None:
    streams, difference = CHANGES[what]
    run = Shards(AB, 1)
    run.step(some_rows([0]), Random(0))
    text = refused(run, JoinQuery(streams), run.ids, StateMismatchError)
    assert text.startswith("the checkpoint belongs to another query: ")
    assert difference in text
    assert text.endswith(
        'Hint: undo the change, or carry the state over: wm.evolve_state("checkpoint", "new-checkpoint", joined); else '
        "start from a new checkpoint, with new folders for what is written."
    )


def test_another_number_of_shards_is_refused() -> None:
    run = Shards(AB, 1)
    run.step(some_rows([0]), Random(0))
    more = (run.ids[0], run.ids[0] + 1)
    assert refused(run, AB, more, StateMismatchError) == (
        "the checkpoint was written with 1 shards; the query now has 2. Keys would be looked for in the wrong shard.\n"
        "Hint: run with shards=1, or divide the state anew: "
        'wm.rescale_state(spark, "checkpoint", "new-checkpoint", shards=2).'
    )


def test_other_shards_of_the_same_number_are_refused() -> None:
    run = Shards(AB, 2)
    run.step(some_rows([0]), Random(0))
    text = refused(run, AB, (run.ids[0], run.ids[1] + 1), StateMismatchError)
    assert text.startswith(
        "the checkpoint was written with 2 shards; the query now has as many, but others (spark.sql.sh"
    )


def refused(run: Shards, query: JoinQuery, ids: tuple[int, ...], error: type[StateError]) -> str:
    """The text with which a shard's state is refused; it stays as it was."""
    shard = run.ids[0]
    before = (run.stores[shard].header, dict(run.stores[shard].segments))
    task = Task(query, ids, shard, run.stores[shard], ended=False)
    nothing = [pa.record_batch([pa.nulls(0, t) for t in s.schema.types], schema=s.schema) for s in query.streams]
    blobs = packed(query, ids, nothing, Random(0))
    with pytest.raises(error) as caught:
        list(task.run(blobs, Random(0)))
    after = task.store()
    assert (after.header, after.segments) == before
    return str(caught.value)


@pytest.fixture
def run(working_states: Path) -> Shards:
    """A shard with something in its state, and no working state of it."""
    made = Shards(AB, 1)
    made.step(some_rows([0, 0]), Random(0))
    shutil.rmtree(working_states)
    return made


def test_a_state_of_another_format_is_refused(run: Shards) -> None:
    store = only(run)
    assert store.header is not None
    store.header = store.header.replace(b"watersmeet-state 2 ", b"watersmeet-state 1 ", 1)
    text = refused(run, AB, run.ids, StateFormatError)
    assert text.startswith("the state has format 1; this version reads format 2.")


def test_a_changed_header_is_refused(run: Shards) -> None:
    store = only(run)
    assert store.header is not None
    for place in range(0, len(store.header), 7):
        whole = store.header
        store.header = flipped(whole, place)
        refused(run, AB, run.ids, StateError)
        store.header = whole


def test_a_changed_segment_is_refused(run: Shards, working_states: Path) -> None:
    store = only(run)
    for id, whole in list(store.segments.items()):
        for place in range(0, len(whole), 97):
            store.segments[id] = flipped(whole, place)
            text = refused(run, AB, run.ids, StateCorruptError)
            assert text.startswith(f"segment {id} of the state is not what was written (checksum ")
        store.segments[id] = whole
    assert list(working_states.iterdir()) == []


def test_a_lost_segment_is_refused(run: Shards, working_states: Path) -> None:
    store = only(run)
    id, _ = store.segments.popitem()
    text = refused(run, AB, run.ids, StateCorruptError)
    assert text.startswith(f"segment {id} of the state is missing, though the header lists it.")
    assert list(working_states.iterdir()) == []


def only(run: Shards) -> MemoryStore:
    return run.stores[run.ids[0]]


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
