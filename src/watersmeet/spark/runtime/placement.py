"""Ids of shards, chosen so that Spark divides the shards evenly among its partitions, each of which is a task.

If the number of tasks divides that of the shards, the ids depend on the number of shards alone: their hashes have all
remainders by it, and so equally many of each remainder by any divisor. A checkpoint then goes on whatever the session's
number of tasks is; Spark keeps the checkpoint's own.
"""

from __future__ import annotations

from functools import cache

_MASK = 0xFFFFFFFF


def spark_hash(value: int) -> int:
    """Spark SQL's hash() of an INT: Murmur3 with seed 42, as a signed 32-bit number."""
    k = value * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    h = 42 ^ (k * 0x1B873593 & _MASK)
    h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


@cache
def shard_ids(shards: int, partitions: int) -> tuple[int, ...]:
    """The smallest ids, one per shard, spread evenly over the partitions. 0 is always among them."""
    if shards % partitions == 0:
        partitions = shards
    ids: list[int] = []
    candidate = 0
    loads = [0] * partitions
    share, more = divmod(shards, partitions)  # every partition has its share, `more` of them have one shard more
    while len(ids) < shards:
        partition = spark_hash(candidate) % partitions
        if loads[partition] < share or (loads[partition] == share and more):
            more -= loads[partition] == share
            loads[partition] += 1
            ids.append(candidate)
        candidate += 1
    return tuple(ids)


def even_tasks(shards: int, cores: int) -> int:
    """The fewest tasks that keep so many cores busy and have equally many shards each."""
    return next((tasks for tasks in range(cores, shards) if shards % tasks == 0), shards)
