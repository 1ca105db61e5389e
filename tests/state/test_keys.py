"""Keys as (word, bytes): equal exactly when Spark calls the values equal."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lab.joins.oracle import ANOTHER_NAN, NAN
from watersmeet.errors import ColumnError
from watersmeet.joins.reference.definition import same_key
from watersmeet.state import keys
from watersmeet.state.keys import decode, encode

#: A few values of each type, alike enough to be mixed up.
SCALARS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [0, -1, 127, -128],
    pa.int16(): [0, 1, -(2**15)],
    pa.int32(): [0, 1, -(2**31), 2**31 - 1],
    pa.int64(): [0, 1, -1, 256, -(2**63), 2**63 - 1],
    pa.bool_(): [False, True],
    pa.float32(): [0.0, -0.0, NAN, ANOTHER_NAN, 1.5, float("-inf")],
    pa.float64(): [0.0, -0.0, NAN, ANOTHER_NAN, 5e-324, float("inf")],
    pa.string(): ["", "\0", "a", "ab", "b", "\0\0", "ä", "a\u0308"],
    pa.large_string(): ["", "x", "xy"],
    pa.binary(): [b"", b"\0", b"\1", b"\0\0", b"\1\0\0\0"],
    pa.large_binary(): [b"", b"\xff"],
    pa.date32(): [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us"): [datetime(1970, 1, 1), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],
    pa.timestamp("us", "UTC"): [0, 1, -1],
    pa.duration("us"): [timedelta(0), timedelta(microseconds=-1), timedelta(days=9999)],
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99")],
    pa.decimal128(18, 0): [Decimal(0), Decimal(10**18 - 1), Decimal(1 - 10**18)],
    pa.decimal128(19, 0): [Decimal(0), Decimal(10**19 - 1), Decimal(-1)],
    pa.decimal128(38, 4): [Decimal(0), Decimal("-0.0001"), Decimal(2**64) / 10**4, Decimal(10**33)],
}


def types() -> st.SearchStrategy[pa.DataType]:
    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        structs = st.lists(inner, max_size=3).map(lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)]))
        return st.one_of(inner.map(pa.list_), inner.map(pa.large_list), structs)

    return st.recursive(st.sampled_from(list(SCALARS)), nested, max_leaves=4)


def values(kind: pa.DataType, *, null: bool = True) -> st.SearchStrategy[Any]:
    if pt.is_struct(kind):
        some: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: values(f.type) for f in kind})
    elif pt.is_list(kind) or pt.is_large_list(kind):
        some = st.lists(values(kind.value_type), max_size=3)
    else:
        some = st.sampled_from(SCALARS[kind])
    return st.one_of(some, some, some, st.none()) if null else some


@st.composite
def columns(draw: Any, most: int = 3) -> list[pa.Array]:
    """Key columns of one length; NULLs at all depths."""
    kinds = draw(st.lists(types(), min_size=1, max_size=most))
    rows = draw(st.lists(st.tuples(*map(values, kinds)), max_size=8))
    return [pa.array([row[c] for row in rows], kind) for c, kind in enumerate(kinds)]


def plain(encoded: keys.Keys) -> list[tuple[int, bytes] | None]:
    edges = zip(encoded.offsets, encoded.offsets[1:], strict=False)
    bytes_of = [encoded.data[a:b].tobytes() for a, b in edges]
    return [(int(w), b) if ok else None for w, b, ok in zip(encoded.words, bytes_of, encoded.valid, strict=True)]


def python_values(array: pa.Array) -> list[Any]:
    return (array.cast(pa.int64()) if pt.is_timestamp(array.type) else array).to_pylist()


@given(columns(), st.sampled_from([-1, 0]))
def test_equal_keys_are_those_that_spark_calls_equal(key: list[pa.Array], mask: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "HASH_MASK", mask)
        encoded = plain(encode(key))
    rows = list(zip(*map(python_values, key), strict=True))
    assert len(encoded) == len(rows)
    for a, code in zip(rows, encoded, strict=True):
        assert (code is None) == (None in a)
        for b, other in zip(rows, encoded, strict=True):
            assert (code is not None and code == other) == same_key(a, b), (a, b)


@pytest.mark.parametrize("kind", SCALARS, ids=str)
def test_every_value_of_a_type_is_distinguished(kind: pa.DataType) -> None:
    array = pa.array([*SCALARS[kind], None], kind)
    rows, encoded = python_values(array), plain(encode([array]))
    for a, code in zip(rows, encoded, strict=True):
        for b, other in zip(rows, encoded, strict=True):
            assert (code is not None and code == other) == same_key((a,), (b,))


@pytest.mark.parametrize("kind", SCALARS, ids=str)
def test_every_slice_of_a_type_has_the_keys_of_its_rows(kind: pa.DataType) -> None:
    values = [*SCALARS[kind], None, *SCALARS[kind][::-1]]
    flat = pa.array(values, kind)
    lists = pa.array([[v, w] for v, w in pairwise(values)] + [None, []], pa.list_(kind))
    structs = pa.array([{"x": v} for v in values] + [None], pa.struct([("x", kind)]))
    for array in (flat, lists, structs):
        whole = plain(encode([array]))
        for start in range(len(array)):
            for length in (0, 1, 2, len(array)):
                assert plain(encode([array.slice(start, length)])) == whole[start : start + length]


@given(columns(), st.integers(0, 8), st.integers(0, 8))
def test_a_slice_has_the_keys_of_its_rows(key: list[pa.Array], start: int, length: int) -> None:
    sliced = encode([column.slice(start, length) for column in key])
    assert plain(sliced) == plain(encode(key))[start : start + length]
    assert sliced.data.size == sliced.offsets[-1], "bytes of rows that were left out"


@given(columns())
@example([pa.array([], kind) for kind in SCALARS])
@example([pa.nulls(2, kind) for kind in SCALARS])
def test_arrays_belong_to_the_caller(key: list[pa.Array]) -> None:
    """What kernels see is contiguous and writable, whatever Arrow handed in, and is not Arrow's own."""
    for some in (key, key[:1], [column[:0] for column in key]):
        encoded = encode(some)
        for array in (encoded.words, encoded.data, encoded.offsets, encoded.valid):
            assert array.flags.c_contiguous
            assert array.flags.writeable
        assert len(encoded) == len(some[0])
        assert encoded.offsets.size == len(encoded) + 1


