"""A hot key over all shards: rows of the first stream that have it are spread, those of the second copied to each.

A key belongs to one shard, so a key that half of the rows have makes one task work and the others wait. Here the key
has one more column, a part: 0 for all but the keys that are split. Of these every shard has a part of its own. A row of
the first stream goes to one part, by its time, one of the second to all of them, so that every pair meets exactly once,
and a row of the first stream meets all of its partners in one place.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from watersmeet.checkpoints.convert_rows import PART, SplitKeys
from watersmeet.errors import QueryError
from watersmeet.model.windows import Interval
from watersmeet.spark.planning.key_types import aligned
from watersmeet.spark.runtime.output_columns import quoted
from watersmeet.spark.streams import Stream
from watersmeet.state.keys import encode
from watersmeet.state.shards import ShardKeys

#: Kinds of joins that emit unmatched rows of the first stream only, if any.
KINDS = ("inner", "left", "semi", "anti")
MOST_KEYS = 100


def split(
    streams: tuple[Stream, ...], keys: Sequence[tuple[str, ...]], how: str, values: Sequence[Any], shards: int
) -> tuple[tuple[Stream, ...], list[tuple[str, ...]], SplitKeys]:
    """Streams and keys with the parts of `values` among them, and these parts."""
    _refuse(streams, keys, how, values)
    streams = aligned(streams, keys)
    kind = streams[0].spec(keys[0], closed=True).schema.field(keys[0][0]).type
    try:
        array = pa.array(values).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise QueryError(f"`split_keys` are not of the type of `{keys[0][0]}`, {kind}: {error}.") from error
    parts = {value: parts_of(array.slice(i, 1), shards) for i, value in enumerate(array.to_pylist())}
    # With other split keys tuples are in other shards: the column's name binds the state to this choice.
    column = f"{PART} {zlib.crc32(repr(sorted(parts.items(), key=repr)).encode()):08x}"
    a, b = (quoted(key[0]) for key in keys)
    turn = F.pmod(F.xxhash64(quoted(streams[0].time)), F.lit(shards)) + 1
    spread = _by_value(a, {v: F.element_at(_array(p), turn.cast("int")) for v, p in parts.items()}, F.lit(0))
    copied = F.explode(_by_value(b, {v: _array(p) for v, p in parts.items()}, _array([0])))
    split_streams = tuple(
        s.with_df(s.df.select("*", part.alias(column))) for s, part in zip(streams, (spread, copied), strict=True)
    )
    return split_streams, [(*key, column) for key in keys], SplitKeys(column, parts)


def parts_of(value: pa.Array, shards: int) -> list[int]:
    """Parts of a value of the key, one for each shard; 0 is the first."""
    candidates = np.arange(64 * shards, dtype=np.int32)
    words = encode([pa.concat_arrays([value] * candidates.size), pa.array(candidates)]).words
    firsts = [int(np.flatnonzero(ShardKeys(shard, shards)(words))[0]) for shard in range(shards)]
    return sorted(firsts)


def without_copies(detail: Column, column: str, copied: str) -> tuple[Column, Column]:
    """Whether a detail is about a row and not about one of its copies; and the detail without its part."""
    part = F.get_json_object(detail, f"$.row['{column}']").cast("int")
    first = (F.get_json_object(detail, "$.stream") != copied) | (part == 0)
    return F.coalesce(first, F.lit(True)), without_column(detail, column)


def without_column(detail: Column, column: str) -> Column:
    """A detail without a column of numbers that was added behind the others."""
    return F.regexp_replace(detail, rf',\s*"{column}":\s*[0-9]+', "")


def _by_value(key: Column, then: dict[Any, Column], otherwise: Column) -> Column:
    case: Any = F
    for value, column in then.items():
        case = case.when(key == F.lit(value), column)
    chosen: Column = case.otherwise(otherwise)
    return chosen


def _array(parts: Sequence[int]) -> Column:
    return F.array(*map(F.lit, parts))


def _refuse(streams: Sequence[Stream], keys: Sequence[tuple[str, ...]], how: str, values: Sequence[Any]) -> None:
    wrong = ""
    if len(streams) != 2 or len(keys[0]) != 1:
        wrong = f"two streams on one column; here are {len(streams)} on {len(keys[0])}."
    elif how not in KINDS:
        wrong = f'{", ".join(KINDS)} joins: in a "{how}" one every copy of a row would be emitted as unmatched.'
    elif any(s.rules or s.constraints for s in streams):
        wrong = "streams without punctuations: each part of a key would be closed alone."
    elif any(not isinstance(s.window, int | Interval) for s in streams):
        wrong = "windows of time: rows are counted where they are, and a part has some of them only."
    if wrong:
        raise QueryError(f"`split_keys` is for {wrong}", hint="leave it out; a hot key then has one shard.")
    if isinstance(values, str) or not 1 <= len(values) <= MOST_KEYS or None in values:
        raise QueryError(
            f"`split_keys` has 1 to {MOST_KEYS} values of the key; got {values!r:.60}.",
            hint="the hottest keys are in the progress, on the live page and in `explain(analyze=True)`.",
        )
