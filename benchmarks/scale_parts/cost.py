"""COST: core-seconds a million events of each peer, and the cores until it passes one thread of the bare kernel.

The join of `benchmarks.peers`, each peer as there; the processor time of all its processes is read while it is
measured: over the steady batches on Spark, from the start of the job to its last result elsewhere.
"""

from math import ceil
from typing import Any

from benchmarks import peers
from benchmarks.cases import PEERS
from lab.measure.processor_time import ProcessorTime

KERNEL = "kernel"
CONTENDERS = ("watersmeet", "spark-memory", "spark-rocksdb", "flink-heap", "flink-rocksdb", KERNEL)


def run(name: str, quick: bool) -> dict[str, Any]:
    """Rows a second and core-seconds a million rows of one peer."""
    case = PEERS.quick() if quick else PEERS
    with ProcessorTime() as used:
        outcome = peers.run(peers.CONTENDERS[name], case, quick)
    if "error" in outcome:
        return {"peer": name, "error": outcome["error"]}
    spans = outcome["spans"]
    cores = sum(used.between(begin, end) for begin, end in spans)
    return {
        "peer": name,
        "version": outcome["version"],
        "rows": outcome["rows"],
        "seconds": outcome["seconds"],
        "rows_a_second": outcome["rows"] / outcome["seconds"],
        "core_seconds": cores,
        "core_seconds_a_million": cores / outcome["rows"] * 1e6,
        "cores_used": cores / outcome["seconds"],
    }


def cores_if_linear(rows_a_second: float, cores: int, kernel: float) -> int:
    """The cores at which a peer passes the kernel if its speed grew with its cores; in truth it needs no fewer."""
    return ceil(kernel / (rows_a_second / cores))
