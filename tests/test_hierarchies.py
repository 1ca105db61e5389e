"""Joins are composed: a class of `watersmeet.joins` is at most two steps below another class of that room."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module

from watersmeet import joins
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.multiway import RunningMultiway

#: Steps from a class up to the last one of the room. Running joins take one; options of several streams are shared.
DEEPEST, DEEPEST_RUNNING = 2, 1
ROOM = joins.__name__


def of_the_room(kind: type) -> bool:
    return kind.__module__ == ROOM or kind.__module__.startswith(f"{ROOM}.")


def depth(kind: type) -> int:
    """How many classes of the room stand above each other, above this one."""
    return max((1 + depth(base) for base in kind.__bases__ if of_the_room(base)), default=0)


def classes() -> Iterator[type]:
    for found in pkgutil.walk_packages(joins.__path__, f"{ROOM}."):
        for _, kind in inspect.getmembers(import_module(found.name), inspect.isclass):
            if kind.__module__ == found.name:
                yield kind


def test_no_class_is_far_below_another() -> None:
    found = list(classes())
    assert RunningJoin in found, "all modules are walked"
    assert [kind for kind in found if depth(kind) > DEEPEST] == []
    assert [kind for kind in found if issubclass(kind, RunningJoin) and depth(kind) > DEEPEST_RUNNING] == []


def test_no_class_inherits_from_two_of_the_room() -> None:
    assert [kind for kind in classes() if sum(map(of_the_room, kind.__bases__)) > 1] == []


def test_every_step_down_is_counted() -> None:
    below = type("Below", (RunningMultiway,), {"__module__": ROOM})
    assert [depth(RunningJoin), depth(RunningMultiway), depth(below)] == [0, 1, 2]
