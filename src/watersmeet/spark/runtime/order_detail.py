"""How much of the order of a stream's keys is sent to the shards, for joins that use it."""

from __future__ import annotations

from enum import IntEnum

from watersmeet.joins import Join
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.wo_join.operator import WOJoin


class OrderDetail(IntEnum):
    """Nothing; the order of keys, in blocks; the position of every single row as well."""

    NOTHING, BLOCKS, POSITIONS = range(3)


def order_detail_of(join: object) -> OrderDetail:
    """How much of the order a join needs."""
    if isinstance(join, GroupedJoin):
        return order_detail_of(join.join)
    if not isinstance(join, Join) or not isinstance(join.algorithm, WOJoin):
        return OrderDetail.NOTHING
    return OrderDetail.POSITIONS if join.algorithm.buffer == "learned" else OrderDetail.BLOCKS
