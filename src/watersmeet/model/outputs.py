"""What a join says about its own work."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Work of one batch on one shard. `closings`, `stored`, `waiting`, `parked`, `stale`, `open_groups` and
    `state_bytes` tell what is there after it, all others count events of the batch."""

    rows_in: int = 0
    late: int = 0
    too_late: int = 0  # tuples that were joined, though what they match may have been forgotten before
    idle: int = 0  # streams that were silent and whose progress was taken from the others'
    violations: int = 0  # tuples that came against a promise of their own stream
    null_keys: int = 0
    lookups: int = 0  # times that an index was asked for a key, where that is not once for each tuple that takes part
    probed: int = 0  # stored tuples looked at while probing
    results: int = 0
    suppressed: int = 0  # results beyond `max_matches_per_row`
    inserted: int = 0  # tuples that entered the state
    checked: int = 0  # buckets looked into for tuples to invalidate
    invalidated: int = 0  # tuples that left it because their window had passed
    purged: int = 0  # tuples that left it because the other streams closed their key
    dead: int = 0  # tuples that did not stay in it, because the other streams had closed their key when they came
    matched: int = 0  # tuples that left it at their first match, of a semi join
    announced: int = 0  # keys of which the output says that no result will come any more
    announced_ranges: int = 0
    closings: int = 0  # keys and ranges that are remembered to be closed
    stored: int = 0  # tuples in the state after the batch
    waiting: int = 0  # tuples that are in memory and do not take part yet, for being sorted first
    parked: int = 0  # ... and on disk, as the other streams lag
    shed: int = 0  # tuples that were forgotten for want of memory, though something might have matched them
    stale: int = 0  # ... of them those that nothing can match any more
    groups: int = 0  # groups that came out
    open_groups: int = 0  # ... and those that are not final after the batch
    state_bytes: int = 0  # bytes of those tuples' rows and lists

    def as_dict(self) -> dict[str, int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}
