"""`watersmeet state`: what a checkpoint holds."""

from __future__ import annotations

from pathlib import Path

from watersmeet.cli.failures import MissingError


def show(checkpoint: Path) -> None:
    """Print the summary of a checkpoint."""
    raise MissingError(f"the state of {checkpoint} cannot be read by this version.")
