"""`watersmeet explain`."""

from __future__ import annotations

from pathlib import Path

from watersmeet.cli.failures import MissingError


def explain(asked: str, *, as_json: bool, svg: Path | None, master: str | None) -> None:
    """Print what a pipeline or a query would do."""
    raise MissingError(f"{asked} cannot be read by this version.")
