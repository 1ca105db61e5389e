"""Bounds that follow from predicates."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.model.linear_bounds import bounds_of, with_implied
from watersmeet.query.predicate_parser import parse

STREAMS = (("x", "u", "f", "s"), ("y", "v", "g", "t"))
SCHEMA = pa.schema(
    [(c, pa.int64()) for c in "xuyv"] + [(c, pa.float64()) for c in "fg"] + [(c, pa.string()) for c in "st"]
)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("abs(x - y) <= 5", ["x <= y + 5", "x >= y - 5", "y <= x + 5", "y >= x - 5"]),
        ("x < y", ["x < y", "y > x"]),
        ("x <= y AND y < u", ["u > y", "x <= y", "y < u", "y >= x"]),
        ("2 * x + 1 >= y", ["x >= 0.5 * y - 0.5", "y <= 2 * x + 1"]),
        ("y BETWEEN x - 3 AND x", ["x <= y + 3", "x >= y", "y <= x", "y >= x - 3"]),
        ("f = g", ["f <= g", "f >= g", "g <= f", "g >= f"]),
        ("x + u < y - v", ["u + x < y + -1 * v", "-1 * v + y > u + x"]),
        ("NOT x < y", []),
        ("x < y OR x > 5", []),
        ("x <> y", []),
        ("x * y < 5", []),
        ("s < t", []),
        ("x < u AND y > 3", []),
        ("abs(x - y) >= 5", []),
    ],
)
def test_the_bounds_of_a_predicate(where: str, found: list[str]) -> None:
    bounds = bounds_of(parse(where, SCHEMA), STREAMS)
    if "u" in where and "v" in where:
        assert len(bounds) == 2
        assert {b.attribute.columns[0] for b in bounds} == {"u", "v"}
        return
    assert sorted(map(text, bounds)) == sorted(found)


def text(bound) -> str:  # type: ignore[no-untyped-def]  # of any bound
    sign = ("<" if bound.upper else ">") + ("" if bound.strict else "=")
    terms = " + ".join(c if k == 1 else f"{float(k):g} * {c}" for c, k in bound.terms)
    constant = float(bound.constant)
    end = "" if not constant else f" {'+' if constant > 0 else '-'} {abs(constant):g}"
    return f"{bound.attribute} {sign} {terms}{end}"


def test_without_a_predicate_there_are_none() -> None:
    assert bounds_of(None, STREAMS) == ()


THREE = (("x", "u", "f"), ("y", "v", "g"), ("z", "h"))
WIDER = pa.schema([(c, pa.int64()) for c in "xuyvz"] + [(c, pa.float64()) for c in "fgh"])


@pytest.mark.parametrize(
    ("where", "implied"),
    [
        ("y >= x - 2 AND z > y", ["z >= x - 1", "x <= z + 1"]),
        ("x < y AND y < z", ["z >= x + 2", "x <= z - 2"]),
        ("abs(x - y) <= 2 AND y = z", ["z >= x - 2", "z <= x + 2", "x >= z - 2", "x <= z + 2"]),
        ("x + y <= 5 AND y >= z", ["z <= -1 * x + 5", "x <= -1 * z + 5"]),
        ("x < y AND x + 3 < y AND y <= z", ["z >= x + 4", "x <= z - 4"]),  # the tightest
        ("y >= 2 * x AND z >= y", ["z >= 2 * x"]),  # x <= 0.5 * z rounds
        ("x < y AND z < y", []),  # ends of different sides
        ("x < y AND v < z", []),  # different columns
        ("f < g AND g < h", []),  # not whole numbers
        ("x < y AND y + 2000000000000 < z", []),  # a constant with which sums may round
    ],
)
def test_chains_of_bounds_imply_others(where: str, implied: list[str]) -> None:
    bounds = bounds_of(parse(where, WIDER), THREE)
    found = with_implied(bounds, 3)
    assert found[: len(bounds)] == bounds
    assert sorted(map(text, found[len(bounds) :])) == sorted(implied)


def test_chains_are_as_long_as_there_are_streams() -> None:
    streams = [("x",), ("y",), ("z",), ("w",)]
    schema = pa.schema([(c, pa.int64()) for c in "xyzw"])
    found = with_implied(bounds_of(parse("x < y AND y < z AND z < w", schema), streams), 4)
    assert "w >= x + 3" in map(text, found)
    assert not any(b.attribute.stream == b.by for b in found)
