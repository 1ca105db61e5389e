"""Ids of shards, chosen so that Spark puts each shard into a partition, and so into a task, of its own."""

from __future__ import annotations

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


def shard_ids(shards: int, partitions: int) -> tuple[int, ...]:
    """The smallest ids, one per shard, spread evenly over the partitions. 0 is always among them."""
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
