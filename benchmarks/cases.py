"""The cases: rows and seconds of event time of a batch, keys and columns of the streams."""

from dataclasses import dataclass, replace
from typing import Any

NATIVE_MEMORY = "native-memory"
NATIVE_ROCKSDB = "native-rocksdb"
NATIVE_ROCKSDB_V4 = "native-rocksdb-v4"
WATERSMEET = "watersmeet"
WATERSMEET_WRITE = "watersmeet-write"  # by wm.write in place of writeStream, in cases that write files
SHUFFLE_IDENTITY = "shuffle-identity"
PACKED_IDENTITY = "packed-identity"
SOURCE_SINK = "source-sink"

NATIVE = (NATIVE_ROCKSDB, NATIVE_ROCKSDB_V4, NATIVE_MEMORY)
FLOORS = (SHUFFLE_IDENTITY, PACKED_IDENTITY, SOURCE_SINK)
JOINS = (*NATIVE, WATERSMEET, WATERSMEET_WRITE)
EVERYONE = (*JOINS, *FLOORS)

WINDOW_SECONDS = 10
DELAY_SECONDS = 2


@dataclass(frozen=True)
class Stretch:
    """Some equal batches in a row; only those of the phases `steady` and `before` are measured."""

    phase: str
    batches: int
    rows: int  # of a batch, over all streams
    seconds: float  # of event time in a batch