@given(columns())
def test_keys_survive_a_round_trip_through_ipc(key: list[pa.Array]) -> None:
    rows = pa.record_batch(key, names=[f"k{i}" for i in range(len(key))])
    again = pa.ipc.read_record_batch(rows.serialize(), rows.schema)
    assert plain(encode(again.columns)) == plain(encode(key))


TEXT, TEXTS = pa.string(), pa.list_(pa.string())


@pytest.mark.parametrize(
    ("kinds", "one", "other"),
    [
        ([TEXT, TEXT], ("a", "bc"), ("ab", "c")),
        ([TEXT, TEXT], ("", "a"), ("a", "")),
        ([TEXT, TEXT], ("\x01\x01\0\0\0a", ""), ("", "\x01\x01\0\0\0a")),
        ([TEXTS, TEXTS], (["a"], []), ([], ["a"])),
        ([TEXTS], (["a", "b"],), (["ab"],)),
        ([TEXTS], ([None],), ([],)),
        ([TEXTS], ([None, None],), ([None],)),
        ([TEXTS], ([None],), ([""],)),
        ([pa.struct([("x", TEXT), ("y", TEXT)])], ({"x": "a", "y": None},), ({"x": None, "y": "a"},)),
        ([pa.list_(TEXTS)], ([["a"], []],), ([[], ["a"]],)),
        ([pa.list_(TEXTS)], ([["a"]],), ([["a"], []],)),
    ],
)
def test_no_two_rows_read_alike(kinds: list[pa.DataType], one: Any, other: Any) -> None:
    together = [pa.array([a, b], kind) for kind, a, b in zip(kinds, one, other, strict=True)]
    first, second = plain(encode(together))
    assert first is not None
    assert second is not None
    assert first[1] != second[1]


