"""`order_by`: which of several tuples with one key and one event time comes first."""

from __future__ import annotations

import math
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.oracle import KEYS, canonical
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.punctuations import Unique
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow

FLAT = sorted(name for name, columns in KEYS.items() if len(columns) == 1 and not pa.types.is_nested(columns[0][0]))
B = StreamSpec("b", pa.schema([("b_ts", pa.int64()), ("k", pa.int64())]), "b_ts", ("k",), TimeWindow(9))


def query(kind: pa.DataType, order_by: str | None) -> JoinQuery:
    schema = pa.schema([("a_ts", pa.int64()), ("k", pa.int64()), ("n", pa.int64()), ("rank", kind)])
    window = TimeWindow(9)
    return JoinQuery((StreamSpec("a", schema, "a_ts", ("k",), window, 0, (Unique(),), order_by=order_by), B), "anti")


def kept(q: JoinQuery, rows: list[tuple[Any, ...]]) -> set[int]:
    """Numbers of the tuples that are no violations."""
    schema = q.streams[0].schema
    batch = pa.record_batch([pa.array([r[c] for r in rows], f.type) for c, f in enumerate(schema)], schema=schema)
    join = PWJoin().start(q)
    list(join.step([Batch.of(batch, "a_ts"), Batch(no_rows(B.schema))]))
    return {r[2] for r in rows} - set(join.violations[0].column("n").to_pylist())


def ascending(value: Any) -> Any:
    """Spark's order: NULL first, NaN last, texts by their bytes."""
    if value is None:
        return (0, 0)
    if isinstance(value, str):
        value = value.encode()
    nan = isinstance(value, float) and math.isnan(value)
    return (2, 0) if nan else (1, value)


@pytest.mark.parametrize("kind", FLAT)
@given(data=st.data())
def test_of_equal_keys_the_first_by_time_and_column_stays(kind: str, data: st.DataObject) -> None:
    of, values = KEYS[kind][0]
    drawn = data.draw(
        st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from([*values, None])), max_size=8)
    )
    rows = [(ts, key, n, value) for n, (ts, key, value) in enumerate(drawn)]
    found = kept(query(of, "rank"), rows)
    for key in {r[1] for r in rows}:
        mine = [r for r in rows if r[1] == key]
        first = min((r[0], ascending(r[3])) for r in mine)
        (stays,) = [r for r in mine if r[2] in found]
        assert (stays[0], canonical(ascending(stays[3])[1])) == (first[0], canonical(first[1][1]))


def test_the_order_of_arrival_means_nothing() -> None:
    rows = [(1, 7, 3, "b"), (1, 7, 1, "c"), (1, 7, 2, "a")]
    for some in permutations(rows):
        assert kept(query(pa.string(), "rank"), list(some)) == {2}, "the first by rank"
        assert kept(query(pa.string(), None), list(some)) == {1}, "the first by its bytes, in which n comes first"
