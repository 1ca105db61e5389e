"""The two settings with published costs, and random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from watersmeet.cost.measured_parameters import assumed
from watersmeet.cost.parameters import PER_KEY, SCAN, Parameters, Statistics
from watersmeet.model.queries import JoinQuery
from watersmeet.workload.punctuated_streams import stream_spec


def setting(
    rates: Sequence[float], windows: Sequence[float], distinct: Sequence[float], buckets: float = SCAN
) -> Parameters:
    rows = zip("abcdefgh", rates, windows, distinct, strict=False)
    return Parameters(tuple(Statistics(n, r, t, v, buckets=buckets) for n, r, t, v in rows))


ONE_FAST = setting((10, 1, 1, 3), (100, 100, 200, 100), (500, 50, 40, 5))
TWO_FAST = setting((11, 10, 1, 1), (100, 100, 100, 100), (200, 100, 65, 20))


@st.composite
def settings_of(draw: st.DrawFn, least: int = 2, most: int = 5) -> Parameters:
    """Streams with rates, windows and keys of a few orders of magnitude, with indexes or without."""
    n = draw(st.integers(least, most))
    return Parameters(
        tuple(
            Statistics(
                "abcdefgh"[i],
                rate=draw(st.integers(1, 1000)) / 10,
                window=draw(st.integers(1, 300)),
                distinct=draw(st.integers(1, 500)),
                buckets=draw(st.sampled_from([SCAN, 10.0, PER_KEY])),
            )
            for i in range(n)
        )
    )


def query(*windows: float | None, how: str = "inner", **constraints: Any) -> JoinQuery:
    specs = [stream_spec(name, window) for name, window in zip("abcd", windows, strict=False)]
    return JoinQuery(tuple(replace(s, constraints=constraints.get(s.name, ())) for s in specs), how)


def figures(q: JoinQuery, **changes: dict[str, float]) -> Parameters:
    p = assumed(q)
    return replace(p, streams=tuple(replace(s, **changes.get(s.name, {})) for s in p.streams))
