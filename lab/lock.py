"""`python lab/lock.py NAME [WITHOUT]`: the part of requirements.lock that an extra of ours, or a package, needs.

Hashes are kept. What the package WITHOUT needs is left out, itself included.

The lock notes behind every package what it is there for (`# via`), so the part can be cut out of it without a resolver.
It runs before anything is installed: nothing but the standard library is imported.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent


def part(lock: str, roots: Iterable[str], without: Iterable[str] = ()) -> str:
    """The entries of a lock that the packages `roots` need, directly or not; not those that `without` need."""
    entries = re.findall(r"(?m)^[A-Za-z0-9].*\n(?:[ ]+.*\n?)*", lock)
    named = {_name(entry): entry for entry in entries}
    needed = _needed(named, roots) - _needed(named, without)
    return "".join(entry for name, entry in named.items() if name in needed)


def _needed(entries: Mapping[str, str], roots: Iterable[str]) -> set[str]:
    needed = {_normal(root) for root in roots}
    while grown := {name for name, entry in entries.items() if name not in needed and needed & _parents(entry)}:
        needed |= grown
    return needed


def roots_of(project: dict[str, object], extra: str) -> list[str]:
    """Packages that the project and an extra of it name."""
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    names: list[str] = list(project["dependencies"])  # type: ignore[call-overload]
    for requirement in extras[extra]:
        own = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
        names += extras[own[1]] if own else [requirement]
    return [re.split(r"[\[<>=!~; ]", name, maxsplit=1)[0] for name in names]


def _name(entry: str) -> str:
    return _normal(entry.split("==", 1)[0])


def _parents(entry: str) -> set[str]:
    """Packages for which an entry is in the lock."""
    notes = entry.partition("# via")[2]
    return {_normal(word) for word in re.findall(r"(?m)^\s*(?:#\s*)?([A-Za-z0-9._-]+)", notes)}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


if __name__ == "__main__":
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = sys.argv[1]
    roots = roots_of(known, wanted) if wanted in known["optional-dependencies"] else [wanted]
    lock = (ROOT / "requirements.lock").read_text()
    sys.stdout.write(part(lock, roots, without=sys.argv[2:]))
