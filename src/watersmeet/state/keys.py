"""Keys of any type as (word, bytes): equal iff both are equal, whatever the types and however they hash.

Values that fit 64 bits one-to-one (integers, booleans, dates, times, floats, short decimals) *are* their word and
have no bytes. All others (strings, binary, long decimals, several columns, nested values) have a hash as word and
their canonical bytes beside it, which every comparison looks at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.errors import ColumnError
from watersmeet.kernels import hashing

#: And'ed with every hash of bytes. Tests set it to 0 to make all keys collide.
HASH_MASK = -1

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of a batch. Row i has `words[i]` and `data[offsets[i]:offsets[i + 1]]`; not valid means NULL."""

    words: Int64s
    data: Bytes
    offsets: Int64s
    valid: Bools

    def __len__(self) -> int:
        return int(self.words.size)


@dataclass(frozen=True, slots=True)
class _Encoded:
    """One column: its values as bytes, or as words when they fit (then `offsets` is None)."""

    valid: Bools
    words: Int64s | None
    data: Bytes
    offsets: Int64s


def encode(columns: Sequence[pa.Array]) -> Keys:
    """Keys of the rows whose key columns these are. A row with a NULL in any of them is not valid."""
    parts = [_encode(column) for column in columns]
    only, n = parts[0], parts[0].valid.size
    if len(parts) == 1 and only.words is not None:
        return Keys(only.words, np.empty(0, np.uint8), np.zeros(n + 1, np.int64), only.valid)
    valid = np.logical_and.reduce([p.valid for p in parts])
    data, offsets = (only.data, only.offsets) if len(parts) == 1 else _frame(parts, n)
    words = np.empty(n, np.int64)
    hashing.hash_rows(data, offsets, HASH_MASK, words)
    return Keys(words, data, offsets, valid)


