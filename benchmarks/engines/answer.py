"""The task and the answer of a peer's process. Needs nothing but Python: peers have their own environments."""

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

WINDOW_MS, DELAY_MS = 10_000, 2_000


@dataclass(frozen=True)
class Task:
    """Join a and b on k, times at most WINDOW_MS apart; `files` has a/ and b/ as Parquet, `texts` the same as CSV."""

    files: Path
    texts: Path
    state: Path  # folder of the durable state
    expected: int
    variant: str

    @classmethod
    def read(cls) -> "Task":
        parser = argparse.ArgumentParser()
        parser.add_argument("files", type=Path)
        parser.add_argument("texts", type=Path)
        parser.add_argument("state", type=Path)
        parser.add_argument("expected", type=int)
        parser.add_argument("--variant", default="")
        return cls(**vars(parser.parse_args()))


@dataclass(frozen=True)
class Answer:
    """`rows` were joined within `seconds`, without the time to start; `results` are those of all rows."""

    rows: int
    seconds: float
    results: int
    version: str
    state_bytes: int = 0  # on disk at the end
    ended: float = field(default_factory=time.time)  # made right after the last result

    def send(self) -> None:
        """Print the answer as JSON."""
        print(json.dumps(asdict(self)))
        sys.stdout.flush()


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Watch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began
