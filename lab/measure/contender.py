"""Operators of the engine that are measured beside each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Contender:
    """An algorithm with its options, with or without the windows and the punctuations of the streams."""

    algorithm: str
    options: dict[str, Any] = field(default_factory=dict)
    windows: bool = True
    punctuations: bool = True
