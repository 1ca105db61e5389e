"""Counters of the work of a join."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Work of one batch on one shard. `closed_keys`, `stored`, `stale`, `deferred`, `spilled`, `open_groups`,
    `state_bytes` and `spilled_bytes` are amounts after it, all others count events of the batch."""

    rows_in: int = 0
    late: int = 0
    too_late: int = 0  # tuples that were joined, though partners of theirs may have been evicted before
    idle: int = 0  # silent streams whose watermark followed the others, or the clock
    violations: int = 0  # tuples that violate a punctuation or constraint of their own stream
    null_keys: int = 0
    lookups: int = 0  # lookups of a key in an index, where that is not one for each tuple that takes part
    probed: int = 0  # stored tuples looked at while probing
    results: int = 0
    suppressed: int = 0  # results beyond `max_matches_per_row`
    inserted: int = 0  # tuples that entered the state
    checked: int = 0  # buckets searched for tuples to expire
    expired: int = 0  # tuples that left the state because their window had passed
    purged: int = 0  # tuples that left the state because the other streams closed their key
    dead: int = 0  # tuples that were not stored, because the other streams had closed their key before
    matched: int = 0  # tuples that left the state at their first match, of a semi join
    propagated: int = 0  # closed keys that were propagated to the output
    propagated_ranges: int = 0  # ranges likewise
    closed_keys: int = 0  # closed keys and ranges in the punctuation sets
    stored: int = 0  # tuples in the state after the batch
    stale: int = 0  # stored tuples that nothing can match any more
    deferred: int = 0  # tuples in memory that do not take part yet, because they are sorted first
    spilled: int = 0  # tuples on disk that do not take part yet, because the other streams lag
    shed: int = 0  # tuples that were evicted for lack of memory, though later tuples might have matched them
    groups: int = 0  # groups that came out
    open_groups: int = 0  # groups that are not final after the batch
    state_bytes: int = 0  # bytes of the stored tuples, their rows and lists
    spilled_bytes: int = 0  # bytes of rows in files on a disk, beyond `memory`; dead ones are counted, too

    def as_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}
