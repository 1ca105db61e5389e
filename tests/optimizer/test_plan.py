"""Plans: what is chosen, why, what it was chosen before, and that it is always the same."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lab.joins.cost_settings import figures, query
from watersmeet.cost.machine import Machine
from watersmeet.cost.measured_parameters import assumed, measured, row_bytes
from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.work import Constants
from watersmeet.errors import QueryError
from watersmeet.joins import REGISTRY
from watersmeet.model.punctuations import Clustered, Unique
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow
from watersmeet.optimizer.plan import JoinPlan
from watersmeet.optimizer.planner import RULES, make_plan
from watersmeet.state.statistics.stream import SECOND, StreamStatistics


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans priced alike, whatever the joins take on a machine."""
    monkeypatch.setattr("watersmeet.cost.machine.DEFAULT", Machine())


def why(plan: JoinPlan) -> dict[str, str]:
    return {a.algorithm: a.why for a in plan.rejected}


def test_windows_alone_are_joined_by_hash() -> None:
    q = query(10, 5)
    plan = make_plan(q, figures(q), cores=2)
    assert (plan.algorithm, plan.forced, plan.indexes, plan.shards) == ("hash", False, ("hash", "hash"), 2)
    assert plan.tuples == (10_000, 5_000)
    assert plan.bytes == 15_000 * (40 + 24) + (2_500 + 1_250) * 48, "tuples, and keys"
    cost = COST_MODELS["hash"](figures(q))
    assert plan.cpu == Constants().price(cost.work) + Constants().batch, "a batch a second"
    assert plan.warnings == ()
    assert why(plan)["pwjoin"] == "costs the same"
    assert why(plan)["nested_loop"] == "it takes tuples one by one, and here they come in batches"
    assert why(plan)["pjoin"] == "it knows no windows"
    at_once = make_plan(q, replace(figures(q), interval=0.0))
    assert at_once.algorithm == "hash"
    assert re.fullmatch(r"\d+\.\d\d times the CPU", why(at_once)["nested_loop"])
    assert all(a.cpu and a.bytes for a in plan.rejected if a.algorithm != "wo_join")
    kinds = {name: REGISTRY[name].traits for name in COST_MODELS}
    able = {name for name, traits in kinds.items() if not traits.theta and not traits.asof}
    assert {plan.algorithm, *why(plan)} == able, "all that compute it"


def test_punctuations_make_it_pwjoin() -> None:
    q = query(10, 10, a=(Unique(),), b=(Clustered(),))
    plan = make_plan(q, figures(q))
    assert plan.algorithm == "pwjoin"
    assert plan.bytes < make_plan(query(10, 10), figures(query(10, 10))).bytes
    assert why(plan)["hash"] == "it does not use the punctuations of a and b"
    measured_only = figures(query(10, 10), b={"punctuation_rate": 3.0})
    assert make_plan(query(10, 10), measured_only).algorithm == "pwjoin"


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_only_pwjoin_knows_who_is_unmatched(how: str) -> None:
    q = query(10, 10, how=how)
    plan = make_plan(q, figures(q))
    assert plan.algorithm == "pwjoin"
    assert why(plan)["hash"] == f"it computes inner joins, not {how} ones"


def test_without_windows_someone_must_close_keys() -> None:
    found = query(None, None, a=(Unique(),), b=(Unique(),))
    plan = make_plan(found, figures(found))
    assert (plan.algorithm, plan.warnings) == ("pwjoin", ())
    silent = query(10, None)
    plan = make_plan(silent, figures(silent))
    grows = "its state grows without bound (estimated at 1 hour)"
    assert plan.warnings == (f"b has no window and a never closes keys, so {grows}",)
    deaf = make_plan(found, figures(found), algorithm="hash").warnings
    assert deaf == tuple(f"{name} has no window and hash ignores punctuations, so {grows}" for name in "ab")
    three = make_plan(three_unbounded := query(None, None, None), figures(three_unbounded)).warnings
    assert three[0] == f"a has no window and b and c do not all close keys, so {grows}"
    assert plan.tuples[1] == 3600 * 1000
    assert why(plan)["hash"] == "without a window it would keep b for ever"


