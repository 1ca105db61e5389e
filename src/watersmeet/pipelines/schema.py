"""The schema of a pipeline: the keys of each table, and the values they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.errors import WatersmeetError, did_you_mean, nearest, suggestion
from watersmeet.joins import REGISTRY
from watersmeet.model import durations, sizes
from watersmeet.model.queries import HOW, SPARK_HOW, join_kind
from watersmeet.model.windows import CLOSED

#: A message about a value, and a hint.
Complaint = tuple[str, str]


@dataclass(frozen=True)
class ValueSpec:
    """A value: `what` describes it in messages, `kinds` are its types, `among` the strings that are allowed.

    A table has fixed `keys`, or any keys, with values like `names`. The items of an array are like `items`; a single
    item may replace the array.
    """

    what: str
    kinds: tuple[type, ...]
    required: bool = False
    among: tuple[str, ...] = ()
    complaint: Callable[[Any], Complaint | None] | None = None
    keys: Mapping[str, ValueSpec] | None = None
    names: ValueSpec | None = None
    items: ValueSpec | None = None


def _duration(text: str) -> Complaint | None:
    try:
        durations.parse(text, "it")
    except WatersmeetError:
        units = [f"{unit}s" for unit in durations.MICROS]
        wrong = [w for w in text.lower().split() if w.isalpha() and durations.unit_of(w) is None]
        near = did_you_mean(wrong[0], units) if wrong else None
        hint = near or f'write it like "10 seconds"; units are {", ".join(units)}.'
        return f'"{text}" is not a duration of fixed length.', hint
    return None


def _at_least(least: int, why: str) -> Callable[[Any], Complaint | None]:
    """A check that a duration has at least so many microseconds."""

    def complaint(value: Any) -> Complaint | None:
        if not isinstance(value, str):
            return None
        wrong = _duration(value)
        if wrong is None and durations.parse(value, "it") < least:
            return f'"{value}" is too short: {why}.', 'write it like "10 seconds".'
        return wrong

    return complaint


_window = _at_least(0, "a window reaches back in time, so it is not negative")
_delay = _at_least(0, "a row cannot come before it happened")


def _or_auto(complaint: Callable[[Any], Complaint | None]) -> Callable[[Any], Complaint | None]:
    return lambda text: None if text == "auto" else complaint(text)


def _size(value: Any) -> Complaint | None:
    try:
        sizes.parse(value, "it")
    except WatersmeetError as error:
        what, _, hint = str(error).partition("\nHint: ")
        return what, hint or 'write it like "256 MB".'
    return None


def _share(value: float) -> Complaint | None:
    return None if 0 < value < 1 else (f"it is {value}; a share is between 0 and 1.", "write late_share = 0.001.")


def _trigger(text: str) -> Complaint | None:
    wrong = None if text == AVAILABLE_NOW else _at_least(0, "time does not run backwards")(text)
    if wrong is None:
        return None
    return wrong[0], did_you_mean(text, [AVAILABLE_NOW], '"{}"'.format) or f'a duration, or "{AVAILABLE_NOW}".'


def _how(text: str) -> Complaint | None:
    try:
        join_kind(text)
    except WatersmeetError:
        return f'"{text}" is no kind of join.', suggestion(text.lower(), [*HOW, *SPARK_HOW], "it is one of")
    return None


def _format(known: tuple[str, ...]) -> Callable[[str], Complaint | None]:
    def complaint(text: str) -> Complaint | None:
        if text not in known and nearest(text.lower(), known):
            return f'"{text}" is not a format.', suggestion(text.lower(), known, "known are")
        return None  # maybe another data source on Spark's class path: Spark checks it

    return complaint


def _positive(value: int) -> Complaint | None:
    return None if value > 0 else (f"it is {value}; there is at least one.", "leave it out for the default.")


AVAILABLE_NOW = "available-now"
FILES = ("csv", "json", "parquet", "orc", "text", "avro")
SOURCES = (*FILES, "kafka", "rate", "socket", "watersmeet")
TABLES = ("delta", "iceberg")
SINKS = (*FILES, *TABLES, "kafka", "console")

TEXT = ValueSpec("a string", (str,))
NUMBER = ValueSpec("a whole number", (int,))
COUNT = replace(NUMBER, complaint=_positive)
FLAG = ValueSpec("true or false", (bool,))
SQL = ValueSpec("an expression in Spark SQL", (str,))
DURATION = ValueSpec('a duration like "10 seconds"', (str,), complaint=_duration)
OPTION = ValueSpec("a string, a number, true or false", (str, int, float, bool))
ENDS = ValueSpec("a string, true or false", (str, bool), among=CLOSED)
OPTIONS = ValueSpec("a table of options", (dict,), names=OPTION)
TEXTS = ValueSpec("a string or several", (str, list), items=TEXT)
ROWS = {"rows": replace(COUNT, required=True), "per_key": FLAG}

#: Kinds of punctuations and constraints, each with the further keys that it takes.
RULES: dict[str, tuple[str, ...]] = {
    "unique": (),
    "clustered": (),
    "ordered": ("slack",),
    "when": ("on", "values", "low", "high", "closed"),
    "heartbeat": ("time",),
    "end": (),
}
PUNCTUATION = {
    **dict.fromkeys(("unique", "clustered", "ordered"), TEXT),
    **dict.fromkeys(("when", "heartbeat", "end", "values"), SQL),
    "slack": ValueSpec("a number", (int, float)),
    "on": ValueSpec(
        "a column or several, or a table of columns and expressions", (str, list, dict), names=SQL, items=TEXT
    ),
    "low": ValueSpec("an expression in Spark SQL, or a number", (str, int, float)),
    "high": ValueSpec("an expression in Spark SQL, or a number", (str, int, float)),
    "closed": ENDS,
    "time": TEXT,
}
STREAM = {
    "format": replace(TEXT, required=True, complaint=_format(SOURCES)),
    "path": TEXT,
    "options": OPTIONS,
    "schema": ValueSpec('columns and types, like "id BIGINT, at TIMESTAMP"', (str,)),
    "value": replace(TEXT, among=("json", "avro", "text")),
    "prefix_bytes": COUNT,
    "malformed": replace(TEXT, among=("fail", "drop", "sink")),
    "select": replace(TEXTS, what="an expression in Spark SQL, or several"),
    "time": replace(TEXT, required=True),
    "window": ValueSpec("a duration, or { rows = 1000 }", (str, dict), complaint=_window, keys=ROWS),
    "delay": ValueSpec('a duration like "10 seconds", or "auto"', (str,), complaint=_or_auto(_delay)),
    "late_share": ValueSpec("a number between 0 and 1", (float,), complaint=_share),
    "idle_after": replace(DURATION, complaint=_at_least(1, "every stream is silent for a moment")),
    "idle_clock": replace(DURATION, complaint=_at_least(1, "every stream is silent for a moment")),
    "filter": SQL,
    "order_by": TEXT,
    "punctuation": ValueSpec(
        'a table like { unique = "id" }, or several',
        (dict, list),
        items=ValueSpec('a table like { unique = "id" }', (dict,), keys=PUNCTUATION),
    ),
}
JOIN = {
    "streams": ValueSpec("names of streams", (list,), items=TEXT),
    "on": replace(TEXTS, what="a column, or several", required=True),
    "how": replace(TEXT, complaint=_how),
    "where": SQL,
    "window": ValueSpec('a duration, { rows = 1000 }, or "auto"', (str, dict), complaint=_or_auto(_window), keys=ROWS),
    "memory": ValueSpec('a size like "256 MB"', (str, int), complaint=_size),
    "strategy": TEXT,
    "algorithm": replace(TEXT, among=("auto", *REGISTRY)),
    "order": ValueSpec("names of streams", (list,), items=TEXT),
    "on_violation": replace(TEXT, among=("drop", "error")),
    "allow_unbounded": FLAG,
    "between": ValueSpec("two durations, the lower and the upper bound", (list,), items=DURATION),
    "closed": ENDS,
    "max_matches_per_row": COUNT,
    "options": ValueSpec("a table of the operator's own options", (dict,), names=OPTION),
}
SINK = {
    "format": replace(TEXT, required=True, complaint=_format(SINKS)),
    "path": TEXT,
    "options": OPTIONS,
    "key": SQL,
    "value": replace(TEXT, among=("json", "avro")),
    "schema": TEXT,
    "headers": ValueSpec("a table of expressions in Spark SQL", (dict,), names=SQL),
}
#: What a pipeline may write, a sink each.
SINK_NAMES = ("results", "late", "violations", "malformed", "punctuations")
SESSION = {
    "master": TEXT,
    "shards": COUNT,
    "tasks": COUNT,
    "memory": ValueSpec('a size like "2g"', (str,)),
    "packages": ValueSpec("coordinates of Maven packages", (list,), items=TEXT),
    "settings": OPTIONS,
}
PIPELINE = ValueSpec(
    "a pipeline",
    (dict,),
    keys={
        "name": TEXT,
        "checkpoint": replace(TEXT, required=True),
        "trigger": ValueSpec(f'a duration, or "{AVAILABLE_NOW}"', (str,), complaint=_trigger),
        "ends": FLAG,
        "query": ValueSpec("a query in CQL", (str,)),
        "join": ValueSpec("a table", (dict,), keys=JOIN),
        "streams": ValueSpec("a table", (dict,), required=True, names=ValueSpec("a table", (dict,), keys=STREAM)),
        "sinks": ValueSpec(
            "a table", (dict,), required=True,
            keys={name: ValueSpec("a table", (dict,), keys=SINK) for name in SINK_NAMES},
        ),
        "session": ValueSpec("a table", (dict,), keys=SESSION),
    },
)  # fmt: skip
