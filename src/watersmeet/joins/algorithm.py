"""Algorithms as data: the traits of each, and its options. An algorithm with a query is a `Join`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from numbers import Integral
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from watersmeet.errors import QueryError, WindowError
from watersmeet.joins.base import RunningJoin
from watersmeet.model import durations
from watersmeet.model.queries import HOW, JoinQuery
from watersmeet.model.windows import Interval, RowsWindow, Tumbling, Window
from watersmeet.state.arrays import Arrays

#: Streams that one join takes.
MOST_STREAMS = 8
#: Every kind of join.
ANY_HOW = tuple(HOW)

RunningT_co = TypeVar("RunningT_co", bound=RunningJoin[Any], covariant=True)


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of an algorithm that the planner, the cost models, `explain` and the command line use."""

    name: str
    family: str  # algorithms that run the same loops share the constants of their cost
    preference: int  # among algorithms of equal cost the lowest wins
    streams: int = 2  # at most
    how: tuple[str, ...] = ("inner",)
    windows: tuple[str, ...] = ("time", "interval", "none")  # of `model.windows.KINDS`
    punctuations: bool = False  # whether punctuations about keys are used
    asof: bool = False  # computes as-of joins, and no others
    baseline: bool = False  # takes the tuples of a batch one by one: for experiments
    theta: bool = False  # whether it is for joins without equality, instead of joins on a key
    index: str | None = "hash"  # how tuples of a window are found: "hash", "scan" or "sorted"; None: chosen by cost
    bounded: bool = False  # whether its state is bounded without windows and punctuations
    one_order: bool = False  # of a multi-way join: one order of the streams for all arrivals
    on_request: str | None = None  # why the planner never takes it by itself


class Algorithm(ABC, Generic[RunningT_co]):
    """An algorithm with its options, without a query. Subclasses are frozen dataclasses whose fields are the options.

    An option by itself is checked in ``__post_init__``, options against a query in `check`.
    """

    __slots__ = ()
    traits: ClassVar[Traits]

    @property
    def name(self) -> str:
        """The name of the algorithm, as in `algorithm=`."""
        return self.traits.name

    @property
    def uses_punctuations(self) -> bool:
        """Whether punctuations about keys are used."""
        return self.traits.punctuations

    @classmethod
    def option_fields(cls) -> tuple[Field[Any], ...]:
        """Its options."""
        return fields(cls)  # type: ignore[arg-type]  # every subclass is a dataclass

    def given_options(self) -> dict[str, Any]:
        """The options that are not the default."""
        values = {f.name: (getattr(self, f.name), f.default) for f in self.option_fields()}
        return {name: value for name, (value, default) in values.items() if default is MISSING or value != default}

    def describe(self) -> dict[str, Any]:
        """Name and options as JSON."""
        return {"name": self.name, "options": {f.name: _as_json(getattr(self, f.name)) for f in self.option_fields()}}

    def check(self, query: JoinQuery) -> None:
        """Refuse a query that the algorithm does not compute."""
        traits, n = self.traits, len(query.streams)
        if traits.asof and query.asof is None:
            raise QueryError(
                f'`algorithm` is "{self.name}"; it gives each row one partner, the nearest in time, and `join` all.',
                hint="wm.join_asof(left, right, on=…).",
            )
        if query.asof is not None and not traits.asof:
            raise QueryError(f'"{self.name}" computes no as-of joins.', hint='use algorithm="asof".')
        if query.is_theta != traits.theta:
            without, instead = ("has none", '"theta"') if query.is_theta else ("has one", '"pwjoin"')
            what = "joins without equality" if traits.theta else "joins on a key"
            raise QueryError(
                f'"{self.name}" computes {what}, and this one {without}.', hint=f"use algorithm={instead}."
            )
        if n > traits.streams or query.how not in traits.how:
            kinds = "inner joins" if traits.how == ("inner",) else "joins"
            number = "two streams" if traits.streams == 2 else f"two to {traits.streams} streams"
            hint = 'use algorithm="pwjoin" for two streams.'
            if query.how in traits.how:
                hint = f'use algorithm="{"theta" if traits.theta else "general_lazy"}".'
            if n > MOST_STREAMS:
                hint = "join some of them first, and the result with the others (`as_stream`)."
            raise QueryError(f'"{self.name}" computes {kinds} of {number}; got "{query.how}" of {n}.', hint=hint)
        for stream in query.streams:
            if stream.window.kind not in traits.windows:
                self._refuse_window(stream.name, stream.window)

    def _refuse_window(self, stream: str, window: Window) -> None:
        if isinstance(window, RowsWindow) and self.traits.theta:
            raise WindowError(
                f"stream `{stream}` has a window of {window.rows} rows; sorted indexes are for windows of time.",
                hint='use algorithm="theta".',
            )
        if isinstance(window, RowsWindow) and "time" in self.traits.windows:
            raise WindowError(
                f"stream `{stream}` has a window of {window.rows} rows; this join knows windows of time.",
                hint='use algorithm="general_lazy", which counts rows, for two streams or more.',
            )
        if isinstance(window, Interval):
            raise WindowError(
                f"`{self.name}` does not know bounds between two streams (`between`).",
                hint='use algorithm="hash", "pwjoin" or "nested_loop".',
            )
        if isinstance(window, Tumbling):
            raise WindowError(
                f"`{self.name}` does not know joins within the same {durations.formatted(window.length)}.",
                hint='use algorithm="hash" or "pwjoin".',
            )
        instead = "pwjoin" if self.traits.streams == 2 else "general_lazy"
        raise WindowError(
            f"`{self.name}` knows no windows, and stream `{stream}` has one.",
            hint=f'leave `window` out, or use algorithm="{instead}".',
        )

    def start(self, query: JoinQuery, arrays: Arrays | None = None) -> RunningT_co:
        """The running join with empty state, whose arrays live where `arrays` puts them."""
        self.check(query)
        running = self._start(query, arrays)
        running.operator = self.describe()
        return running

    @abstractmethod
    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningT_co:
        """The running join; the query is checked."""


class Operator(Protocol):
    """What a shard runs, as data: a join, a join with groups, or groups alone."""

    @property
    def query(self) -> JoinQuery: ...

    def start(self, arrays: Arrays | None = None) -> RunningJoin[Any]: ...


@dataclass(frozen=True, slots=True)
class Join(Generic[RunningT_co]):
    """A query and the algorithm that runs it."""

    query: JoinQuery
    algorithm: Algorithm[RunningT_co]

    def __post_init__(self) -> None:
        self.algorithm.check(self.query)

    @property
    def name(self) -> str:
        """The name of the algorithm."""
        return self.algorithm.name

    def start(self, arrays: Arrays | None = None) -> RunningT_co:
        """The running join with empty state, whose arrays live where `arrays` puts them."""
        return self.algorithm.start(self.query, arrays)


def from_json(value: Any) -> Any:
    """An option as it was before `describe`: lists are tuples."""
    return tuple(map(from_json, value)) if isinstance(value, list) else value


def _as_json(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_json(v) for v in value]
    if isinstance(value, Mapping):
        return {name: _as_json(v) for name, v in value.items()}
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
