"""What work takes on this machine: constants that were fitted here, else defaults."""

from __future__ import annotations

import json
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from watersmeet.cost.work import Constants

log = logging.getLogger("watersmeet")

#: Where the constants are kept instead of the user's cache folder; empty: nowhere, the defaults hold.
VARIABLE = "WATERSMEET_CONSTANTS"

#: Joins that run the same loops, and so have the same constants.
FAMILIES: dict[str, tuple[str, ...]] = {
    "hash": ("hash", "pwjoin", "pjoin"),
    "general_lazy": ("general_lazy", "wo_join"),
    "eager": ("eager", "lazy", "hybrid", "naive_multiway"),
    "nested_loop": ("nested_loop", "windowed_hash"),
}


@dataclass(frozen=True)
class Machine:
    """Constants of each family of joins (`FAMILIES`); one that was not fitted has those of `other`."""

    other: Constants = field(default_factory=Constants)
    families: Mapping[str, Constants] = field(default_factory=dict)
    fitted: bool = False

    def of(self, algorithm: str) -> Constants:
        """The constants of a join."""
        family = next((name for name, joins in FAMILIES.items() if algorithm in joins), "")
        return self.families.get(family, self.other)

    def as_dict(self) -> dict[str, Any]:
        return {name: constants.as_dict() for name, constants in self.families.items()}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Machine:
        return cls(families={name: Constants.of(c) for name, c in known.items() if name in FAMILIES}, fitted=True)


#: Rounded from a fit (`cost.calibration`) on a quiet machine. What an event costs may stand at one that comes with it.
DEFAULT = Machine(
    families={
        "hash": Constants(190, 190, 4, 1, 4, 0, 1, 0, 0, 260, 0, 0, 1.3e6),
        "general_lazy": Constants(0, 310, 0, 1, 4, 0, 1, 33, 440, 430, 0, 51_000, 1.6e6),
        "eager": Constants(350, 0, 630, 240, 0, 350, 1, 430, 1_000, 440, 5.5, 0, 1.9e6),
        "nested_loop": Constants(190, 190, 15, 0.8, 83, 190, 95, 130, 70, 150, 3, 0, 1.1e6),
    }
)


def place() -> Path | None:
    """The file with the constants of machines, each under its name; None: the defaults hold."""
    told = os.environ.get(VARIABLE)
    if told is not None:
        return Path(told) if told else None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "watersmeet" / "constants.json"


def here() -> Machine:
    """The constants of this machine, if they were fitted; else the defaults. A file that cannot be read is as none."""
    path = place()
    return DEFAULT if path is None else _read(path, platform.node())


def save(machine: Machine) -> Path | None:
    """Keep the constants of this machine, beside those of others; the file in which they are."""
    path = place()
    if path is None:
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = _load(path)
    kept[platform.node()] = machine.as_dict()
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(kept, indent=2) + "\n")
    temporary.replace(path)
    _read.cache_clear()
    return path


@lru_cache(maxsize=8)
def _read(path: Path, name: str) -> Machine:
    known = _load(path).get(name)
    return DEFAULT if known is None else Machine.from_dict(known)


def _load(path: Path) -> dict[str, Any]:
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("the constants of this machine cannot be read, the defaults hold: %s: %s", path, error)
        return {}
    return known if isinstance(known, dict) else {}