def encode_key(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> Keys:
    """Keys of the rows with these key columns, of which the `null_safe` ones (none, if it is empty) may be NULL."""
    return encode([_boxed(c) if safe else c for c, safe in _marked(columns, null_safe)])


def _marked(columns: Sequence[Any], null_safe: Sequence[bool]) -> Iterator[tuple[Any, bool]]:
    return zip(columns, null_safe or [False] * len(columns), strict=True)


def _boxed(column: pa.Array) -> pa.Array:
    """The values inside a struct, which is not NULL: a NULL inside equals a NULL inside."""
    return pa.StructArray.from_arrays([column], names=["value"])


def boxed_kinds(kinds: Sequence[pa.DataType], null_safe: Sequence[bool]) -> list[pa.DataType]:
    """The types of key columns as `encode_key` sees them."""
    return [pa.struct([("value", kind)]) if safe else kind for kind, safe in _marked(kinds, null_safe)]


def unboxed(columns: Sequence[pa.Array], null_safe: Sequence[bool]) -> list[pa.Array]:
    """The key columns that were decoded with `boxed_kinds`."""
    return [c.field(0) if safe else c for c, safe in _marked(columns, null_safe)]


def one_key(n: int) -> Keys:
    """The keys of so many rows of a join without equality: all are the same."""
    return Keys(np.zeros(n, np.int64), np.empty(0, np.uint8), np.zeros(n + 1, np.int64), np.ones(n, np.bool_))


def numbered(keys: Keys) -> Int64s:
    """A number for each key, the same for equal ones."""
    if not keys.data.size:
        return np.unique(keys.words, return_inverse=True)[1]
    buffers = [None, pa.py_buffer(np.ascontiguousarray(keys.offsets)), pa.py_buffer(keys.data)]
    texts = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
    numbers: Int64s = texts.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def _frame(parts: Sequence[_Encoded], n: int) -> tuple[Bytes, Int64s]:
    """Values of several columns one after the other, each with its length, so that no two rows read alike."""
    columns = [_with_bytes(p) for p in parts]
    widths = np.zeros(n, np.int64)
    for p in columns:
        widths += np.where(p.valid, 5 + np.diff(p.offsets), 1)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(widths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    cursor = offsets[:-1].copy()
    for p in columns:
        hashing.frame_column(p.data, p.offsets, p.valid, cursor, data)
    return data, offsets


def _with_bytes(part: _Encoded) -> _Encoded:
    if part.words is None:
        return part
    data = np.ascontiguousarray(part.words).view(np.uint8)
    return _Encoded(part.valid, None, data, np.arange(part.words.size + 1, dtype=np.int64) * 8)


def _encode(column: pa.Array) -> _Encoded:
    kind = column.type
    valid = np.asarray(column.is_valid()) if column.null_count else np.ones(len(column), np.bool_)
    none = np.empty(0, np.uint8)
    zeros = np.zeros(0, np.int64)
    if pt.is_floating(kind):
        return _Encoded(valid, _float_words(column), none, zeros)
    if pt.is_decimal128(kind) and kind.precision <= 18:
        return _Encoded(valid, _wide(column)[:, 0].copy(), none, zeros)
    if pt.is_boolean(kind) or pt.is_integer(kind) or (pt.is_temporal(kind) and kind.bit_width <= 64):
        return _Encoded(valid, _integer_words(column), none, zeros)
    if pt.is_decimal128(kind):
        wide = _wide(column).copy().view(np.uint8).reshape(-1)
        return _Encoded(valid, None, wide, np.arange(len(column) + 1, dtype=np.int64) * 16)
    if pt.is_string(kind) or pt.is_binary(kind) or pt.is_large_string(kind) or pt.is_large_binary(kind):
        return _Encoded(valid, None, *_binary(column.cast(pa.large_binary())))
    if pt.is_struct(kind):
        data, offsets = _frame([_encode(child) for child in column.flatten()] or [_empty(valid)], len(column))
        return _Encoded(valid, None, data, offsets)
    if pt.is_list(kind) or pt.is_large_list(kind):
        at = np.asarray(column.offsets, dtype=np.int64)
        values = column.values.slice(at[0], at[-1] - at[0])
        data, offsets = _frame([_encode(values)], len(values))
        return _Encoded(valid, None, data, offsets[at - at[0]])
    raise ColumnError(
        f"a key of type {kind} cannot be compared for equality.",
        hint="join on a column of a comparable type (maps and intervals of mixed units are not).",
    )


def _empty(valid: Bools) -> _Encoded:
    return _Encoded(valid, None, np.empty(0, np.uint8), np.zeros(valid.size + 1, np.int64))


def _float_words(column: pa.Array) -> Int64s:
    """Bits of the double, with one NaN and one zero, as Spark compares them."""
    values = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    words: Int64s = values.view(np.int64)
    return words


def _integer_words(column: pa.Array) -> Int64s:
    kind = column.type
    if pt.is_boolean(kind) or pt.is_integer(kind):
        words = column if pt.is_int64(kind) else column.cast(pa.int64())
    elif kind.bit_width == 32:
        words = column.view(pa.int32()).cast(pa.int64())
    else:
        words = column.view(pa.int64())
    filled = pc.fill_null(words, 0) if words.null_count else words
    array: Int64s = filled.to_numpy(zero_copy_only=False)
    return array if array.flags.writeable else array.copy()


def _wide(column: pa.Array) -> npt.NDArray[np.int64]:
    """128-bit values as pairs of words, low one first; whatever a NULL holds is not looked at."""
    if not len(column):
        return np.empty((0, 2), np.int64)
    end = column.offset + len(column)  # behind it a buffer may go on, by any number of bytes
    return np.frombuffer(column.buffers()[1], np.int64, 2 * end).reshape(-1, 2)[column.offset :]


def _binary(column: pa.Array) -> tuple[Bytes, Int64s]:
    """The column's bytes, without those of rows that a slice leaves out, and where each row's begin."""
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    whole = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return whole[at[0] : at[-1]].copy(), at - at[0]


def decode(
    words: Int64s, data: Bytes, starts: Int64s, lengths: npt.NDArray[np.int32], kinds: Sequence[pa.DataType]
) -> list[pa.Array]:
    """The key columns of types `kinds` that `encode` made these words and bytes of (floats: the one NaN and zero)."""
    if len(kinds) == 1 and is_word(kinds[0]):
        return [_from_words(words, kinds[0])]
    if len(kinds) == 1 and not pt.is_nested(kinds[0]):
        whole = data.tobytes()
        pieces = [whole[a : a + n] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
        return [pa.array([_value(p, kinds[0]) for p in pieces], kinds[0])]
    view = memoryview(data.tobytes())
    rows = [_fields(view[a : a + n], kinds) for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)]
    return [pa.array([row[c] for row in rows], kind) for c, kind in enumerate(kinds)]


def is_word(kind: pa.DataType) -> bool:
    """Whether a key of this type is its word."""
    return bool(
        pt.is_floating(kind)
        or pt.is_boolean(kind)
        or pt.is_integer(kind)
        or pt.is_temporal(kind)
        or (pt.is_decimal(kind) and kind.precision <= 18)
    )


def _from_words(words: Int64s, kind: pa.DataType) -> pa.Array:
    if pt.is_floating(kind):
        return pa.array(words.view(np.float64)).cast(kind)
    if pt.is_decimal(kind):
        wide = np.empty((words.size, 2), np.int64)
        wide[:, 0], wide[:, 1] = words, words >> 63
        return pa.Array.from_buffers(kind, words.size, [None, pa.py_buffer(wide)])
    if pt.is_temporal(kind):
        narrow = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(words).cast(narrow).view(kind)
    return pa.array(words) if pt.is_int64(kind) else pa.array(words).cast(kind)


def _fields(row: memoryview, kinds: Sequence[pa.DataType]) -> list[Any]:
    """Values of a framed row: one of each kind, or as many of the one kind of a list as there are."""
    nested = kinds[0] if len(kinds) == 1 and pt.is_nested(kinds[0]) else None
    if nested is not None:
        return [_value(row, nested)]
    values, at = [], 0
    for kind in kinds:
        value, at = _framed(row, at, kind)
        values.append(value)
    return values


def _framed(row: memoryview, at: int, kind: pa.DataType) -> tuple[Any, int]:
    if not row[at]:
        return None, at + 1
    end = at + 5 + int.from_bytes(row[at + 1 : at + 5], "little")
    return _value(row[at + 5 : end], kind), end


def _value(data: bytes | memoryview, kind: pa.DataType) -> Any:
    if pt.is_struct(kind):
        fields, at = {}, 0
        for i in range(kind.num_fields):
            fields[kind.field(i).name], at = _framed(memoryview(data), at, kind.field(i).type)
        return fields
    if pt.is_nested(kind):
        values, at = [], 0
        while at < len(data):
            value, at = _framed(memoryview(data), at, kind.value_type)
            values.append(value)
        return values
    if is_word(kind):
        return _from_words(np.frombuffer(data, np.int64), kind)[0].as_py()
    if pt.is_decimal(kind):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(data))])[0].as_py()
    return str(data, "utf-8") if pt.is_string(kind) or pt.is_large_string(kind) else bytes(data)
