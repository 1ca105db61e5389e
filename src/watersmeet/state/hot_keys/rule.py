"""When a key is split, and when it is merged again: the decision after each batch, for a later one.

A key is hot in a batch if it alone has its shard do 20 % more than the mean of all shards: of `shards` shards one that
has a share s of all rows has 1 + (shards - 1) s times the mean. It must have 10,000 rows of the batch, below which a
shard is done in milliseconds anyway, and copying must cost less than it brings: the copied stream's rows of the key,
once for each shard, are at most as many as those of the other. A key that was hot in three batches in a row is split;
it is merged when it was below half of all that in ten batches in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from watersmeet.state.hot_keys.phases import HotKey, Phase, Reached, Table

#: Entries of a table: every shard's header, and every batch's blobs, have it.
MOST_KEYS = 32
#: The next phase of a key that is hot, and of one that is not.
_SPLIT = {Phase.COPYING: Phase.SPREAD, Phase.COOLING: Phase.SPREAD, Phase.EXPIRING: Phase.COPYING}
_MERGE: dict[Phase, Phase | None] = {
    Phase.COPYING: Phase.EXPIRING,
    Phase.SPREAD: Phase.COOLING,
    Phase.COOLING: Phase.EXPIRING,
    Phase.EXPIRING: None,
}


@dataclass(frozen=True, slots=True)
class Load:
    """Rows of a key in a batch, of both streams."""

    key: str
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """The numbers of the rule: how much above the mean a shard is, the rows, and the batches in a row."""

    above: float = 0.2
    rows: int = 10_000
    hot_batches: int = 3
    cool_batches: int = 10

    def fits(self, load: Load, spread: int, total: int, shards: int, share: float = 1.0) -> bool:
        """Whether a key is hot in a batch of so many rows; with a `share`, by this part of the bounds."""
        own, copied = load.rows[spread], load.rows[1 - spread]
        enough = own >= share * self.rows and share * copied * shards <= own
        return enough and own * (shards - 1) >= share * self.above * total


@dataclass
class Decision:
    """Decides the tables of a query with `shards` shards, of which the streams `spreadable` may be spread.

    It counts batches; what it has counted is lost with a restart, which delays a decision and changes no result.
    """

    shards: int
    spreadable: Sequence[int]
    rule: Rule = field(default_factory=Rule)
    hot: dict[int, int] = field(default_factory=dict)  # batches in a row in which a key was hot
    cool: dict[int, int] = field(default_factory=dict)  # and in which a key of the table was not warm

    def next(self, table: Table, reached: Reached, loads: dict[int, Load], total: int) -> dict[int, HotKey]:
        """The table of the next batch, by that of the last one and the rows that it had."""
        hot = {word: stream for word, load in loads.items() if (stream := self._spread(load, total)) is not None}
        self.hot = {word: self.hot.get(word, 0) + 1 for word in hot}
        warm = [
            w for w, e in table.items() if self.spreadable and w in loads and self._is_warm(loads[w], e.spread, total)
        ]
        self.cool = {word: 0 if word in warm else self.cool.get(word, 0) + 1 for word in table}
        out: dict[int, HotKey] = {}
        for word, entry in table.items():
            keep = self.cool[word] < self.rule.cool_batches
            if entry.phase == Phase.EXPIRING:
                keep = hot.get(word) == entry.spread and self.hot[word] >= self.rule.hot_batches
            following = reached.following(entry)
            phase = _SPLIT.get(entry.phase, entry.phase) if keep else _MERGE[entry.phase]
            found = following.get(phase, entry)
            if found is not None:
                out[word] = found
        for word, stream in hot.items():
            if word not in table and self.hot[word] >= self.rule.hot_batches and len(out) < MOST_KEYS:
                out[word] = reached.begin(loads[word].key, stream)
        return out

    def _is_warm(self, load: Load, spread: int, total: int) -> bool:
        return self.rule.fits(load, spread, total, self.shards, 0.5)

    def _spread(self, load: Load, total: int) -> int | None:
        """The stream of a key that is to be spread; None: the key is not hot."""
        most = max(self.spreadable, key=lambda stream: load.rows[stream], default=None)
        return most if most is not None and self.rule.fits(load, most, total, self.shards) else None
