"""The words of a pipeline: what may stand in a table, and what a value of it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet.model import durations, sizes
from watersmeet.model.queries import HOW
from watersmeet.query.names import near

#: What is wrong with a value, and a hint.
Complaint = tuple[str, str]


@dataclass(frozen=True)
class Word:
    """What a value is: its types, in words for messages; among which texts it is one; a table's own words.

    `names` says that a table's keys are free and each of its values is such a word; `items` the same of an array, for
    which a single item may stand.
    """

    what: str
    kinds: tuple[type, ...]
    required: bool = False
    among: tuple[str, ...] = ()
    complaint: Callable[[Any], Complaint | None] | None = None
    words: Mapping[str, Word] | None = None
    names: Word | None = None
    items: Word | None = None


def _duration(text: str) -> Complaint | None:
    try:
        durations.parse(text, "it")
    except WatersmeetError:
        units = [f"{unit}s" for unit in durations.MICROS]
        words = [w for w in text.lower().split() if w.isalpha() and w.removesuffix("s") not in durations.MICROS]
        meant = get_close_matches(words[0], units, 1) if words else ()
        hint = f"did you mean `{meant[0]}`?" if meant else f'write it like "10 seconds"; units are {", ".join(units)}.'
        return f'"{text}" is not a duration of fixed length.', hint
    return None


def _window(value: Any) -> Complaint | None:
    return _duration(value) if isinstance(value, str) else None


def _or_auto(text: Any) -> Complaint | None:
    return None if text == "auto" else _window(text)


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
    said = None if text == AVAILABLE_NOW else _duration(text)
    if said is None:
        return None
    known = get_close_matches(text, [AVAILABLE_NOW], 1)
    return said[0], f'did you mean "{AVAILABLE_NOW}"?' if known else f'a duration, or "{AVAILABLE_NOW}".'


def _format(known: tuple[str, ...]) -> Callable[[str], Complaint | None]:
    def complaint(text: str) -> Complaint | None:
        meant = () if text in known else get_close_matches(text.lower(), known, 1)
        if meant:
            return f'"{text}" is not a format.', near(text.lower(), known, "known are")
        return None  # another data source on Spark's class path: Spark says whether it knows it

    return complaint


def _positive(value: int) -> Complaint | None:
    return None if value > 0 else (f"it is {value}; there is at least one.", "leave it out for the default.")


AVAILABLE_NOW = "available-now"
FILES = ("csv", "json", "parquet", "orc", "text", "avro")
SOURCES = (*FILES, "kafka", "rate", "socket", "watersmeet")
SINKS = (*FILES, "kafka", "console")
ALGORITHMS = (
    *("auto", "hash", "nested_loop", "windowed_hash", "pjoin", "pwjoin"),
    *("naive_multiway", "eager", "lazy", "general_lazy", "hybrid", "wo_join"),
)

TEXT = Word("a text", (str,))
NUMBER = Word("a whole number", (int,))
COUNT = replace(NUMBER, complaint=_positive)
FLAG = Word("true or false", (bool,))
SQL = Word("an expression in Spark SQL", (str,))
DURATION = Word('a duration like "10 seconds"', (str,), complaint=_duration)
OPTION = Word("a text, a number, true or false", (str, int, float, bool))
OPTIONS = Word("a table of options", (dict,), names=OPTION)
TEXTS = Word("a text or several", (str, list), items=TEXT)
ROWS = {"rows": replace(COUNT, required=True), "per_key": FLAG}

#: Where punctuations come from: one of these, and what belongs to it.
SIGNS: dict[str, tuple[str, ...]] = {
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
    "slack": Word("a number", (int, float)),
    "on": TEXTS,
    "low": Word("an expression in Spark SQL, or a number", (str, int, float)),
    "high": Word("an expression in Spark SQL, or a number", (str, int, float)),
    "closed": replace(TEXT, among=("both", "left", "right", "neither")),
    "time": TEXT,
}
STREAM = {
    "format": replace(TEXT, required=True, complaint=_format(SOURCES)),
    "path": TEXT,
    "options": OPTIONS,
    "schema": Word('columns and types, like "id BIGINT, at TIMESTAMP"', (str,)),
    "value": replace(TEXT, among=("json", "avro", "text")),
    "prefix_bytes": COUNT,
    "malformed": replace(TEXT, among=("fail", "drop")),
    "select": replace(TEXTS, what="an expression in Spark SQL, or several"),
    "time": replace(TEXT, required=True),
    "window": Word("a duration, or { rows = 1000 }", (str, dict), complaint=_window, words=ROWS),
    "delay": Word('a duration like "10 seconds", or "auto"', (str,), complaint=_or_auto),
    "late_share": Word("a number between 0 and 1", (float,), complaint=_share),
    "idle_after": DURATION,
    "order_by": TEXT,
    "punctuation": Word(
        'a table like { unique = "id" }, or several',
        (dict, list),
        items=Word('a table like { unique = "id" }', (dict,), words=PUNCTUATION),
    ),
}
JOIN = {
    "streams": Word("names of streams", (list,), items=TEXT),
    "on": replace(TEXTS, what="a column, or several", required=True),
    "how": replace(TEXT, among=tuple(HOW)),
    "where": SQL,
    "window": Word('a duration, { rows = 1000 }, or "auto"', (str, dict), complaint=_or_auto, words=ROWS),
    "memory": Word('a size like "256 MB"', (str, int), complaint=_size),
    "strategy": TEXT,
    "algorithm": replace(TEXT, among=ALGORITHMS),
    "order": Word("names of streams", (list,), items=TEXT),
    "on_violation": replace(TEXT, among=("drop", "error")),
    "allow_unbounded": FLAG,
    "closed": FLAG,
    "max_matches_per_row": COUNT,
    "options": Word("a table of the operator's own options", (dict,), names=OPTION),
}
SINK = {
    "format": replace(TEXT, required=True, complaint=_format(SINKS)),
    "path": TEXT,
    "options": OPTIONS,
    "key": SQL,
    "value": replace(TEXT, among=("json", "avro")),
    "schema": TEXT,
    "headers": Word("a table of expressions in Spark SQL", (dict,), names=SQL),
}
SESSION = {
    "master": TEXT,
    "shards": COUNT,
    "memory": Word('a size like "2g"', (str,)),
    "packages": Word("coordinates of Maven packages", (list,), items=TEXT),
    "settings": OPTIONS,
}
PIPELINE = Word(
    "a pipeline",
    (dict,),
    words={
        "name": TEXT,
        "checkpoint": replace(TEXT, required=True),
        "trigger": Word(f'a duration, or "{AVAILABLE_NOW}"', (str,), complaint=_trigger),
        "query": Word("a query in CQL", (str,)),
        "join": Word("a table", (dict,), words=JOIN),
        "streams": Word("a table", (dict,), required=True, names=Word("a table", (dict,), words=STREAM)),
        "sinks": Word(
            "a table", (dict,), required=True,
            words={name: Word("a table", (dict,), words=SINK) for name in ("results", "late", "punctuations")},
        ),
        "session": Word("a table", (dict,), words=SESSION),
    },
)  # fmt: skip
