"""Reproducible charts: the same results give the same file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

STYLE: Any = {"svg.hashsalt": "watersmeet", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
#: Colours of Watersmeet, of what it is compared with, and of the background.
OURS, OTHER, GREY = "#c2410c", "#1e3a5f", "#9ca3af"


@contextmanager
def chart(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure of this size in inches, saved as SVG at the end."""
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
