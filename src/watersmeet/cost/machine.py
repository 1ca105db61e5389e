"""The time that work takes on this machine: constants that were fitted here, else defaults."""

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
from watersmeet.joins import REGISTRY

log = logging.getLogger("watersmeet")

#: Environment variable with the file of the constants, instead of one in the user's cache folder. Empty: no file.
VARIABLE = "WATERSMEET_CONSTANTS"


@dataclass(frozen=True)
class Machine:
    """Constants of each family of joins (`Traits.family`); a family that was not fitted has those of `other`."""

    other: Constants = field(default_factory=Constants)
    families: Mapping[str, Constants] = field(default_factory=dict)
    fitted: bool = False

    def of(self, algorithm: str) -> Constants:
        """The constants of an algorithm."""
        return self.families.get(REGISTRY[algorithm].traits.family, self.other) if algorithm in REGISTRY else self.other

    def as_dict(self) -> dict[str, Any]:
        return {name: constants.as_dict() for name, constants in self.families.items()}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Machine:
        return cls(families={name: Constants.of(c) for name, c in known.items() if name in families()}, fitted=True)


def families() -> list[str]:
    """The families of joins. Joins of a family run the same loops, and so have the same constants."""
    return list(dict.fromkeys(kind.traits.family for kind in REGISTRY.values()))


#: Rounded from a fit (`cost.calibration`) on an idle machine. A constant may contain the cost of another event that
#: always comes with its own; that other constant is then 0 or too low.
DEFAULT = Machine(
    families={
        "hash": Constants(
            rows_in=190,
            lookups=190,
            probed=4,
            scanned=1,
            results=4,
            inserted=0,
            checked=1,
            expired=0,
            purged=0,
            punctuations=260,
            bytes=0,
            levels=0,
            batch=1.3e6,
        ),
        "general_lazy": Constants(
            rows_in=0,
            lookups=310,
            probed=0,
            scanned=1,
            results=4,
            inserted=0,
            checked=1,
            expired=33,
            purged=440,
            punctuations=430,
            bytes=0,
            levels=51_000,
            batch=1.6e6,
        ),
        "eager": Constants(
            rows_in=350,
            lookups=0,
            probed=630,
            scanned=240,
            results=0,
            inserted=350,
            checked=1,
            expired=430,
            purged=1_000,
            punctuations=440,
            bytes=5.5,
            levels=0,
            batch=1.9e6,
        ),
        "nested_loop": Constants(
            rows_in=190,
            lookups=190,
            probed=15,
            scanned=0.8,
            results=83,
            inserted=190,
            checked=95,
            expired=130,
            purged=70,
            punctuations=150,
            bytes=3,
            levels=0,
            batch=1.1e6,
        ),
    }
)


def constants_path() -> Path | None:
    """The file with the constants of machines, by the name of the machine; None: use the defaults."""
    configured = os.environ.get(VARIABLE)
    if configured is not None:
        return Path(configured) if configured else None
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "watersmeet" / "constants.json"


def here() -> Machine:
    """The constants of this machine; the defaults if they were never fitted or the file cannot be read."""
    path = constants_path()
    return DEFAULT if path is None else _read(path, platform.node())


def save(machine: Machine) -> Path | None:
    """Store the constants of this machine beside those of others; returns the file, None if there is none."""
    path = constants_path()
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
