"""Groups one by one: when they come, what stays, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lab.joins.naive_groups import Feed, Row, bag, groups_of, open_groups, query, rebuilt, rows_of
from watersmeet.errors import ColumnError, QueryError, WatersmeetError
from watersmeet.joins import Join
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.batches import Batch
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.punctuations import BatchPunctuations, End, Heartbeat, Punctuation, Range, Value
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.state.durable import log, parts
from watersmeet.state.gone_rows import GoneRows


def script(
    q: GroupedQuery, *steps: tuple[Sequence[Row], Sequence[Row], Sequence[Punctuation], list[Row], list[Row]]
) -> None:
    """Each step: rows of a, rows of b, punctuations of both, groups that come out, groups that stay."""
    running = GroupedJoin(Join(q.join, PWJoin()), q).start()
    store, header = log.MemoryStore(), log.begin(q)
    for a, b, given, out, stay in steps:
        feed = Feed(((tuple(a),), (tuple(b),)), ((tuple(given),), (tuple(given),)))
        assert sorted(groups_of(list(running.step(feed.batches(0))), q)) == sorted(out)
        assert sorted(open_groups(running)) == sorted(stay)
        header = log.commit(running, header, store)
        running = rebuilt(GroupedJoin(Join(q.join, PWJoin()), q), header, store)


def test_a_key_ends_its_group_a_range_those_inside_and_the_end_all() -> None:
    q = query(("k",), (TimeWindow(10), TimeWindow(10)), names=["n"])
    rows = [(k, 5, None, None) for k in (1, 2, 3, 4)]
    script(
        q,
        (rows, rows, [], [], [(1, 1), (2, 1), (3, 1), (4, 1)]),
        ([(1, 6, None, None)], [], [Punctuation(Value((2,)), 6)], [(2, 1)], [(1, 2), (3, 1), (4, 1)]),
        ([], [], [Punctuation(Range(3, 9), 7)], [(3, 1), (4, 1)], [(1, 2)]),
        ([], [], [Punctuation(Heartbeat(100), 7)], [], [(1, 2)]),  # windows alone never end a key
        ([], [], [Punctuation(End(), 101)], [(1, 2)], []),
    )


def test_a_bucket_ends_when_nothing_can_fall_into_it() -> None:
    """Buckets of 10 on a's time, windows of 5 on a: the one from 0 ends at P_a > 9 and P_b > 14."""
    q = query((Bucket("a_ts", 10, "from"), "k"), (TimeWindow(5), TimeWindow(50)), names=["n"])
    script(
        q,
        ([(1, 9, None, None)], [(1, 9, None, None)], [], [], [(0, 1, 1)]),
        ([(1, 10, None, None)], [(1, 14, None, None)], [], [], [(0, 1, 2), (10, 1, 2)]),
        ([], [(2, 15, None, None)], [], [(0, 1, 2)], [(10, 1, 2)]),
        ([], [(2, 25, None, None)], [], [], [(10, 1, 2)]),
        ([(2, 20, None, None)], [], [], [(10, 1, 2)], [(20, 2, 2)]),
    )


def test_updates_come_with_every_batch_and_final_groups_are_evicted() -> None:
    q = query(("k",), (TimeWindow(10), TimeWindow(10)), emit="update", names=["n"])
    one, two = [(1, 5, None, None)], [(1, 6, None, None)]
    script(
        q,
        (one, one, [], [(1, 1)], [(1, 1)]),
        ([], two, [], [(1, 2)], [(1, 2)]),
        ([], [], [], [], [(1, 2)]),
        (two, [], [Punctuation(Value((1,)), 6)], [(1, 4)], []),
    )


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.decimal128(38, 2)], ids=str)
def test_null_is_a_group_of_its_own_and_in_no_range(kind: pa.DataType) -> None:
    key = {pa.string(): ["", "a", "b"], pa.binary(): [b"", b"\0", b"b"]}.get(
        kind, [Decimal(0), Decimal("-1.5"), Decimal(7)]
    )
    schemas = [pa.schema([("k", kind), (f"{n}_ts", pa.int64())]) for n in "ab"]
    streams = tuple(
        StreamSpec(n, schema, f"{n}_ts", ("k",), TimeWindow(5)) for n, schema in zip("ab", schemas, strict=True)
    )
    q = GroupedQuery(streams, "full", group_by=GroupBy(("k",), (("n", Aggregate("count")),)))
    running, store, headers = GroupedJoin(Join(q.join, PWJoin()), q).start(), log.MemoryStore(), [log.begin(q)]

    def step(keys: Sequence[Any], time: int, *punctuations: Punctuation) -> list[Row]:
        batches = []
        for n, schema in zip("ab", schemas, strict=True):
            rows = pa.record_batch([pa.array(keys, kind), pa.array([time] * len(keys), pa.int64())], schema=schema)
            batches.append(
                Batch.of(
                    rows, f"{n}_ts", punctuations=BatchPunctuations.of(punctuations, pa.schema([schema.field("k")]))
                )
            )
        out = rows_of(list(running.step(batches)))
        headers.append(log.commit(running, headers[-1], store))
        return out

    assert step([*key, None], 1) == []
    assert len(running.groups.state) == 4
    assert sorted(step([], 2, Punctuation(Range(None, key[0]), 2))) == sorted([(k, 1) for k in key if k <= key[0]])
    assert sorted(step([], 3, Punctuation(Range(None, None), 3))) == sorted([(k, 1) for k in key if k > key[0]])
    assert step([], 4, Punctuation(End(), 4)) == [(None, 2)]


