"""What is told of the order of a stream's keys, for joins that go by it."""

from __future__ import annotations

from enum import IntEnum

from watersmeet.joins.group_by import GroupedJoin
from watersmeet.joins.wo_join import WOJoin


class Measuring(IntEnum):
    """Nothing; how the keys ascend, in blocks; where every single row stood as well."""

    NOTHING, BLOCKS, POSITIONS = range(3)


def measuring_of(join: object) -> Measuring:
    """What a join needs to be told."""
    if isinstance(join, GroupedJoin):
        return measuring_of(join.join)
    if not isinstance(join, WOJoin):
        return Measuring.NOTHING
    return Measuring.POSITIONS if join.buffer == "learned" else Measuring.BLOCKS
