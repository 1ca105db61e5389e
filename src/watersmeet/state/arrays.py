"""Where the arrays of a state live: on the heap of one process, or in files that several processes map."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from watersmeet.errors import MemoryLimitError

AnyArray = npt.NDArray[Any]


class Arrays(Protocol):
    """Makes, finds again and grows named arrays. New elements are zero."""

    @property
    def bytes(self) -> int:
        """Bytes of all of them, with what is reserved for more elements."""

    def allocate(self, name: str, n: int, kind: npt.DTypeLike) -> AnyArray: ...

    def attach(self, name: str, kind: npt.DTypeLike) -> AnyArray | None: ...

    def grow(self, name: str, array: AnyArray, n: int) -> AnyArray: ...


class HeapArrays:
    """Arrays of this process alone."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    def allocate(self, name: str, n: int, kind: npt.DTypeLike) -> AnyArray:
        made = np.zeros(n, kind)
        self._sizes[name] = made.nbytes
        return made

    def attach(self, name: str, kind: npt.DTypeLike) -> AnyArray | None:
        return None

    def grow(self, name: str, array: AnyArray, n: int) -> AnyArray:
        larger = self.allocate(name, n, array.dtype)
        larger[: array.size] = array
        return larger


def _make_room(handle: int, size: int, path: Path) -> None:
    """Allocate all bytes of the file now: a full disk is an error here, not a bus error later."""
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise MemoryLimitError(
            f"the working state does not fit: {path.parent.parent} has no room for {size} bytes more.",
            hint="make room there, or give the state less to keep: shorter windows, punctuations.",
        ) from error


class MappedArrays:
    """Arrays in files of one folder, shared by all processes that map them. Growing one copies nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sizes: dict[str, int] = {}

    @property
    def bytes(self) -> int:
        return sum(self._sizes.values())

    def allocate(self, name: str, n: int, kind: npt.DTypeLike) -> AnyArray:
        (self.folder / name).unlink(missing_ok=True)  # a process that still maps the old file keeps it
        return self._map(name, n * np.dtype(kind).itemsize, kind)

    def attach(self, name: str, kind: npt.DTypeLike) -> AnyArray | None:
        try:
            handle = os.open(f"{self.folder}/{name}", os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            return self._mapped(name, handle, os.fstat(handle).st_size, kind)
        finally:
            os.close(handle)

    def grow(self, name: str, array: AnyArray, n: int) -> AnyArray:
        return self._map(name, n * array.itemsize, array.dtype)

    def _map(self, name: str, size: int, kind: npt.DTypeLike) -> AnyArray:
        path = self.folder / name
        size = max(size, np.dtype(kind).itemsize)  # an empty file cannot be mapped
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(handle).st_size < size:
                _make_room(handle, size, path)
            return self._mapped(name, handle, size, kind)
        finally:
            os.close(handle)

    def _mapped(self, name: str, handle: int, size: int, kind: npt.DTypeLike) -> AnyArray:
        self._sizes[name] = size
        return np.frombuffer(mmap.mmap(handle, size), kind)
