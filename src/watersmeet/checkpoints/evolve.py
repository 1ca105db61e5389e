"""A stored state for a changed query: what is refused, and from which event time on results are exact.

The state holds the tuples that the old query could still need. A shorter window needs a part of them; a longer one
would also need tuples that have been evicted, and is complete when these are out of the new window, too. Combinations
of tuples that came before the change are not evaluated again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NoReturn

from watersmeet.checkpoints.convert_rows import SplitKeys, without_part
from watersmeet.checkpoints.gaps import GAPS, Gaps
from watersmeet.checkpoints.redistribute import redistribute
from watersmeet.checkpoints.reopen import reopen, window_of
from watersmeet.errors import StateMismatchError
from watersmeet.joins import Operator
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.group_by.operator import GROUPS, RunningGroupedJoin
from watersmeet.model import durations
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.grouping import GroupedQuery
from watersmeet.model.queries import HOW
from watersmeet.model.windows import FOREVER, Interval, RowsWindow, Tumbling, alive_from, format_length, format_window
from watersmeet.state.durable.log import ENDED, Header, MemoryStore, Store
from watersmeet.state.hot_keys.phases import HOT_KEYS

#: Facts of a query and of its streams that may change; all others must stay.
_QUERY = ("how", "where", "filtered_by", "streams", "spread")  # `spread` follows from `how`
_STREAM = ("window", "closed", "delay", "idle_after", "late_share")
#: Facts of a stream that are compared by themselves.
_COMPARED = ("columns", "key", "null_safe", "interval", "tumbling", "rows", "per_key", "idle_clock", "upstream_shards")
#: Durable parts that operators exchange; a state with others belongs to its operator.
_COMMON = (
    *("closed_keys", "rewrite_due", "matched", "gone", "last_active", "last_shown", "delay", "order", "limits"),
    *("collector_metadata", "upstream_watermarks", GAPS, ENDED, HOT_KEYS),
)
#: Aggregates that compare whole rows of results.
_OF_ROWS = ("first", "last", "collect_list")


@dataclass(frozen=True, slots=True)
class Evolution:
    """What has changed, and what is exact: results from event time `exact_from` (microseconds) on.

    `exact_from` is BEFORE_ALL where nothing changes that results depend on, and AFTER_ALL where they never are.
    """

    changes: tuple[str, ...]
    exact_from: int
    cautions: tuple[str, ...]
    changes_query: bool  # not the number of shards alone

    def __str__(self) -> str:
        what = f"Changed: {'; '.join(self.changes)}." if self.changes else "Nothing has changed: a copy."
        return "\n".join([what, self._exact(), *self.cautions])

    def _exact(self) -> str:
        if self.exact_from == BEFORE_ALL:
            return "All results to come are exact."
        if self.exact_from == AFTER_ALL:
            return "Results are not exact at any event time: they lack combinations with evicted rows."
        return (
            f"Results with an event time from {instant(self.exact_from)} on are exact. Combinations of rows that came "
            "before the change are not evaluated again."
        )


def evolve(
    old: Sequence[Store],
    new: Sequence[Store],
    ids: Sequence[int],
    into: Operator,
    split_keys: SplitKeys | None = None,
) -> Evolution:
    """Write the state of the stores `old` into `new`, for the shards `ids` of the changed operator `into`.

    `split_keys` are those that `into` splits. Nothing is written if the state does not suffice.
    """
    comparison = Comparison(_header(old[0]), into)
    comparison.check()
    shards = [f"shards {len(old)} → {len(ids)}"] if len(old) != len(ids) else []
    changes, exact_from = list(comparison.changes()), comparison.exact_from()
    redistribute(old, new, ids, into=into, split_keys=split_keys, metadata=comparison.metadata())
    return Evolution((*changes, *shards), exact_from, tuple(comparison.cautions()), bool(changes))


class Comparison:
    """A stored state beside the operator that is to continue it."""

    def __init__(self, header: Header, into: Operator) -> None:
        self.header, self.into = header, into
        self.behind = header.operator["name"] == GROUPS  # groups of a join in an operator of its own
        self.old: dict[str, Any] = header.query
        self.new: dict[str, Any] = dict(into.query.describe())
        self.pairs: list[tuple[dict[str, Any], dict[str, Any]]] = list(
            zip(self.old["streams"], self.new["streams"], strict=False)
        )

    @cached_property
    def was(self) -> RunningJoin[Any]:
        """The stored state without its tuples."""
        return reopen(replace(self.header, segments=[]), MemoryStore())

    @cached_property
    def starts(self) -> RunningJoin[Any]:
        """The new operator with an empty state."""
        return self.into.start()

    # ------------------------------------------------------------ refusals

    def check(self) -> None:
        """Refuse what the state does not suffice for."""
        self.header.refuse_ended()
        names = [[s["name"] for s in q["streams"]] for q in (self.old, self.new)]
        if names[0] != names[1]:
            _refuse("streams", ", ".join(names[0]), ", ".join(names[1]), "the state holds rows of those streams only")
        for name in (*self.old, *(n for n in self.new if n not in self.old)):
            if name not in _QUERY and self.old.get(name) != self.new.get(name):
                _refuse(name, self.old.get(name), self.new.get(name), "stored groups are of the old ones")
        for was, now in self.pairs:
            self._check_stream(was, now)
        if self.into.query.is_theta and not self.behind:
            self._check_theta()
        self._check_how()
        self._check_operator()

    def _check_stream(self, was: dict[str, Any], now: dict[str, Any]) -> None:
        name = f" of stream `{was['name']}`"
        keys = [without_part(s["key"]) for s in (was, now)]
        if keys[0] != keys[1]:
            was_key, is_key = (", ".join(key) or None for key in keys)
            _refuse(f"key{name}", was_key, is_key, "rows are stored by their key")
        safe = [", ".join(_null_safe(s)) or None for s in (was, now)]
        if safe[0] != safe[1]:
            _refuse(f"null-safe key{name}", safe[0], safe[1], "rows without a value of the others were not stored")
        for fact in (*was, *(f for f in now if f not in was)):
            if fact not in (*_STREAM, *_COMPARED) and was.get(fact) != now.get(fact):
                _refuse(f"{fact}{name}", was.get(fact), now.get(fact), "what was evicted depends on it")
        windows = [window_of(s) for s in (was, now)]
        changed = windows[0] != windows[1] and not all(isinstance(w, Interval) for w in windows)
        if changed and any(isinstance(w, RowsWindow | Interval | Tumbling) for w in windows):
            texts = [format_window(w) for w in windows]
            _refuse(f"window{name}", texts[0], texts[1], "only windows of time have a length that may change")
        if was.get("idle_clock") != now.get("idle_clock"):
            clocks = [format_length(s.get("idle_clock")) for s in (was, now)]
            _refuse(f"idle_clock{name}", clocks[0], clocks[1], "the state has for it when the stream last had a row")
        if (was["delay"] >= FOREVER) != (now["delay"] >= FOREVER):
            _refuse(f"delay{name}", was["delay"], now["delay"], "rows of one are ordered by their keys, not by time")
        for column, kind in was["columns"].items():
            other = now["columns"].get(column, kind)
            if other != kind:
                _refuse(f"column `{column}`{name}", kind, other, "stored rows have values of that type")
        query = self.into.query
        if isinstance(query, GroupedQuery) and self._columns(was, now) != ([], []):
            compared = [name for name, a in query.group_by.aggregates if a.kind in _OF_ROWS]
            if compared:
                _refuse(
                    f"columns{name}", list(was["columns"]), list(now["columns"]), f"`{compared[0]}` compares whole rows"
                )

    def _check_theta(self) -> None:
        """A join without equality goes on as it is: its tuples are copied, not read."""
        for change in self.changes():
            _refuse_change(change)
        for was, now in self.pairs:
            if list(was["columns"]) != list(now["columns"]):
                _refuse_change(f"order of the columns of `{was['name']}`")

    def _check_how(self) -> None:
        was, now = self.old["how"], str(self.new["how"])
        if was == now:
            return
        if was == "semi" and now != "anti":
            _refuse("how", was, now, "a semi join drops a row at its first match, so rows are missing")
        unknown = set(HOW[now]) - set(HOW[was])
        if unknown:
            streams = ", ".join(f"`{self.old['streams'][i]['name']}`" for i in sorted(unknown))
            _refuse("how", was, now, f"the state does not tell which rows of {streams} have matched")

    def _check_operator(self) -> None:
        was, now = self.header.operator, self.starts.operator
        kinds = [{part.kind for part in join.parts()} - set(_COMMON) for join in (self.was, self.starts)]
        if was != now and any(kinds):
            _refuse("operator", _name(was), _name(now), f"its state has {', '.join(sorted(kinds[0] | kinds[1]))}")
        if len(self.was.streams) != len(self.starts.streams):
            _refuse("operator", _name(was), _name(now), "rows that are deferred in one (`every`) are not in the other")
        self.starts.check_operator(was)

    # ------------------------------------------------------------ words

    def changes(self) -> Iterator[str]:
        """The differences, in words."""
        for was, now in self.pairs:
            name = f"of `{was['name']}`"
            added, dropped = self._columns(was, now)
            yield from (f"column `{c}` {name} added" for c in added)
            yield from (f"column `{c}` {name} dropped" for c in dropped)
            if window_of(was) != window_of(now):
                yield f"window {name} {_window_text(was)} → {_window_text(now)}"
            if _delay_text(was) != _delay_text(now):
                yield f"delay {name} {_delay_text(was)} → {_delay_text(now)}"
            idle = [format_length(s.get("idle_after")) for s in (was, now)]
            if idle[0] != idle[1]:
                yield f"idle_after {name} {idle[0]} → {idle[1]}"
        for name in ("how", "where", "filtered_by"):
            if self.old.get(name) != self.new.get(name):
                label = "where" if name == "filtered_by" else name
                yield f"{label} {self.old.get(name, 'none')} → {self.new.get(name, 'none')}"
        names = [_name(o) for o in (self.header.operator, self.starts.operator)]
        if names[0] != names[1]:
            yield f"algorithm {names[0]} → {names[1]}"
        if self.old["streams"][0]["key"] != self.new["streams"][0]["key"]:
            yield "split_keys"

    def cautions(self) -> Iterator[str]:
        """What else is to be known, in sentences."""
        if isinstance(self.into.query, GroupedQuery) and self._matters():
            yield "Groups that are open hold the results that came before the change as they came."
        for i, (was, now) in enumerate(() if self.behind else self.pairs):
            for column in self._columns(was, now)[0]:
                yield f"Column `{column}` of `{was['name']}` is NULL in rows that came before the change."
            evicted = self.gaps.evicted[i]
            if evicted > max(BEFORE_ALL, self._needed_from(i)):
                yield (
                    f"Rows of `{was['name']}` before {instant(evicted)} had been evicted; the longer window does not "
                    "find them."
                )
            if _delay_text(was) != _delay_text(now) and BEFORE_ALL < self.header.watermarks[i] < AFTER_ALL:
                yield (
                    f"The watermark of `{was['name']}` stays at {instant(self.header.watermarks[i])} until newer rows "
                    "move it on with the new delay; rows before it are late."
                )
        if self._dropped():
            yield "Rows that the old `where` excluded by themselves were not stored; the new one does not find them."
        elif not self.behind and self.gaps.excluded > max(BEFORE_ALL, *map(self._needed_from, range(len(self.pairs)))):
            yield f"Rows before {instant(self.gaps.excluded)} that an earlier `where` excluded were not stored."
        before, after = (bool(_join(join).punctuation_sets) for join in (self.was, self.starts))
        if after and not before:
            yield "Keys that were closed before the change are not known: rows against these punctuations are joined."
        if before and not after:
            yield "Punctuations of keys have no effect any more; rows that they had evicted do not come back."

    # ------------------------------------------------------------ exactness

    def exact_from(self) -> int:
        """The event time from which results are those of the new query."""
        if self.behind:
            return BEFORE_ALL
        exact_from = self.gaps.exact_from([s.window for s in self.into.query.streams])
        if self._matters() or isinstance(self.into.query, GroupedQuery):
            return exact_from
        return exact_from if exact_from > min(map(self._needed_from, range(len(self.pairs)))) else BEFORE_ALL

    def metadata(self) -> dict[str, Any]:
        """What the new headers have of the change."""
        return {} if self.behind else {GAPS: self.gaps.metadata()}

    @cached_property
    def gaps(self) -> Gaps:
        """What is missing for the new query: what was missing for the old one, and what the change adds."""
        left, newest = Gaps.of(self.header.metadata, len(self.pairs)), self._newest()
        after = newest + 1 if newest > BEFORE_ALL else BEFORE_ALL
        longer = [min(self.was.alive_from(i), after) if self._longer(i) else BEFORE_ALL for i in range(len(self.pairs))]
        return Gaps(
            tuple(max(both) for both in zip(left.evicted, longer, strict=True)),
            after if self._dropped() else left.excluded,
            after if self._matters() else left.changed,
            newest,
        )

    def _dropped(self) -> bool:
        """Whether rows are missing that the old `where` excluded when they came."""
        return "where" in self.old and self.old["where"] != self.new.get("where") and not self.behind

    def _matters(self) -> bool:
        """Whether results depend on a change."""
        windows = any(window_of(was) != window_of(now) for was, now in self.pairs)
        return windows or any(self.old.get(n) != self.new.get(n) for n in ("how", "where", "filtered_by"))

    def _longer(self, i: int) -> bool:
        """Whether the new window of stream i would need tuples that have been evicted."""
        watermarks = [p for j, p in enumerate(self.header.watermarks) if j != i]
        reach = window_of(self.pairs[i][0]).reach
        evicted = min(watermarks) > BEFORE_ALL and reach < FOREVER
        return evicted and self.into.query.streams[i].window.reach > reach

    def _needed_from(self, i: int) -> int:
        """The event time from which the new window needs rows of stream i."""
        return alive_from(
            self.into.query.streams[i].window, min(p for j, p in enumerate(self.header.watermarks) if j != i)
        )

    def _newest(self) -> int:
        """An event time that no row so far exceeds; where results depend on the change, of all streams."""
        newest = Gaps.of(self.header.metadata, len(self.pairs)).newest  # of rows under a longer delay
        for i, (was, watermark) in enumerate(zip(self.old["streams"], self.header.watermarks, strict=True)):
            if watermark == AFTER_ALL or was.get("upstream_shards"):
                if not self._matters():
                    continue
                what = "has ended" if watermark == AFTER_ALL else "is the output of a join"
                raise StateMismatchError(
                    f"stream `{was['name']}` {what}, so the state does not tell the newest event time of its rows, "
                    "from which the new query could be exact.",
                    hint="keep windows, `how` and `where` as they were, or start from a new checkpoint.",
                )
            if was.get("late_share") is not None:
                newest = max(newest, self.header.metadata["delay"][str(i)]["newest"])
            elif watermark > BEFORE_ALL:
                newest = max(newest, watermark + was["delay"])
        return newest

    def _columns(self, was: dict[str, Any], now: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Added and dropped columns of a stream."""
        before, after = (without_part(s["columns"]) for s in (was, now))
        return [c for c in after if c not in before], [c for c in before if c not in after]


