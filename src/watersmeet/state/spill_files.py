"""Rows spilled to files."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import pyarrow as pa

from watersmeet.state.arrays import Arrays, MappedArrays

SUFFIX = ".spilled"


class SpillFiles:
    """Rows by name, a file each: beside the mapped arrays of a working state, or in a folder that goes with it."""

    def __init__(self, arrays: Arrays | None = None) -> None:
        self.shared = isinstance(arrays, MappedArrays)  # whether another process may go on from here
        self._folder = arrays.folder if isinstance(arrays, MappedArrays) else None

    @property
    def folder(self) -> Path:
        """The folder of the files; one of its own is made when it is needed first: to read a state needs none."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="watersmeet-spill-"))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def put(self, name: str, rows: pa.RecordBatch) -> None:
        with pa.OSFile(str(self._path(name)), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_batch(rows)

    def read(self, name: str) -> pa.RecordBatch:
        with pa.OSFile(str(self._path(name))) as file:
            return pa.ipc.open_stream(file.read_buffer()).read_next_batch()

    def remove(self, name: str) -> None:
        if self._folder is not None:
            self._path(name).unlink(missing_ok=True)

    def holds(self, name: str) -> bool:
        return self._folder is not None and self._path(name).exists()

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"
