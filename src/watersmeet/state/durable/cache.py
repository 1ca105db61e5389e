"""Working states between two batches: folders of mapped arrays that any process of this machine can pick up.

A working state is kept under the random token of the durable state that it equals. It is taken (renamed away) before
it is changed and kept again under the new token after the last durable write. So a folder under a token *is* that
state, whichever process left it: a worker that dies half-way leaves a folder without a token.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from watersmeet.state.durable.log import HasState
from watersmeet.state.durable.memory_bound import SPILLED
from watersmeet.state.durable.parts import load_metadata, metadata_of
from watersmeet.state.segments import Segment, SpilledSegment, keep, map_rows

CONTENTS = "contents.json"
TAKEN = ".taken-"
#: Tidying looks at every state of the machine, so a process rests after it: so many times as long, and so many seconds
#: at least.
REST, SHORTEST_REST = 100, 1.0


class Cache:
    """Folders below `root`, at most `limit` bytes of them; the least recently kept go first.

    What their states spill is in folders below `disk`.
    """

    #: When this process tidies a folder of states again, by `time.monotonic`.
    due: ClassVar[dict[Path, float]] = {}

    def __init__(self, root: Path, limit: int, disk: Path | None = None) -> None:
        self.root = root
        self.limit = limit
        self.disk = disk or root.with_name(SPILLED)
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def take(self, tokens: Iterable[str]) -> tuple[str, Path] | None:
        """The first of these states that is here, now the caller's alone."""
        for token in tokens:
            mine = self.fresh()
            try:
                (self.root / token).rename(mine)
            except OSError:
                continue
            return token, mine
        return None

    def fresh(self) -> Path:
        """A name for a working state that is not kept (yet)."""
        return self.root / f"{os.urandom(8).hex()}{TAKEN}{os.getpid()}"

    def keep(self, folder: Path, token: str) -> None:
        """The state in `folder` equals the durable state `token`."""
        os.utime(folder)
        folder.rename(self.root / token)

    def tidy_when_due(self) -> None:
        """Tidy, unless this process has done so a moment ago."""
        began = time.monotonic()
        if began < self.due.get(self.root, began):
            return
        self.tidy()
        ended = time.monotonic()
        self.due[self.root] = ended + max(SHORTEST_REST, REST * (ended - began))

    def tidy(self) -> int:
        """Remove half-changed states of dead processes and the oldest beyond the limit; returns the bytes left."""
        kept: list[tuple[float, int, Path]] = []
        try:
            entries = list(os.scandir(self.root))
        except FileNotFoundError:  # removed by a container that shares /dev/shm and does not see whose it is
            return 0
        for entry in entries:
            _, taken, pid = entry.name.partition(TAKEN)
            if taken:
                if not _alive(int(pid)):
                    remove(Path(entry))
                continue
            try:
                with os.scandir(entry) as files:
                    size = sum(file.stat(follow_symlinks=False).st_size for file in files)
                kept.append((entry.stat().st_mtime, size, Path(entry)))
            except OSError:
                continue  # taken by another process a moment ago
        total = sum(size for _, size, _ in kept)
        for when, size, folder in sorted(kept):
            # a state kept a moment ago is about to be taken
            if total <= self.limit or when > time.time() - 1:
                break
            mine = self.fresh()
            try:
                folder.rename(mine)  # so that no process takes a half removed folder
            except OSError:
                continue
            remove(mine)
            total -= size
        return total


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def remove(folder: Path) -> None:
    """Remove a folder and, before it, what it has spilled, which nothing else names."""
    spilled = folder / SPILLED
    if spilled.is_symlink():
        shutil.rmtree(os.readlink(spilled), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def files_of(folder: Path) -> list[Path]:
    """The files of a working state, those that it has spilled among them."""
    return [folder / name for name in _sizes(folder)]


def _sizes(folder: Path) -> dict[str, int]:
    """The bytes of its files, by their paths in its folder."""
    with os.scandir(folder) as files:
        found = {file.name: file.stat().st_size for file in files if file.name != SPILLED}
    with suppress(FileNotFoundError), os.scandir(folder / SPILLED) as files:
        found |= {f"{SPILLED}/{file.name}": file.stat().st_size for file in files}
    return found


def save(join: HasState, folder: Path) -> None:
    """Write what the mapped arrays do not hold: watermarks, metadata, and the numbers of segments."""
    segments: list[list[Any]] = []
    files, held = _sizes(folder), set()
    for i, stream in enumerate(join.streams):
        for number, part in stream.segments.parts.items():
            spilled = isinstance(part, SpilledSegment)
            file = f"{SPILLED}/{part.id}.arrow" if spilled else f"{part.id}.arrow"
            if isinstance(part, Segment) and file not in files:
                keep(part.rows, folder / file)
                files[file] = (folder / file).stat().st_size
            held.add(file)
            left = int(stream.segments.left[number])
            segments.append([i, number, part.id, part.size, part.checksum, part.count, left, spilled])
    for name in [name for name in files if name.endswith(".arrow") and name not in held]:
        (folder / name).unlink()
        del files[name]
    files.pop(CONTENTS, None)
    contents = {
        "watermarks": join.watermarks,
        "metadata": metadata_of(join.parts()),
        "segments": segments,
        "files": files,
    }
    (folder / CONTENTS).write_text(json.dumps(contents))


def complete(folder: Path) -> bool:
    """Whether all files are there in full size: other programs may clean up temporary folders.

    A file that is shorter than it was must not be mapped: a process that reads behind its end is killed.
    """
    try:
        files = json.loads((folder / CONTENTS).read_text())["files"]
        return all(os.stat(f"{folder}/{name}").st_size == size for name, size in files.items())
    except (FileNotFoundError, ValueError):
        return False


def load(join: HasState, folder: Path) -> bool:
    """Complete a join whose arrays are mapped from `folder`. False if they are of another operator."""
    contents = json.loads((folder / CONTENTS).read_text())
    join.watermarks[:] = contents["watermarks"]
    load_metadata(join.parts(), contents["metadata"])
    for i, number, id, size, checksum, count, left, spilled in contents["segments"]:
        file = (folder / SPILLED if spilled else folder) / f"{id}.arrow"
        segment = (
            SpilledSegment(id, file, size, checksum, count) if spilled else Segment(id, map_rows(file), size, checksum)
        )
        join.streams[i].segments.put(number, segment, left)
    return all(len(s) == sum(s.segments.left[n] for n in s.segments.parts) for s in join.streams)