def test_what_is_written_follows_the_batch() -> None:
    """Ten thousand groups are held; a batch that changes one writes one, and says which row is gone."""
    q = query(("k",), (TimeWindow(10), TimeWindow(10)), names=["n"])
    join = GroupedJoin(Join(q.join, PWJoin()), q)
    running, store, header = join.start(), log.MemoryStore(), log.begin(q)
    many = tuple((k, 5, None, None) for k in range(10_000))
    sizes = []
    for n in range(40):
        rows = many if n == 0 else ((n, 5, None, None),)
        list(running.step(Feed(((rows,), (rows,)), (((),), ((),))).batches(0)))
        known = {e.id for e in header.segments}
        header = log.commit(running, header, store)
        sizes.append(sum(e.size for e in header.segments if e.id not in known))
    assert len(running.groups.state) == 10_000
    assert max(sizes[1:]) < sizes[0] / 10
    assert sum(e.kind == GoneRows.kind for e in header.segments) <= parts.MOST_PIECES
    assert bag(open_groups(rebuilt(join, header, store))) == bag(open_groups(running))


def test_a_sum_that_does_not_fit_is_an_error() -> None:
    q = query(("k",), (TimeWindow(10), TimeWindow(10)), names=["sum_i"])
    running = GroupedJoin(Join(q.join, PWJoin()), q).start()
    punctuations = ((Punctuation(End(), 5),),)
    feed = Feed(((((1, 5, None, 2**62),),), (((1, 5, None, None),) * 2,)), (punctuations, punctuations))
    with pytest.raises(WatersmeetError, match="`sum_i`, the sum of `i`, is too large for int64 in a group"):
        list(running.step(feed.batches(0)))


def test_definitions_pickle_and_differ_by_their_groups() -> None:
    q = query(("k",), (TimeWindow(10), TimeWindow(10)))
    join = GroupedJoin(Join(q.join, PWJoin()), q)
    assert pickle.loads(pickle.dumps(join)) == join
    other = query(("k", "s"), (TimeWindow(10), TimeWindow(10)))
    assert len({q.digest(), other.digest(), q.join.digest()}) == 3


# ---------------------------------------------------------------- refusals

W = (TimeWindow(10), TimeWindow(10))


def test_groups_that_no_punctuation_ends_are_refused() -> None:
    with pytest.raises(
        QueryError, match=r"no punctuation ends values of k .`a`, `b` would have to close them.*never be final"
    ):
        query(("k",), W).refuse_endless((False, False))
    with pytest.raises(QueryError, match=r'Hint: .*wm.bucket\("a_ts", "1 minute"\).*emit="update"'):
        query(("k",), W, "full").refuse_endless((True, False))  # a row of b may always come out unmatched
    with pytest.raises(QueryError, match="no punctuation ends values of k"):
        query(("k",), (Unbounded(), TimeWindow(10))).refuse_endless((True, False))
    query(("k",), W).refuse_endless((True, False))
    query(("k",), W, "full").refuse_endless((True, True))


def test_groups_by_other_columns_need_a_bucket_or_updates() -> None:
    with pytest.raises(QueryError, match=r"by s, but punctuations end values of the join key \(k\) only"):
        query(("s",), W).refuse_endless((True, True))
    query(("s", Bucket("a_ts", 10, "from")), W).refuse_endless((False, False))
    query(("s",), W, emit="update").refuse_endless((False, False))
    with pytest.raises(QueryError, match="`group_by` is by s, from"):  # a bucket that no window ends
        query(("s", Bucket("a_ts", 10, "from")), (Unbounded(), TimeWindow(10))).refuse_endless((True, True))


@pytest.mark.parametrize(
    ("by", "aggregates", "emit", "message"),
    [
        (("k",), {"n": Aggregate("count")}, "often", '`emit` is "often"'),
        ((), {"n": Aggregate("count")}, "final", "`group_by` names no column"),
        (("k",), {}, "final", "`agg` computes nothing"),
        (("k",), {"k": Aggregate("count")}, "final", "two columns of the groups are called `k`"),
        (("q",), {"n": Aggregate("count")}, "final", "`group_by` names column `q`, which the results"),
        (("k",), {"n": Aggregate("max", "prise")}, "final", "`n` names column `prise`"),
        (("k",), {"n": Aggregate("sum", "s")}, "final", "`n` is the sum of column `s` of type string; only numbers"),
        (
            ("k", Bucket("s", 10, "from")),
            {"n": Aggregate("count")},
            "final",
            "`bucket` is over column `s` of type string",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(by: Any, aggregates: dict[str, Aggregate], emit: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        replace(query(("k",), W), group_by=GroupBy(by, tuple(aggregates.items()), emit))


def test_values_without_an_order_have_no_least() -> None:
    pair = pa.struct([("x", pa.int64())])
    with pytest.raises(ColumnError, match=r"`low` is the min of column `p` of type struct.*no order"):
        Aggregate("min", "p").refuse("low", pair)
    with pytest.raises(ColumnError, match="cannot be compared for equality"):
        Aggregate("count_distinct", "p").refuse("low", pa.map_(pa.string(), pa.int64()))
