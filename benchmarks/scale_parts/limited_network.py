"""Two workers in network namespaces: the time of a batch against the bandwidth and the delay between them.

The master, the driver and a worker are in the first namespace, the other worker in the second; half of the shuffle and
all that the driver and the second worker exchange passes the link. The checkpoint is on a disk that both have: its
traffic does not. Rates and round trips are measured over the same link before the batches.
"""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cases, data
from benchmarks.scale_parts.cluster_driver import ClusterDriver
from lab.network import ADDRESSES, Link, NoNamespacesError
from lab.spark.cluster import Cluster, WorkerPlace

CONTENDERS = (cases.WATERSMEET, cases.NATIVE_MEMORY)
SHARDS = 2
WARM_UP, BATCHES, QUICK_BATCHES = 14, 4, 1


@dataclass(frozen=True)
class Setting:
    megabits: float | None  # of each direction; None: no limit
    delay_ms: float  # of each direction


SETTINGS = (
    Setting(None, 0),
    Setting(1000, 0),
    Setting(100, 0),
    Setting(20, 0),
    Setting(1000, 1),
    Setting(1000, 10),
    Setting(100, 10),
)
QUICK_SETTINGS = (Setting(None, 0), Setting(20, 0))


def run(contender: str, quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each setting; one with the reason where the machine does not allow namespaces."""
    folder = Path(tempfile.mkdtemp(prefix="network", dir=data.scratch("checkpoints")))
    try:
        with Link() as link:
            prefixes = [link.within(name) for name in link.names]
            places = [WorkerPlace(*place) for place in zip(ADDRESSES, prefixes, strict=True)]
            with (
                Cluster(folder / "cluster", places, cores=1, memory="1500m") as cluster,
                ClusterDriver(
                    cluster.url, contender, SHARDS, folder, host=ADDRESSES[0], prefix=prefixes[0], quick=quick
                ) as driver,
            ):
                warm_up = len(driver.batches(1 if quick else WARM_UP))
                for setting in QUICK_SETTINGS if quick else SETTINGS:
                    found = measured(contender, setting, link, driver, QUICK_BATCHES if quick else BATCHES)
                    yield found | {"warm_up": warm_up}
    except NoNamespacesError as reason:
        yield {"contender": contender, "skipped": str(reason)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(contender: str, setting: Setting, link: Link, driver: ClusterDriver, count: int) -> dict[str, Any]:
    """Some batches over the link; the first one after the change is not counted."""
    link.limit(setting.megabits, setting.delay_ms / 1000)
    megabits, trip = link.measured(round(min(setting.megabits or 1000, 1000) * 1e6 / 8 / 10))  # a tenth of a second
    batches = driver.batches(1 + count)[1:]
    times = [b["durations"]["triggerExecution"] for b in batches]
    return {
        "contender": contender,
        **asdict(setting),
        "measured_megabits": megabits,
        "measured_trip_ms": trip,
        "rows": batches[0]["rows"],
        "batch_ms": float(np.median(times)),
        "low_ms": min(times),
        "high_ms": max(times),
    }