def instant(micros: int) -> str:
    """An event time as text, in UTC."""
    try:
        return (datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)).isoformat(sep=" ")
    except OverflowError:
        return f"{micros} µs"


def _refuse(fact: str, was: Any, now: Any, reason: str) -> NoReturn:
    raise StateMismatchError(
        f"{fact} was {'none' if was is None else was}, is {'none' if now is None else now}; {reason}.",
        hint="undo this change, or start from a new checkpoint, with new folders for what is written.",
    )


def _refuse_change(change: str) -> NoReturn:
    raise StateMismatchError(
        f"{change}: the state is of a join without equality, which goes on as it is or not at all.",
        hint="undo this change, or start from a new checkpoint, with new folders for what is written.",
    )


def _header(store: Store) -> Header:
    data = store.read_header()
    assert data is not None, "every shard has a header"
    return Header.unpack(data)


def _join(join: RunningJoin[Any]) -> RunningJoin[Any]:
    """The join alone, without its groups."""
    return join.join if isinstance(join, RunningGroupedJoin) else join


def _null_safe(stream: dict[str, Any]) -> list[str]:
    """Key columns of which NULLs are equal."""
    flags = stream.get("null_safe") or [False] * len(stream["key"])
    return without_part(column for column, safe in zip(stream["key"], flags, strict=True) if safe)


def _window_text(stream: dict[str, Any]) -> str:
    text = format_window(window_of(stream))
    return f"{text} (half-open)" if stream["closed"] is False else text


def _delay_text(stream: dict[str, Any]) -> str:
    share = stream.get("late_share")
    return durations.formatted(stream["delay"]) if share is None else f"measured (late_share {share})"


def _name(operator: dict[str, Any]) -> str:
    return str(operator.get("join", operator)["name"])
