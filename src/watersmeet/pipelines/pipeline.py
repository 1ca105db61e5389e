"""A pipeline as data. Values from the environment are filled in, so options are left out of `repr`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Options = Mapping[str, str]


@dataclass(frozen=True)
class Source:
    """A stream: its source, schema, window and punctuations."""

    name: str
    format: str
    time: str
    path: str | None = None
    options: Options = field(default_factory=dict, repr=False)
    schema: str | None = None
    value: str = "json"  # of a message: json, avro or text
    prefix_bytes: int = 0
    malformed: str = "fail"
    select: tuple[str, ...] = ("*",)
    window: str | Mapping[str, Any] | None = None
    delay: str = "0 seconds"
    late_share: float | None = None
    idle_after: str | None = None
    idle_clock: str | None = None
    filter: str | None = None
    order_by: str | None = None
    punctuation: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Sink:
    """Where results, late rows or punctuations go."""

    name: str
    format: str
    path: str | None = None
    options: Options = field(default_factory=dict, repr=False)
    key: str | None = None
    value: str = "json"
    schema: str | None = None
    headers: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Session:
    """Settings of the Spark session."""

    master: str | None = None
    shards: int | None = None
    tasks: int | None = None
    memory: str | None = None
    packages: tuple[str, ...] = ()
    settings: Options = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Pipeline:
    """Sources, a `query` or the arguments of a `join`, and sinks."""

    name: str
    checkpoint: str
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    query: str | None = None
    join: Mapping[str, Any] | None = None
    trigger: str | None = None
    ends: bool = False
    session: Session = Session()

    @property
    def formats(self) -> set[str]:
        """All data formats that it uses, those of messages included."""
        both: tuple[Source | Sink, ...] = (*self.sources, *self.sinks)
        return {one.format for one in both} | {one.value for one in both if one.format == "kafka"}
