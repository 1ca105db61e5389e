"""The statistics gatherer: samples at multiples of its step, sums of everything, of joins that really run."""

import pyarrow as pa
import pytest

from experiments.gatherer import Gatherer, follow
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.counters import Counters
from watersmeet.model.queries import JoinQuery
from watersmeet.workload.punctuated_streams import Punctuated, stream_spec

SECOND = 1_000_000


def fed(step, ends, stored=(3, 4)):
    gatherer = Gatherer(step)
    for number, end in enumerate(ends):
        gatherer.after(end, Counters(rows_in=10, results=number), stored, 0.5)
    return gatherer


def test_fine_batches_are_sampled_at_every_step():
    gathered = fed(2 * SECOND, [n * SECOND // 2 for n in range(1, 13)])
    assert gathered.at == [2.0, 4.0, 6.0]
    assert gathered.totals["rows_in"] == [40, 80, 120]
    assert gathered.totals["results"] == [0 + 1 + 2 + 3, sum(range(8)), sum(range(12))]
    assert gathered.cpu == [2.0, 4.0, 6.0]
    assert gathered.stored == [[3, 3, 3], [4, 4, 4]]
    assert gathered.tuples == [7, 7, 7]


def test_coarse_batches_are_sampled_once_each():
    gathered = fed(SECOND, [5 * SECOND, 10 * SECOND])
    assert gathered.at == [5.0, 10.0]
    assert gathered.totals["rows_in"] == [10, 20]


def test_a_batch_that_ends_between_steps_is_filed_under_the_last():
    assert fed(2 * SECOND, [1_900_000, 2_500_000, 3_900_000, 4_100_000]).at == [2.0, 4.0]


def test_what_comes_after_the_last_sample_is_in_the_sums():
    gathered = fed(2 * SECOND, [SECOND, 2 * SECOND, 3 * SECOND])
    assert gathered.totals["rows_in"] == [20]
    assert gathered.sums["rows_in"] == 30
    assert gathered.seconds == 1.5


def test_nothing_gathered():
    gathered = Gatherer(SECOND)
    assert gathered.tuples == []
    assert gathered.sums["results"] == 0


@pytest.mark.parametrize(("kind", "punctuations"), [(HashJoin, False), (PWJoin, True)])
def test_it_follows_a_join(kind, punctuations):
    specs = [stream_spec(name, 2.0) for name in "ab"]
    join = kind().start(JoinQuery(tuple(specs)))
    made = [Punctuated("punct-asc-20-40", seed, values=60).take(1_000) for seed in (1, 2)]
    cuts = [m.batches(s, 0.5, punctuations=punctuations) for m, s in zip(made, specs, strict=True)]
    seen: list[tuple[int, pa.Table]] = []
    steps = list(zip(*cuts, strict=False))
    gathered = follow(join, steps, batch=0.5, sample=1.0, see=lambda n, table: seen.append((n, table)))
    assert len(gathered.at) == len(steps) // 2
    assert gathered.sums["results"] == sum(table.num_rows for _, table in seen) > 100
    assert gathered.sums["rows_in"] == sum(b.rows.num_rows for step in steps for b in step)
    if len(steps) % 2 == 0:
        assert [s[-1] for s in gathered.stored] == [len(s) for s in join.streams]
    assert max(n for n, _ in seen) < len(steps)
    assert gathered.totals["results"] == sorted(gathered.totals["results"])
    assert (gathered.sums["propagated"] > 0) == punctuations
    assert gathered.seconds > 0
