"""Scripts of several streams, and the operators that join them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lab.joins.scripts import Script, scripts
from watersmeet.joins import Join, plan
from watersmeet.model.queries import JoinQuery

ALGORITHMS: dict[str, tuple[str, dict[str, Any]]] = {
    "general_lazy": ("general_lazy", {}),
    "general_lazy-scan": ("general_lazy", {"index": "scan"}),
    "naive_multiway": ("naive_multiway", {}),
    "naive_multiway-scan": ("naive_multiway", {"index": "scan"}),
    "eager": ("eager", {}),
    "eager-scan": ("eager", {"index": "scan"}),
    "lazy": ("lazy", {}),
    "lazy-scan": ("lazy", {"index": "scan"}),
    "hybrid": ("hybrid", {"index": ("b",)}),
    "hybrid-two": ("hybrid", {"index": ("a", "b")}),
}
#: Intervals of results: immediate, or when the watermark reaches the next multiple.
EVERY = [None, 1, 4, 10]
inner = st.just("inner")


def operator(name: str, query: JoinQuery, every: int | None = None) -> Join[Any]:
    algorithm, options = ALGORITHMS[name]
    return plan(query, algorithm, **options, **({"every": every} if every is not None else {}))


def intervals(name: str) -> st.SearchStrategy[int | None]:
    """The intervals of results that the operator supports."""
    return st.sampled_from(EVERY if ALGORITHMS[name][0] in ("lazy", "general_lazy", "hybrid") else [None])


def of(streams: int, **more: Any) -> st.SearchStrategy[Script]:
    """Scripts of so many streams; the more streams, the fewer tuples: the reference looks at every combination."""
    rows, batches = {2: (5, 5), 3: (4, 5), 4: (3, 4)}.get(streams, (2, 4))
    return scripts(how=inner, streams=streams, **{"rows": rows, "batches": batches} | more)