def warm_up(rows: int, seconds: float, *, for_state: int = 4) -> tuple[Stretch, ...]:
    """Batches before the steady ones: a large one that the first result comes from, small ones for the JVM, large ones
    for the state.

    The JVM compiles what Spark runs once a batch for some sixty batches. Without them that was 40 % of the CPU time of
    the steady batches of `strings`, and 17 % of those of Spark's own join.
    """
    large, small = Stretch("warm-up", 1, rows, seconds), Stretch("warm-up", 60, 1_000, seconds * 1_000 / rows)
    return large, small, replace(large, batches=for_state)


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    stretches: tuple[Stretch, ...]
    keys: int  # in use at any moment
    drift: float  # keys a second by which the range of keys moves on
    wide: bool = False  # a string key and ten payload columns a stream, else int64 and one
    streams: str = "ab"
    repetitions: int = 3
    contenders: tuple[str, ...] = (*NATIVE, WATERSMEET, *FLOORS)
    sink: str = "noop"  # or "parquet"

    @property
    def phases(self) -> list[str]:
        """The phase of each batch, by its number."""
        return [s.phase for s in self.stretches for _ in range(s.batches)]

    @property
    def rows(self) -> int:
        return sum(s.batches * s.rows for s in self.stretches)

    def quick(self) -> "Case":
        """A twentieth of the rows and keys, once: enough to see that everything runs, not to measure."""
        stretches = tuple(replace(s, rows=max(s.rows // 20, 200), batches=min(s.batches, 5)) for s in self.stretches)
        shrunk = stretches[0].rows / self.stretches[0].rows
        keys = self.keys if self.keys <= 200 else max(int(self.keys * shrunk), 1)
        return replace(self, stretches=stretches, keys=keys, drift=self.drift * shrunk, repetitions=1)


CASES = {
    case.name: case
    for case in (
        Case(
            "steady-200k",
            "200 k rows a batch, 5 s of event time each, about three partners a row",
            (*warm_up(200_000, 5.0), Stretch("steady", 10, 200_000, 5.0)),
            keys=100_000,
            drift=5_000,
        ),
        Case(
            "large-1.6M",
            "1.6 M rows a batch, 10 s of event time each, about three partners a row",
            (*warm_up(1_600_000, 10.0, for_state=2), Stretch("steady", 6, 1_600_000, 10.0)),
            keys=400_000,
            drift=20_000,
            contenders=(NATIVE_MEMORY, WATERSMEET, *FLOORS),
        ),
        Case(
            "small-1k",
            "1 k rows a batch, 2 s of event time each, about three partners a row",
            (Stretch("warm-up", 70, 1_000, 2.0), Stretch("steady", 30, 1_000, 2.0)),
            keys=1_250,
            drift=62.5,
        ),
        Case(
            "dense",
            "200 keys, 20 k rows a batch, 5 s of event time each, about 200 partners a row",
            (*warm_up(20_000, 5.0), Stretch("steady", 8, 20_000, 5.0)),
            keys=200,
            drift=0,
            repetitions=3,
        ),
        Case(
            "strings",
            "a string key and ten payload columns of mixed types a stream, 100 k rows a batch, 5 s of event time each",
            (*warm_up(100_000, 5.0), Stretch("steady", 8, 100_000, 5.0)),
            keys=50_000,
            drift=2_500,
            wide=True,
            repetitions=3,
        ),
        Case(
            "parquet-200k",
            "200 k rows a batch as in steady-200k, results written as Parquet: by writeStream, and by wm.write",
            (*warm_up(200_000, 5.0), Stretch("steady", 10, 200_000, 5.0)),
            keys=100_000,
            drift=5_000,
            contenders=(NATIVE_MEMORY, WATERSMEET, WATERSMEET_WRITE),
            sink="parquet",
        ),
        Case(
            "big-state",
            "batches of 10 k rows on a small state (before), then on a state of 5 M rows that large batches built up",
            (
                Stretch("warm-up", 6, 10_000, 0.024),
                Stretch("before", 8, 10_000, 0.024),
                Stretch("build", 11, 500_000, 1.2),
                Stretch("settle", 2, 10_000, 0.024),
                Stretch("steady", 10, 10_000, 0.024),
            ),
            keys=1_000_000,
            drift=0,
            repetitions=1,
        ),
    )
}

#: Three and four streams on a common key, for `benchmarks.multiway`: everyday batches, and three times as large ones.
SEVERAL = {
    case.name: case
    for case in (
        Case(
            f"{number}-streams{suffix}",
            f"{number} streams of {rows // 1000} k rows a batch each, 5 s of event time, about three partners a row in "
            "each other",
            (
                *warm_up(rows * len(streams), 5.0, for_state=for_state),
                Stretch("steady", steady, rows * len(streams), 5.0),
            ),
            keys=rows,
            drift=rows / 20,
            streams=streams,
            repetitions=repetitions,
            contenders=(NATIVE_ROCKSDB, NATIVE_MEMORY, WATERSMEET),
        )
        for suffix, rows, for_state, steady, repetitions in (("", 30_000, 4, 8, 2), ("-100k", 100_000, 3, 4, 1))
        for number, streams in (("three", "abc"), ("four", "abcd"))
    )
}

#: The join of `benchmarks.peers`: batches as a backlog gives them, so that fixed costs do not decide.
PEERS = Case(
    "window-join",
    "two streams of 20 k rows a second of event time each, about three partners a row; on Spark 400 k rows a batch",
    (Stretch("warm-up", 2, 400_000, 10.0), Stretch("steady", 4, 400_000, 10.0)),
    keys=100_000,
    drift=5_000,
    repetitions=1,
    contenders=(NATIVE_ROCKSDB, NATIVE_MEMORY, WATERSMEET),
)


def _window_join(name: str, about: str, stretches: tuple[Stretch, ...], rows: int, **more: Any) -> Case:
    """About three partners a row at so many rows in batches of five seconds."""
    return Case(name, about, stretches, keys=rows // 2, drift=rows / 40, repetitions=1, **more)


#: The joins of `benchmarks.scale`: what is moved, what a size costs, and batches for a cluster.
SCALE = {
    case.name: case
    for case in (
        _window_join(
            "narrow",
            "100 k rows a batch, 5 s of event time each, an int64 key and one payload column a stream",
            (Stretch("warm-up", 3, 100_000, 5.0), Stretch("steady", 4, 100_000, 5.0)),
            100_000,
        ),
        _window_join(
            "wide",
            "50 k rows a batch, 5 s of event time each, a string key and ten payload columns a stream",
            (Stretch("warm-up", 3, 50_000, 5.0), Stretch("steady", 4, 50_000, 5.0)),
            50_000,
            wide=True,
        ),
        _window_join(
            "sizes",
            "batches of 10 k, then of 100 k, then of 400 k rows, at 20 k rows a second of event time",
            (
                Stretch("warm-up", 3, 100_000, 5.0),
                Stretch("small", 5, 10_000, 0.5),
                Stretch("steady", 5, 100_000, 5.0),
                Stretch("large", 4, 400_000, 20.0),
            ),
            100_000,
        ),
        _window_join(
            "cluster",
            "200 k rows a batch, 5 s of event time each, about three partners a row",
            (Stretch("warm-up", 5, 200_000, 5.0), Stretch("steady", 45, 200_000, 5.0)),
            200_000,
        ),
    )
}
