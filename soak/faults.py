"""All kinds of faults."""

from __future__ import annotations

from soak import checkpoint_faults, file_faults, process_faults
from soak.kinds import CLUSTER, LOCAL, about

assert checkpoint_faults, "imported for their kinds"
assert file_faults, "imported for their kinds"
assert process_faults, "imported for their kinds"

__all__ = ["CLUSTER", "LOCAL", "about"]
