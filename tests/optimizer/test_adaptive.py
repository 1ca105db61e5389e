"""Orders that follow the figures, and do not flap."""

from __future__ import annotations

import json
from dataclasses import replace

from lab.joins.cost_settings import setting
from watersmeet.cost.multiway import one_order
from watersmeet.cost.parameters import Parameters
from watersmeet.optimizer.adaptive import Adaptive, Change, format_orders
from watersmeet.optimizer.order import best_order, cost_of


def with_rates(*rates: float) -> Parameters:
    return setting(rates, (10,) * len(rates), (20,) * len(rates))


def test_the_first_figures_choose_the_order() -> None:
    running = Adaptive().start()
    assert running.decide(0, with_rates(0, 0, 0)) == one_order((0, 1, 2))
    assert running.change is None
    assert running.metadata() == {}
    assert running.decide(1, with_rates(40, 10, 3)) == one_order((2, 1, 0))
    assert running.change is not None
    assert running.change.reason.startswith("first statistics: c, b, a costs")


def test_a_first_order_that_is_good_enough_is_no_change() -> None:
    running = Adaptive().start()
    assert running.decide(0, with_rates(3, 10, 40)) == one_order((0, 1, 2))
    assert running.change is None
    assert running.metadata()["chosen_for"] == [[3, 20, 30], [10, 20, 100], [40, 20, 400]]


def test_rates_that_swap_change_the_order_and_say_why() -> None:
    running = Adaptive().start()
    running.decide(0, with_rates(3, 10, 40))
    assert running.decide(1, with_rates(3.1, 10, 39)) == one_order((0, 1, 2))
    assert running.change is None
    now = with_rates(40, 10, 3)
    assert running.decide(2, now) == one_order((2, 1, 0))
    cost, was = best_order(now).cost, cost_of(now, one_order((0, 1, 2)))
    reason = f"a now 40/s, was 3/s: c, b, a costs {cost:,.0f}, present order {was:,.0f}"
    change = Change(2, one_order((0, 1, 2)), one_order((2, 1, 0)), was, cost, reason)
    assert running.change == change
    assert json.loads(json.dumps(change.as_dict()))["after"] == [[2, 1], [2, 0], [1, 0]]
    running.decide(3, now)
    assert running.change is None


def test_the_figure_that_moved_most_is_named() -> None:
    p = with_rates(3, 10, 40)
    running = Adaptive().start()
    running.decide(0, p)
    a, b, c = p.streams
    running.decide(1, replace(p, streams=(replace(a, tuples=3000.0), b, replace(c, distinct=400.0))))
    assert running.change is not None
    assert running.change.reason.startswith("a now 3,000 tuples in its window, was 30 tuples in its window: ")


def test_figures_that_waver_do_not_turn_the_order_to_and_fro() -> None:
    """Two rates that pass each other by a twentieth, fifty times."""
    running = Adaptive(tolerance=0.1).start()
    nervous = Adaptive(tolerance=0.0).start()
    changes = [0, 0]
    for batch in range(50):
        p = with_rates(10, 10.5, 40) if batch % 2 else with_rates(10.5, 10, 40)
        for k, who in enumerate((running, nervous)):
            who.decide(batch, p)
            changes[k] += who.change is not None
    assert changes[0] == 0
    assert changes[1] >= 49


def test_cost_stays_within_the_tolerance_of_the_best() -> None:
    running = Adaptive(tolerance=0.1).start()
    for batch in range(40):
        p = with_rates(1 + batch, 20, 41 - batch, 5)
        orders = running.decide(batch, p)
        assert cost_of(p, orders) <= 1.1 * best_order(p).cost


def test_a_restart_goes_on_where_it_was() -> None:
    running = Adaptive().start()
    running.decide(0, with_rates(3, 10, 40))
    again = Adaptive().start(json.loads(json.dumps(running.metadata())))
    assert again.orders == running.orders
    for who in (running, again):
        who.decide(1, with_rates(40, 10, 3))
    assert again.change == running.change
    assert again.metadata() == running.metadata()


def test_silence_keeps_the_order() -> None:
    running = Adaptive().start()
    orders = running.decide(0, with_rates(40, 10, 3))
    assert running.decide(1, with_rates(0, 0, 0)) == orders


def test_orders_in_words() -> None:
    p = with_rates(1, 1, 1, 1)
    assert format_orders(p, one_order((2, 0, 3, 1))) == "c, a, d, b"
    assert format_orders(with_rates(1, 1, 1), ((2, 1), (2, 0), (0, 1))) == "c, a, b"
    assert format_orders(with_rates(1, 1, 1), ((1, 2), (2, 0), (0, 1))) == "a: b, c; b: c, a; c: a, b"
