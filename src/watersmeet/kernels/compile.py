"""How kernels are compiled: the options, in one place, and a disk cache keyed by all kernel sources.

Numba keeps a compiled function until its own file changes. Kernels call kernels of other files, which are compiled
into them, so the cache has a folder for each version of all the files together. A wheel cannot carry it: Numba looks
kernels up by the name and the features of the host's processor, and its folder by the absolute path of the sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba import njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compile on first use, without the GIL; load from disk if it was compiled before.

    Without counts of references: the caller holds all arrays, and two atomic operations for each array that an
    iteration touches cost several times what the iteration itself does.
    """
    return _compiled(function, _nrt=False)


def allocating(function: Callable[..., Any]) -> Any:
    """The same for a kernel that makes arrays."""
    return _compiled(function)


def part(function: Callable[..., Any]) -> Any:
    """A part of kernels, compiled into each of them: a call would copy the descriptors of all array arguments."""
    return _compiled(function, forceinline=True, _nrt=False)


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder())
    try:
        return njit(cache=True, nogil=True, boundscheck=False, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


@cache
def folder() -> Path:
    """The folder of compiled kernels: under NUMBA_CACHE_DIR if set, else beside the sources, or in the user's cache."""
    here = Path(__file__).parent
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(here.rglob("*.py")):
        digest.update(source.read_bytes())
    user = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "watersmeet" / "kernels"
    given = numba.config.CACHE_DIR
    base = Path(given) if given else here / "__pycache__" if os.access(here, os.W_OK) else user
    made = base / f"kernels-{digest.hexdigest()[:16]}"
    made.mkdir(parents=True, exist_ok=True)
    return made
