"""Statistics of a stream: rate, rows, distinct keys, hot keys. For choosing plans, never for results.

Event time is cut into sub-windows, eight to a window, numbered from the epoch so that all shards cut alike. Each has a
count of rows and a sketch of its keys; those that have left the window are dropped, with their keys.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from watersmeet.errors import StateMismatchError
from watersmeet.kernels import hyperloglog as kernel
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.windows import FOREVER, format_length
from watersmeet.state.keys import Int64s
from watersmeet.state.statistics import heavy_hitters as hot_keys
from watersmeet.state.statistics.heavy_hitters import HotKeys
from watersmeet.state.statistics.hyperloglog import REGISTERS, estimate, merged

#: Sub-windows of a window, and of those whose rate is that of now.
PARTS = 8
SECOND = 1_000_000
#: What is taken for the window of a stream that has a shorter one, or none.
SHORTEST, WITHOUT_WINDOW = SECOND, 600 * SECOND
#: With fewer rows than these to a sub-window, the rate is their plain mean: of rare events none is an outlier.
FEW = 4


class StreamStatistics:
    """Running statistics of one stream in one shard (`merge` makes one of several); times in microseconds.

    Keeps 8 sub-windows and as many as the delay keeps open, at most 14, with 512 bytes each, and 32 hot keys.
    Costs about 10 ns a row.
    """

    def __init__(self, reach: int, delay: int = 0) -> None:
        self.reach, self.delay = max(reach, 0), delay
        span = WITHOUT_WINDOW if reach >= FOREVER else max(reach, SHORTEST)
        self.width = max(-(-span // PARTS), -(-delay // (PARTS // 2)))
        self.kept = PARTS + -(-delay // self.width) + 2
        self.rows = 0  # since the start
        self.bytes = 0
        self.closed = 0  # keys that the stream has closed
        self.oldest, self.newest = BEFORE_ALL, BEFORE_ALL
        self.hot = HotKeys()
        self._counts = np.zeros(self.kept, np.int64)
        self._registers = np.zeros((1 + self.kept, REGISTERS), np.uint8)

    def observe(
        self, times: Int64s, words: Int64s, which: Int64s, size: int, seen: int | None = None, closed: int = 0
    ) -> None:
        """Count the tuples `which`, of `size` bytes together, and `closed` keys that the stream has closed.

        `seen` is the largest event time that the whole stream has shown, by default that of these tuples. With it
        a shard without tuples advances, too.
        """
        if which.size:
            here = times[which]
            self.oldest = int(here.min()) if self.oldest == BEFORE_ALL else min(self.oldest, int(here.min()))
            seen = max(int(here.max()), BEFORE_ALL if seen is None else seen)
        if seen is not None:
            self._move_to(seen)
        self.rows += int(which.size)
        self.bytes += size
        self.closed += closed
        kernel.observe(words, times, which, self.width, self._first(), self._counts, self._registers)
        self.hot.add(words, which)

    @property
    def rate(self) -> float:
        """Rows per second of event time, of late.

        The mean of the middle half of the last eight whole sub-windows: a burst, or a gap, of a quarter of the window
        does not count. Until one is whole, rows over the time since the first.
        """
        whole = self._whole()
        if not whole.size:
            return self.rows / self.elapsed if self.elapsed else 0.0
        cut = whole.size // 4 if whole.sum() >= FEW * whole.size else 0
        middle = np.sort(whole)[cut : whole.size - cut]
        return float(middle.mean()) * SECOND / self.width

    @property
    def tuples(self) -> float:
        """Rows in the window, to the sixteenth part or so that a sub-window is cut off at its edge."""
        inside = self._inside()
        if self.reach >= FOREVER or not inside.size:
            return float(self.rows)
        covered = self.newest - max(self._start(int(inside[0])), self.oldest) + 1
        return float(self._counts[inside].sum()) * min(1.0, (self.reach + 1) / covered)

    @property
    def distinct(self) -> float:
        """Distinct keys in the window; without one, since the start."""
        if self.reach >= FOREVER:
            return self.keys_seen
        return estimate(merged(self._registers[1 + self._inside()]))

    @property
    def keys_seen(self) -> float:
        """Distinct keys since the start."""
        return estimate(self._registers[0])

    @property
    def punctuation_rate(self) -> float:
        """Keys closed per second of event time, since the start."""
        return self.closed / self.elapsed if self.elapsed else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds of event time since the first tuple."""
        return (self.newest - self.oldest) / SECOND if self.oldest > BEFORE_ALL else 0.0

    @property
    def row_bytes(self) -> float:
        return self.bytes / self.rows if self.rows else 0.0

    # ------------------------------------------------------------ sub-windows

    def _first(self) -> int:
        """The number of the oldest sub-window that is kept."""
        return self.newest // self.width - self.kept + 1

    def _start(self, index: int) -> int:
        return (self._first() + index) * self.width

    def _whole(self) -> Int64s:
        """Rows of the last sub-windows to which nothing is added any more, from the first that was seen whole."""
        end = (self.newest - self.delay) // self.width - self._first()
        begin = max(end - PARTS, -(-self.oldest // self.width) - self._first(), 0)
        return self._counts[begin : max(begin, end)]

    def _inside(self) -> Int64s:
        """Indices of the sub-windows of which at least half is in the window."""
        middles = (self._first() + np.arange(self.kept)) * self.width + self.width // 2
        return np.flatnonzero(middles >= self.newest - self.reach)

    def _move_to(self, seen: int) -> None:
        """Drop the sub-windows that are too old at event time `seen`."""
        if seen <= self.newest:
            return
        steps = seen // self.width - self.newest // self.width if self.newest > BEFORE_ALL else self.kept
        self.newest = seen
        gone = min(steps, self.kept)
        for array in (self._counts, self._registers[1:]):
            array[: self.kept - gone] = array[gone:].copy()
            array[self.kept - gone :] = 0
        if gone:
            self.hot.fade(0.5 ** (min(steps, 1000) / PARTS))

    # ------------------------------------------------------------ shards, restarts

    @classmethod
    def merge(cls, shards: Sequence[StreamStatistics]) -> StreamStatistics:
        """The statistics of the stream, from those of its shards."""
        whole = cls(shards[0].reach, shards[0].delay)
        for one in shards:
            whole._move_to(one.newest)
        seen = [one for one in shards if one.oldest > BEFORE_ALL]
        whole.oldest = min((one.oldest for one in seen), default=BEFORE_ALL)
        whole.rows, whole.bytes = sum(one.rows for one in shards), sum(one.bytes for one in shards)
        whole.closed = sum(one.closed for one in shards)
        for one in seen:
            behind = min(whole._first() - one._first(), whole.kept)
            whole._counts[: whole.kept - behind] += one._counts[behind:]
            kept = whole._registers[1 : 1 + whole.kept - behind]
            np.maximum(kept, one._registers[1 + behind :], out=kept)
            np.maximum(whole._registers[0], one._registers[0], out=whole._registers[0])
        whole.hot = hot_keys.merged([one.hot for one in shards])
        return whole

    def metadata(self) -> dict[str, Any]:
        """All statistics as JSON: a few kilobytes, for the metadata in a state's header."""
        return {
            "reach": self.reach,
            "delay": self.delay,
            "rows": self.rows,
            "bytes": self.bytes,
            "closed": self.closed,
            "oldest": self.oldest,
            "newest": self.newest,
            "counts": self._counts.tolist(),
            "registers": base64.b64encode(zlib.compress(self._registers.tobytes(), 1)).decode(),
            "hot": self.hot.metadata(),
        }

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        """Continue from stored metadata."""
        if (metadata["reach"], metadata["delay"]) != (self.reach, self.delay):
            raise StateMismatchError(
                f"the statistics are of a stream with window {format_length(metadata['reach'])} and delay "
                f"{format_length(metadata['delay'])}, this one has {format_length(self.reach)} and "
                f"{format_length(self.delay)}.",
                hint="start from a new checkpoint.",
            )
        self.rows, self.bytes, self.closed = metadata["rows"], metadata["bytes"], metadata["closed"]
        self.oldest, self.newest = metadata["oldest"], metadata["newest"]
        self._counts = np.array(metadata["counts"], np.int64)
        raw = zlib.decompress(base64.b64decode(metadata["registers"]))
        self._registers = np.frombuffer(raw, np.uint8).reshape(self._registers.shape).copy()
        self.hot = HotKeys.from_metadata(metadata["hot"])