def test_a_join_that_goes_by_the_keys_does_not_grow() -> None:
    q = query(None, None)
    assert make_plan(q, figures(q), algorithm="wo_join").warnings == ()
    assert len(make_plan(q, figures(q), algorithm="general_lazy").warnings) >= 2


def test_what_grows_and_was_counted_is_reported_as_counted() -> None:
    q = query(10, None)
    plan = make_plan(q, figures(q, b={"tuples": 700.0}))
    assert plan.tuples[1] == 700
    assert plan.warnings == (
        "b has no window and a never closes keys, so its state grows without bound (estimated now)",
    )


def test_memory_decides_before_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if PWJoin took half the memory and twice the work."""
    q = query(10, 10)
    plain = COST_MODELS["pwjoin"](figures(q))
    thrifty = replace(plain, work=plain.work.times(2), bytes=plain.bytes / 2)
    monkeypatch.setitem(COST_MODELS, "pwjoin", lambda p: thrifty)
    assert make_plan(q, figures(q)).algorithm == "hash"
    plan = make_plan(q, figures(q), memory=1e6)
    assert plan.algorithm == "pwjoin"
    assert why(plan)["hash"] == "needs about 1.5 MB, memory is 1.0 MB"
    assert dict(plan.reasons)["choose_join"] == "pwjoin: the cheapest that fits in memory"


def test_if_nothing_fits_the_smallest_is_taken_with_a_caution() -> None:
    q = query(10, 10)
    plan = make_plan(q, figures(q), memory=1e6)
    assert plan.algorithm == "hash"
    assert plan.warnings == ("needs about 1.5 MB, memory is 1.0 MB",)


def test_an_algorithm_requested_is_taken_and_shown_as_such() -> None:
    q = query(10, 10)
    plan = make_plan(q, figures(q), algorithm="nested_loop")
    assert (plan.algorithm, plan.forced, plan.indexes) == ("nested_loop", True, ("scan", "scan"))
    assert dict(plan.reasons)["choose_join"] == "nested_loop: chosen by name"
    assert float(why(plan)["hash"].split()[0]) < 0.5
    with pytest.raises(QueryError, match='`algorithm` is "sort"; known are hash'):
        make_plan(q, algorithm="sort")


@pytest.mark.parametrize(
    ("rates", "buckets", "chosen"),
    [((1000, 1000), 10, "probe"), ((1000, 10), 10, "probe"), ((1000, 1), 10, "probe_insert")],
)
def test_buckets_have_an_invalidation_strategy(rates: tuple[float, float], buckets: float, chosen: str) -> None:
    """`probe` looks into one bucket per arrival, `probe_insert` into two; where rates differ, `probe` lets pile up."""
    q = query(10, 10)
    p = figures(q, **{n: {"rate": r, "buckets": buckets, "distinct": 500.0} for n, r in zip("ab", rates, strict=True)})
    assert make_plan(q, p, algorithm="windowed_hash").invalidation == chosen
    assert make_plan(q, p).invalidation is None


def test_small_windows_are_scanned() -> None:
    q = query(10, 10)
    p = figures(q, a={"rate": 1.0, "distinct": 5.0})
    plan = make_plan(q, p, cores=4)
    assert dict(plan.reasons)["index_windows"] == "a: so few tuples that a scan is cheaper"
    assert plan.indexes == ("hash", "hash")  # but the hash join has indexes only


def test_no_more_shards_than_keys_and_a_word_if_the_machine_is_too_small() -> None:
    q = query(10, 10)
    p = figures(q, a={"distinct": 2.0, "rate": 1e5}, b={"distinct": 3.0, "rate": 1e5})
    plan = make_plan(q, p, cores=8)
    assert plan.shards == 3
    assert len(plan.warnings) == 1
    assert re.fullmatch(r"needs about [\d.]+ cores, and can use 3", plan.warnings[0])


def test_a_hot_key_and_a_silent_stream_are_named() -> None:
    q = query(10, 10)
    p = figures(q, a={"hottest": 0.3}, b={"rate": 0.0, "tuples": 0.0})
    assert make_plan(q, p, cores=4).warnings == (
        "30% of a have one key, and so one of 4 shards",
        "b is silent: the others are kept until it goes on",
    )
    assert make_plan(q, figures(q, a={"hottest": 0.3}), cores=2).warnings == ()


def test_each_rule_says_what_it_decided() -> None:
    plan = make_plan(query(10, 10), figures(query(10, 10)), cores=2)
    found = [rule for rule, _ in plan.reasons]
    assert found == [rule.__name__ for rule in RULES if rule.__name__ not in ("choose_expiry", "warn")]
    assert dict(plan.reasons)["divide"] == "2 shards: one per core"


def test_the_same_plan_for_the_same_input() -> None:
    q = query(10, 7, a=(Unique(),))
    first, again = (make_plan(q, figures(q), memory=5e5, cores=2) for _ in range(2))
    assert first == again
    assert json.loads(json.dumps(first.to_dict()))["predicted"]["bytes"] == first.bytes


def test_a_plan_without_measurements_is_marked() -> None:
    plan = make_plan(query(10, 10))
    assert plan.warnings == ("nothing is measured yet: rates and keys are assumed",)
    assert plan.algorithm == "hash"


# ------------------------------------------------------------ more than two streams


def test_several_streams_have_an_order_and_are_evaluated_by_the_batch() -> None:
    q = query(10, 10, 10)
    p = figures(q, a={"rate": 5000.0}, c={"rate": 100.0})
    plan = make_plan(q, p)
    assert plan.algorithm == "general_lazy"
    assert plan.orders == ((2, 1), (2, 0), (1, 0))
    assert dict(plan.reasons)["order_streams"].startswith("c, b, a; next ")
    assert why(plan)["eager"] == "it takes tuples one by one, and here they come in batches"
    assert why(plan)["hash"] == "it joins two streams, not 3"
    assert [a.cpu for a in plan.rejected if a.algorithm == "hash"] == [None]


def test_a_small_window_makes_it_hybrid() -> None:
    q = query(10, 10, 10)
    p = replace(figures(q, b={"rate": 2.0, "distinct": 10.0}), interval=0.0)
    plan = make_plan(q, p)
    assert (plan.algorithm, plan.indexes) == ("hybrid", ("hash", "scan", "hash"))
    assert why(plan)["lazy"] == why(plan)["eager"]
    assert why(plan)["general_lazy"] == "it takes tuples by the batch, and here they come one by one"
    assert make_plan(q, replace(p, streams=figures(q).streams)).algorithm == "eager"


def test_the_naive_join_is_priced_in_the_best_order_for_all() -> None:
    q = query(10, 10, 10)
    p = replace(figures(q, a={"rate": 5000.0}, c={"rate": 100.0}), interval=0.0)
    naive = next(a for a in make_plan(q, p).rejected if a.algorithm == "naive_multiway")
    assert naive.cpu == COST_MODELS["naive_multiway"](replace(p, orders=((2, 1, 0),) * 3)).cpu(Constants())


def test_joins_that_take_tuples_one_by_one_are_for_who_allows_them() -> None:
    """Few tuples over windows as small: what a batch costs as such decides."""
    q = query(10, 10)
    p = figures(q, a={"rate": 2.0, "distinct": 10.0}, b={"rate": 2.0, "distinct": 10.0})
    quick = Machine(families={"hash": Constants(batch=5e6), "nested_loop": Constants(batch=1e5)})
    assert make_plan(q, p, machine=quick).algorithm == "hash"
    allowed = make_plan(q, p, machine=quick, one_by_one=True)
    assert allowed.algorithm == "nested_loop"
    assert "general_lazy" not in {a.algorithm for a in allowed.rejected if "joins of their own" in a.why}


def test_options_and_constraints_that_a_join_must_know() -> None:
    q = query(10, 10)
    plan = make_plan(q, figures(q), options=("every",))
    assert plan.algorithm == "general_lazy"
    assert why(plan)["hash"] == "it has no option `every`"
    assert make_plan(q, figures(q), punctuated=["b"]).algorithm == "pwjoin"
    rows = replace(q, streams=(q.streams[0], replace(q.streams[1], window=RowsWindow(5))))
    assert make_plan(rows).algorithm == "general_lazy"
    assert why(make_plan(rows))["pwjoin"] == "it knows windows of time alone"


def test_two_streams_keep_to_the_joins_of_two() -> None:
    q = query(10, 10)
    assert why(make_plan(q, figures(q)))["general_lazy"] == "two streams have joins of their own"


def test_a_stream_that_all_others_close_is_stored_in_part() -> None:
    q = query(10, 10, 10)
    punctuations = {"punctuation_rate": 1000.0}
    plan = make_plan(q, figures(q, b=punctuations, c=punctuations))
    assert plan.tuples[0] == pytest.approx(1000 * 2500 / 1000 * (1 - math.exp(-1000 * 10 / 2500)))
    assert plan.tuples[1:] == (10_000, 10_000)


def test_a_query_that_nothing_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watersmeet.optimizer.rules.REGISTRY", {"hash": REGISTRY["hash"]})
    message = "no algorithm can run this inner join of 3 streams.\nHint: hash: it joins two streams, not 3"
    with pytest.raises(QueryError, match=re.escape(message)):
        make_plan(query(10, 10, 10))


# ------------------------------------------------------------ figures


def test_measured_figures() -> None:
    q = query(10, 10)
    streams = [StreamStatistics(10 * SECOND) for _ in q.streams]
    times = np.arange(0, 40 * SECOND, SECOND // 50)
    streams[0].observe(times, times // SECOND % 7, np.arange(times.size), 24 * times.size, closed=80)
    p = measured(q, streams)
    a, b = p.streams
    assert a.rate == pytest.approx(50, rel=0.05)
    assert a.window_tuples == pytest.approx(500, rel=0.1)
    assert a.distinct == pytest.approx(7, rel=0.1)
    assert (a.punctuation_rate, a.row_bytes) == (pytest.approx(2, rel=0.01), 40 + 24)
    assert a.hottest == pytest.approx(1 / 7, abs=0.05)
    assert (b.rate, b.window_tuples) == (0, 0)
    assert p.elapsed == pytest.approx(40, rel=0.01)
    assert make_plan(q, p).algorithm in REGISTRY


def test_a_window_of_rows_holds_no_more_than_those() -> None:
    q = query(10, 10)
    a, b = q.streams
    q = JoinQuery((replace(a, window=RowsWindow(100)), replace(b, window=RowsWindow(3, per_key=True))))
    streams = [StreamStatistics(s.window.reach) for s in q.streams]
    times = np.arange(0, 40 * SECOND, SECOND // 50)
    for one in streams:
        one.observe(times, times // SECOND % 7, np.arange(times.size), 24 * times.size)
    whole, per_key = measured(q, streams).streams
    assert whole.window_tuples == 100
    assert per_key.window_tuples == pytest.approx(3 * 7, rel=0.1)
    one = assumed(q).streams[0]
    assert (one.window_tuples, one.distinct) == (100, 100)
    short = [StreamStatistics(s.window.reach) for s in q.streams]
    short[0].observe(times, times, np.arange(5), 100)
    assert measured(q, short).streams[0].window_tuples == 5


def test_nothing_measured_at_all_has_no_end() -> None:
    q = query(10, 10)
    assert math.isinf(measured(q, [StreamStatistics(10 * SECOND) for _ in q.streams]).elapsed)


def test_bytes_of_a_row_by_its_columns() -> None:
    schema = pa.schema([("k", pa.int64()), ("t", pa.timestamp("us")), ("s", pa.string()), ("f", pa.bool_())])
    assert row_bytes(schema) == 40 + 8 + 8 + 32 + 1 / 8
