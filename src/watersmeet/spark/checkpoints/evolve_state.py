"""`wm.evolve_state`: a new checkpoint with which a changed query continues a stopped one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from watersmeet.checkpoints import evolve
from watersmeet.checkpoints.convert_rows import SplitKeys
from watersmeet.checkpoints.evolve import Evolution
from watersmeet.errors import QueryError, StateMismatchError
from watersmeet.joins import Operator as EngineOperator
from watersmeet.joins.group_by.operator import GROUPS, GroupedJoin, GroupsOf
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.spark.checkpoints.rescale import BatchLog, NewState, checkpoint_folder, new_folder, write_anew
from watersmeet.spark.checkpoints.result_folder import location
from watersmeet.spark.checkpoints.seed_results import is_undelivered
from watersmeet.spark.checkpoints.state_reader import Operator, State, moment, read_state
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.joined import Joined
from watersmeet.spark.planning.arguments import require_join
from watersmeet.spark.session import shards_and_tasks
from watersmeet.state.durable.log import Store


@dataclass(frozen=True)
class Evolved:
    """The new checkpoint: its `state`, what has changed, and what is exact; `str()` has it in words.

    Results are those of the changed query from event time `exact_from` on; None: all to come are. `never_exact` is
    True where evicted rows are missing for ever.
    """

    state: State
    changes: tuple[str, ...]
    exact_from: datetime | None
    never_exact: bool
    cautions: tuple[str, ...]
    text: str

    def __repr__(self) -> str:
        return f"<Evolved {self.state.checkpoint}: {'; '.join(self.changes) or 'a copy'}>"

    def __str__(self) -> str:
        return self.text


def evolve_state(checkpoint: str | Path, to: str | Path, joined: Joined | Grouped) -> Evolved:
    """Write the checkpoint `to`, with which the changed query `joined` continues that of `checkpoint`.

    The query of `checkpoint` has stopped; its checkpoint is only read. The next batch has the next number and reads on
    where the last one ended. Payload columns may be added (NULL in stored rows) or dropped; windows of time, the bounds
    of `between`, `delay`, `idle_after`, `where`, the algorithm, the number of shards and `split_keys` may change, and
    `how` where the state tells what the new kind needs. All else (streams, keys, types, constraints, windows of rows,
    groups, `idle_clock`, joins without equality) must stay as it was, and is refused by name. So is a checkpoint that
    has ended; and a change where a batch was begun and not completed, which may be in the sinks. With an unchanged
    query the new checkpoint is a copy.

    ``print`` what it returns: it says from which event time on results are those of the new query. A longer window is
    complete when the rows that had been evicted before the change are out of it. Both checkpoints may be on any file
    system that Spark reads and writes; over Spark Connect they are folders of this machine. A run that fails leaves a
    checkpoint `to` that starts no query, or none.
    """
    require_join(joined, "evolve_state")
    if not joined.streaming:
        raise QueryError(
            "`joined` is of static DataFrames; a state is continued by a streaming query.",
            hint="read the inputs with spark.readStream.",
        )
    plain = joined.joined if isinstance(joined, Grouped) else joined
    spark = plain.streams[0].df.sparkSession
    old, target = checkpoint_folder(spark, checkpoint, "checkpoint"), new_folder(spark, to, "to")
    if is_undelivered(old):
        raise StateMismatchError(
            f"`checkpoint` {old} has results of its seed that are not delivered; those of a changed query may differ.",
            hint="run the unchanged query once with wm.write, which delivers them.",
        )
    made: list[_Evolving] = []

    def new_state(state: State, log: BatchLog) -> NewState:
        made.append(_Evolving(state, *shards_and_tasks(spark), joined, log))
        return made[0]

    write_anew(spark, old, target, new_state)
    state, evolution = read_state(spark, location(to, "to")), made[0].evolution()
    exact_from, never = evolution.exact_from, evolution.exact_from == AFTER_ALL
    return Evolved(state, evolution.changes, moment(exact_from), never, evolution.cautions, str(evolution))


class _Evolving(NewState):
    """The state of each operator, continued by an operator of the changed query."""

    def __init__(self, state: State, shards: int, tasks: int, joined: Joined | Grouped, log: BatchLog) -> None:
        super().__init__(state, shards, tasks)
        self.log = log
        self.into: dict[int, EngineOperator] = {}
        self.of: dict[int, tuple[int, ...]] = {}
        self.split_keys: SplitKeys | None = (joined.joined if isinstance(joined, Grouped) else joined).split_keys
        self.evolutions: list[Evolution] = []
        if len(joined._operators) != len(state.operators):
            raise StateMismatchError(
                f"`checkpoint` has the state of {_count(len(state.operators))}, and the query has "
                f"{len(joined._operators)}.",
                hint="keep the groups and the joins of joins as they were, or start from a new checkpoint.",
            )
        if any(s.upstream is not None for s in (joined.joined if isinstance(joined, Grouped) else joined).streams):
            self._pair_equal(joined)
        else:
            self._pair(_operators(joined))

    def _pair(self, operators: Sequence[tuple[EngineOperator, tuple[int, ...]]]) -> None:
        """A join, with or without groups: its operators differ in kind."""
        for new, ids in operators:
            behind = isinstance(new, GroupsOf)
            same = [o for o in self.state.operators if (o.sample.operator["name"] == GROUPS) == behind]
            if len(same) != 1:
                raise StateMismatchError(
                    "the groups of `joined` and those of `checkpoint` are kept by different operators.",
                    hint="group by the same columns as before, or start from a new checkpoint.",
                )
            self.into[same[0].id], self.of[same[0].id] = new, ids

    def _pair_equal(self, joined: Joined | Grouped) -> None:
        """A join of joins, whose operators stay as they are but for their number of shards."""
        for operator in self.state.operators:
            stored = _plain(operator.sample.query)
            same = [ids for query, ids in joined._operators if _plain(query.describe()) == stored]
            if not same:
                streams = ", ".join(s["name"] for s in operator.sample.query["streams"])
                raise StateMismatchError(
                    f"the join of {streams} has changed, and the query is a join of joins: results of one that are "
                    "stored in another could not be changed with it.",
                    hint="undo the change, or start from a new checkpoint, with new folders for what is written.",
                )
            self.of[operator.id] = same[0]

    def ids(self, operator: Operator) -> tuple[int, ...]:
        return self.of[operator.id]

    def write(self, operator: Operator, old: Sequence[Store], new: Sequence[Store]) -> None:
        if operator.id not in self.into:
            super().write(operator, old, new)
            return
        evolution = evolve.evolve(old, new, self.ids(operator), self.into[operator.id], self.split_keys)
        if self.log.begun is not None and evolution.changes_query:
            raise StateMismatchError(
                f"`joined` has changed ({'; '.join(evolution.changes)}), and `checkpoint` {self.log.folder} has begun "
                f"batch {self.log.begun}, whose rows may be in the sinks; the changed query would run it as another "
                "batch.",
                hint='run the unchanged query once, e.g. with trigger={"availableNow": True}: it completes that batch.',
            )
        self.evolutions.append(evolution)

    def evolution(self) -> Evolution:
        """That of all operators."""
        changes = [c for e in self.evolutions for c in e.changes]
        cautions = [c for e in self.evolutions for c in e.cautions]
        exact_from = max((e.exact_from for e in self.evolutions), default=BEFORE_ALL)
        changes_query = any(e.changes_query for e in self.evolutions)
        return Evolution(tuple(dict.fromkeys(changes)), exact_from, tuple(dict.fromkeys(cautions)), changes_query)


def _operators(joined: Joined | Grouped) -> list[tuple[EngineOperator, tuple[int, ...]]]:
    """The operators that keep state, with the ids of their shards."""
    if isinstance(joined, Joined):
        return [(joined.operator, joined.ids)]
    of_join, ids = joined.joined.operator, joined.joined.ids
    if joined._inside():
        return [(GroupedJoin(of_join, joined.query), ids)]
    return [(of_join, ids), (GroupsOf(joined.query, len(ids)), ids)]


def _plain(query: dict[str, Any]) -> dict[str, Any]:
    """A description without the numbers of upstream shards."""
    streams = [{k: v for k, v in s.items() if k != "upstream_shards"} for s in query["streams"]]
    return query | {"streams": streams}


def _count(operators: int) -> str:
    return f"{operators} operator{'s' if operators != 1 else ''}"