def test_small_values_are_words_and_others_have_bytes() -> None:
    assert encode([pa.array([1, 2])]).data.size == 0
    assert encode([pa.array([Decimal("1.10")], pa.decimal128(18, 2))]).data.size == 0
    assert encode([pa.array([Decimal("1.10")], pa.decimal128(19, 2))]).data.size == 16
    assert encode([pa.array(["abc"])]).data.tobytes() == b"abc"
    assert encode([pa.array([1]), pa.array([2])]).data.size == 2 * (1 + 4 + 8)


def test_a_null_in_any_column_makes_the_key_null() -> None:
    valid = encode([pa.array([1, None, 1, None]), pa.array(["a", "a", None, None])]).valid
    assert valid.tolist() == [True, False, False, False]


def test_null_inside_a_struct_or_list_is_a_value() -> None:
    structs = pa.array([{"x": None}, None, {"x": 1}], pa.struct([("x", pa.int64())]))
    assert encode([structs]).valid.tolist() == [True, False, True]
    assert encode([pa.array([[None], None, []], pa.list_(pa.int64()))]).valid.tolist() == [True, False, True]


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int64()),
        pa.month_day_nano_interval(),
        pa.null(),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.struct([("m", pa.map_(pa.string(), pa.int64()))]),
    ],
    ids=str,
)
def test_types_without_equality_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(ColumnError) as caught:
        encode([pa.nulls(2, kind)])
    refused = kind.value_type if pt.is_list(kind) else kind.field(0).type if pt.is_struct(kind) else kind
    assert str(caught.value) == (
        f"a key of type {refused} cannot be compared for equality.\n"
        "Hint: join on a column of a comparable type (maps and intervals of mixed units are not)."
    )


def test_words_spread() -> None:
    words = encode([pa.array([f"key {n}" for n in range(10_000)])]).words
    assert np.unique(words).size == 10_000
    assert np.bincount(words & 63, minlength=64).max() < 2 * 10_000 / 64


# ---------------------------------------------------------------- and back


def decoded(key: list[pa.Array]) -> list[pa.Array]:
    encoded = encode(key)
    rows = np.flatnonzero(encoded.valid)
    starts, lengths = encoded.offsets[:-1][rows], np.diff(encoded.offsets)[rows].astype(np.int32)
    return decode(encoded.words[rows], encoded.data, starts, lengths, [column.type for column in key])


@given(columns())
@example([pa.array(values, kind) for kind, values in [(pa.float32(), [0.1, NAN]), (pa.bool_(), [True, False])]])
def test_decoding_gives_the_columns_back(key: list[pa.Array]) -> None:
    back = decoded(key)
    assert [column.type for column in back] == [column.type for column in key]
    rows = [row for row in zip(*map(python_values, key), strict=True) if None not in row]
    again = list(zip(*map(python_values, back), strict=True))
    assert len(again) == len(rows)
    assert all(same_key(a, b) for a, b in zip(rows, again, strict=True))


@pytest.mark.parametrize("kind", SCALARS, ids=str)
def test_every_value_of_a_type_is_decoded(kind: pa.DataType) -> None:
    array = pa.array(SCALARS[kind], kind)
    (back,) = decoded([array])
    assert back.type == kind
    pairs = zip(python_values(array), python_values(back), strict=True)
    assert all(same_key((a,), (b,)) for a, b in pairs)


@pytest.mark.parametrize("kind", [*SCALARS, pa.list_(pa.int8()), pa.struct([("x", pa.int8())])], ids=str)
def test_no_keys_are_decoded_to_no_values(kind: pa.DataType) -> None:
    (back,) = decoded([pa.array([], kind)])
    assert (back.type, len(back)) == (kind, 0)


def test_words_are_distinguished_from_bytes() -> None:
    for kind, values in SCALARS.items():
        assert keys.is_word(kind) == (encode([pa.array(values, kind)]).data.size == 0), kind


@pytest.mark.parametrize("n", range(6))
@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal128(9, 2),
        pa.decimal128(30, 2),
        pa.list_(pa.decimal128(9, 2)),
        pa.struct([("d", pa.decimal128(9, 2)), ("c", pa.list_(pa.float64())), ("b", pa.binary())]),
    ],
    ids=str,
)
def test_columns_without_values_are_encoded_whatever_their_buffers_hold(n: int, kind: pa.DataType) -> None:
    keys = encode([pa.nulls(n, kind)])
    assert (len(keys), keys.valid.any()) == (n, False)
