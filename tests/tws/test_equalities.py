"""What `on` says, and the operators that it takes."""

from __future__ import annotations

import pytest

from watersmeet.errors import QueryError
from watersmeet.spark.planning.equalities import Step, read, steps

pytestmark = pytest.mark.tws

COLUMNS = {"a": ["x", "p"], "b": ["x", "y"], "c": ["x", "y", "z"], "d": ["y", "z"]}


def planned(on: str | list[str], names: str = "abcd") -> list[Step]:
    return steps(names, read(on, {n: COLUMNS[n] for n in names})[0])


def test_names_are_keys_of_all_streams() -> None:
    assert planned("x", "abc") == [Step(("b", "c"), (("x",),) * 3)]
    assert planned(["x", "y"], "bc") == [Step(("c",), (("x", "y"),) * 2)]


def test_equal_to_the_same_is_equal() -> None:
    one = Step(("b", "c"), (("p",), ("y",), ("z",)))
    assert planned(["a.p = b.y", "c.z = b.y"], "abc") == [one]
    assert planned("`a`.`p`=b.y and c . z == a.p", "abc") == [one]
    late = ["a.x = b.x", "c.x = d.y", "b.x = c.x"]
    assert planned(late) == [Step(("b", "c", "d"), (("x",), ("x",), ("x",), ("y",)))]


def test_different_attributes_take_further_operators() -> None:
    assert planned(["a.x = b.x", "b.y = c.y", "c.z = d.z"]) == [
        Step(("b",), (("x",), ("x",))),
        Step(("c",), (("y",), ("y",))),
        Step(("d",), (("z",), ("z",))),
    ]
    assert planned(["a.x = b.x", "b.y = c.y", "b.y = d.y"]) == [
        Step(("b",), (("x",), ("x",))),
        Step(("c", "d"), (("y",), ("y",), ("y",))),
    ]


def test_a_key_is_called_as_where_it_came_from_first() -> None:
    assert planned(["a.p = b.x", "c.x = b.x", "c.y = d.y"]) == [
        Step(("b", "c"), (("p",), ("x",), ("x",))),
        Step(("d",), (("y",), ("y",))),
    ]


def test_no_equality_is_left_out() -> None:
    """b and c meet a on x, but each other on y, too: c comes later, on both."""
    assert planned(["a.x = b.x", "b.x = c.x", "b.y = c.y"], "abc") == [
        Step(("b",), (("x",), ("x",))),
        Step(("c",), (("x", "y"), ("x", "y"))),
    ]


@pytest.mark.parametrize(
    ("on", "text"),
    [
        ([], "`on` names no column"),
        ([3], "`on` holds an int"),
        ("a.x = b.x AND b.x", "`b.x`, which is no equality"),
        ("a.x = q.x", "no stream is called `q`"),
        ("a.x = b.x", "no equality between `a`, `b` and `c`, `d`"),
        (["a.x = b.x", "b.x = a.p"], "`p` and `x` of stream `a` equal"),
    ],
)
def test_what_is_refused(on: list[str], text: str) -> None:
    with pytest.raises(QueryError, match=text):
        planned(on)
