"""A checkpoint that is seeded, rescaled or evolved by a process that can kill itself on the way.

    python -m lab.spark.killed_rewrite KIND FOLDER [--kill MOMENT]

With `--kill` the process ends by SIGKILL, with its JVM, when the new state is written (`written`), or when two parts of
the new checkpoint have their place and the others do not, as on an object store, which renames file by file (`moving`).
Otherwise it starts over, runs the query to its end and prints a JSON: whether the old checkpoint was changed, the error
of a query that starts from what the killed process left, the results, and those of the same join over all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.processes import family, kill
from lab.spark.feeds import partitions
from lab.spark.three_streams import Three, at
from watersmeet.errors import WatersmeetError
from watersmeet.spark import bootstrap
from watersmeet.spark.checkpoints import file_system, rescale

KINDS = ("bootstrap", "rescale", "evolve")
MOMENTS = ("written", "moving")
#: Batches before the rewrite, and of all.
BEFORE, BATCHES = 2, 4


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


class Rewrite:
    """A full join of two streams, of which the first two batches are in an old checkpoint or in tables."""

    def __init__(self, spark: SparkSession, kind: str, folder: Path) -> None:
        self.spark, self.kind, self.folder = spark, kind, folder
        self.old, self.new = folder / "old", folder / "new"
        begun = (folder / "live").exists()
        self.whole, self.live = (Three(spark, folder / part, "ab") for part in ("whole", "live"))
        if not begun:
            self._begin()

    def _begin(self) -> None:
        for batch in range(BATCHES):
            self.whole.add(batch)
        if self.kind != "bootstrap":
            self._copy(range(BEFORE))
            self.write(self.old)
            shutil.copytree(self.old, self.folder / "copy")

    def _copy(self, batches: range) -> None:
        for n in "ab":
            for batch in batches:
                self.live.feeds[n].files = batch
                self.live.feeds[n].add(self.whole.feeds[n].batch(batch))

    def join(self, *, static: bool = False) -> wm.Joined:
        streams = [(self.whole if static else self.live).stream(n, window="5 seconds", static=static) for n in "ab"]
        return wm.join(*streams, on="k", how="full")

    def write(self, checkpoint: Path, **options: Any) -> None:
        results = self.folder / f"{checkpoint.name}-results"
        given = {"trigger": {"availableNow": True}, **options}
        wm.write(self.join(), checkpoint=checkpoint, results=results, **given).awaitTermination()

    def rewrite(self) -> None:
        match self.kind:
            case "rescale":
                wm.rescale_state(self.spark, self.old, self.new, shards=3)
            case "evolve":
                wm.evolve_state(self.old, self.new, self.join())
            case _:
                early = F.lit(at(10 * BEFORE))
                tables = {n: self.whole.feeds[n].static().where(F.col(f"{n}_at") < early) for n in "ab"}
                wm.bootstrap(self.join(), self.new, tables)

    def finish(self) -> dict[str, Any]:
        """Look at what is left, do it again, and run to the end."""
        found: dict[str, Any] = {"unchanged": True, "left": self.new.exists(), "errors": []}
        if self.kind != "bootstrap":
            found["unchanged"] = contents(self.old) == contents(self.folder / "copy")
        self._copy(range(BEFORE, BATCHES))
        with partitions(self.spark, 3 if self.kind == "rescale" else 2):
            if found["left"]:
                found["errors"] = [_error(lambda: self.write(self.new)), _error(self.rewrite)]
                shutil.rmtree(self.new)
            self.rewrite()
            self.write(self.new, ends=True)
        written = [self.spark.read.parquet(str(f)) for f in self.folder.glob("*-results")]
        found["found"] = sorted(str(row) for df in written for row in df.drop("batch").collect())
        found["expected"] = sorted(str(row) for row in self.join(static=True).df.collect())
        return found


def _error(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except WatersmeetError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return repr(error)
    return "none"


def die(*_: Any) -> None:
    kill(*reversed(family(os.getpid())))


def arm(moment: str) -> None:
    """Have this process end at that moment."""
    if moment == "written":
        rescale.publish = bootstrap.publish = die
        return
    file_system.moved_whole = lambda *_: False
    rename, moved = Path.rename, []

    def counted(self: Path, target: Path) -> Path:
        if target.parent.name == "new":
            if len(moved) == 2:
                die()
            moved.append(target)
        return rename(self, target)

    Path.rename = counted  # type: ignore[method-assign,assignment]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill", choices=MOMENTS)
    given = parser.parse_args()
    spark = wm.session(master="local[2]", shards=2)
    rewrite = Rewrite(spark, given.kind, given.folder)
    if given.kill:
        arm(given.kill)
        rewrite.rewrite()
    else:
        print(json.dumps(rewrite.finish()))
    spark.stop()


if __name__ == "__main__":
    main()
