"""Segments: rows as bytes and back, sliced, numbered and taken."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.oracle import Scenario, rows_of, scenarios
from watersmeet.errors import StateCorruptError
from watersmeet.state import segments
from watersmeet.state.segments import Segment, Segments, pack, pieces, slices, tables, together, unpack, widths


def table(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64()), "text": pa.array([str(n) for n in numbers])})


def segment(id: int, *numbers: int) -> Segment:
    data = pack(table(*numbers))
    return unpack(id, data, zlib.crc32(memoryview(data)))


@given(scenarios(batches=1))
def test_rows_come_back_as_they_were(scenario: Scenario) -> None:
    rows = scenario.batches(0)[0].rows
    data = pack(rows)
    again = unpack(7, data, zlib.crc32(memoryview(data)))
    assert again.id == 7
    assert again.size == again.rows.nbytes
    assert again.rows.schema.equals(rows.schema)
    assert rows_of(again.rows) == rows_of(rows)


def test_a_slice_is_packed_without_the_rest() -> None:
    many = table(*range(10_000))
    assert pack(many.slice(5000, 3)).size < 1000
    data = pack(many.slice(5000, 3))
    assert unpack(0, data, zlib.crc32(memoryview(data))).rows.column("n").to_pylist() == [5000, 5001, 5002]


@pytest.mark.parametrize("count", [20, 2_000])
def test_only_many_rows_are_compressed(count: int) -> None:
    rows = pa.record_batch({"n": pa.array(range(count), pa.int64())})
    data = pack(rows)
    values = rows.column("n").buffers()[1].to_pybytes()
    assert (values in data.to_pybytes()) == (rows.nbytes <= segments.UNCOMPRESSED)
    assert unpack(0, data, zlib.crc32(memoryview(data))).rows == rows


def test_a_flipped_bit_is_noticed_wherever_it_is() -> None:
    data = pack(table(1, 2, 3)).to_pybytes()
    checksum = zlib.crc32(data)
    for at in range(len(data)):
        bad = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(StateCorruptError) as caught:
            unpack(42, bad, checksum)
        assert str(caught.value) == (
            f"segment 42 of the state is not what was written (checksum {zlib.crc32(bad):08x}, not {checksum:08x}).\n"
            "Hint: restore the checkpoint from a copy; nothing was changed."
        )


@given(st.integers(1, 60), st.integers(1, 600), st.booleans())
def test_slices_are_all_of_it_in_order(rows: int, limit: int, chunked: bool) -> None:
    whole = table(*range(rows))
    given_rows = pa.Table.from_batches([whole.slice(0, 7), whole.slice(7)]) if chunked else whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SEGMENT_BYTES", limit)
        pieces = list(slices(given_rows))
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([whole]))
    widest = max(p.num_rows for p in pieces) * whole.get_total_buffer_size() / rows
    assert widest < limit + whole.get_total_buffer_size() / rows


def test_a_small_batch_is_one_slice_and_nothing_is_none() -> None:
    assert [p.num_rows for p in slices(table(1, 2, 3))] == [3]
    assert list(slices(table())) == []


def test_numbers_are_used_again() -> None:
    parts = Segments()
    assert [parts.add(segment(id, id), 1) for id in range(40)] == list(range(40))
    assert parts.drop(3).id == 3
    assert parts.drop(1).id == 1
    assert [parts.add(segment(id, id), 1) for id in (100, 101, 102)] == [1, 3, 40]
    assert parts.parts[3].id == 101


def test_a_segment_can_be_put_under_a_number_known_before() -> None:
    parts = Segments()
    parts.put(100, segment(5, 1, 2), 2)
    assert parts.left[100] == 2
    assert parts.add(segment(6, 3), 1) == 0


def test_empty_ones_are_those_without_a_living_row() -> None:
    parts = Segments()
    for id in range(3):
        parts.add(segment(id, 1, 2), 2)
    parts.left[1] = 0
    assert parts.empty() == [1]


def test_bytes_count_the_living_rows_alone() -> None:
    parts = Segments()
    number = parts.add(segment(0, 1, 2, 3, 4), 4)
    whole = parts.bytes
    parts.left[number] = 1
    assert parts.bytes == whole // 4


def test_rows_are_taken_from_several_segments() -> None:
    parts = Segments()
    parts.add(segment(0, 10, 11, 12), 3)
    parts.add(segment(1, 20, 21), 2)
    numbers, rows = np.array([1, 1, 0], np.int32), np.array([1, 0, 2], np.int32)
    assert parts.take(numbers, rows, ["text", "n"]).to_pylist() == [
        {"text": "21", "n": 21},
        {"text": "20", "n": 20},
        {"text": "12", "n": 12},
    ]


WORDS = st.lists(st.none() | st.text(max_size=9), min_size=1, max_size=20)


@given(words=WORDS, drop=st.integers(0, 5), data=st.data())
def test_widths_are_the_bytes_of_texts_and_no_others(words: list[str | None], drop: int, data: st.DataObject) -> None:
    some = [pa.array(words), pa.array(words, pa.large_string()), pa.array(range(len(words)))]
    whole = pa.record_batch(some, names=["small", "large", "number"]).slice(min(drop, len(words) - 1))
    which = np.array(data.draw(st.lists(st.integers(0, whole.num_rows - 1), max_size=9)), np.int32)
    kept = whole.column(0).to_pylist()
    assert widths(whole, which).tolist() == [2 * len((kept[n] or "").encode()) for n in which]
    parts = Segments()
    parts.put(3, Segment(0, whole, 1, 0), 1)
    parts.put(5, Segment(1, whole, 1, 0), 1)
    numbers = np.array([3, 5] * which.size, np.int32)
    assert (parts.widths(numbers, np.repeat(which, 2), ["small"]) * 2 == np.repeat(widths(whole, which), 2)).all()


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=30))
def test_pieces_are_all_of_it_in_order_and_bounded(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "TABLE_BYTES", 20)
        some = [sizes[s] for s in pieces(np.array(sizes, np.int64))]
        (shared,) = pa.table({"n": sizes}).to_batches()
        parts = list(tables(pa.Table.from_batches([shared])))
    assert [n for part in some for n in part] == sizes
    assert all(part and (len(part) == 1 or sum(part) < 20 + 30) for part in some)
    assert pa.concat_tables(parts).column("n").to_pylist() == sizes
    assert all(part.nbytes <= 20 for part in parts)


@given(sizes=st.lists(st.integers(1, 9), max_size=30), small=st.integers(0, 200))
def test_small_tables_leave_together_and_none_is_lost(sizes: list[int], small: int) -> None:
    given_out = [pa.table({"n": np.arange(size) + 10 * at}) for at, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SMALL_TABLE", small)
        out = list(together(iter(given_out)))
    assert [n for t in out for n in t.column("n").to_pylist()] == [
        n for t in given_out for n in t.column("n").to_pylist()
    ]
    assert all(t.nbytes >= small for t in out[:-1])
    assert all(t.nbytes <= small + 9 * 8 for t in out), "none waits that is large enough"
