"""What a join says about its own work."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Work of one batch on one shard. All but `stored` and `state_bytes` count events of the batch."""

    rows_in: int = 0
    late: int = 0
    null_keys: int = 0
    probed: int = 0  # stored tuples looked at while probing
    results: int = 0
    inserted: int = 0  # tuples that entered the state
    invalidated: int = 0  # tuples that left it because their window had passed
    stored: int = 0  # tuples in the state after the batch
    state_bytes: int = 0  # bytes of those tuples' rows and lists

    def as_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}
