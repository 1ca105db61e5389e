"""Everything Watersmeet raises on purpose.

::

    WatersmeetError
    ├── QueryError            the join as requested makes no sense (also a ValueError)
    │   ├── ColumnError       a column is unknown, clashes or has the wrong type
    │   ├── WindowError       a window or delay is missing, negative or cannot be kept
    │   ├── MethodError       a method of a DataFrame was called on a join or a stream (also an AttributeError)
    │   └── PipelineError     the file of a pipeline has mistakes; all of them are listed
    ├── SettingError          the Spark session lacks a setting
    ├── StateError            what the checkpoint holds cannot be used
    │   ├── StateFormatError  ... it was written in another format
    │   ├── StateMismatchError... it belongs to another query, window, key or number of shards
    │   └── StateCorruptError ... a part is missing or its checksum is wrong
    ├── MemoryLimitError      the state does not fit the memory that it was given
    ├── EventError            a file holds no events, or those of another version
    ├── ViolationError        a row violates a punctuation, and `on_violation` is "error"
    └── MissingExtraError     an optional package is not installed

Messages name the argument, the rule, the reason, and end in a hint.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches


class WatersmeetError(Exception):
    """Root of all errors of this package. The hint is an attribute and the last line of the text.

    >>> error = WatersmeetError("there is no column `prise`.", hint="did you mean `price`?")
    >>> error.hint
    'did you mean `price`?'
    >>> print(error)
    there is no column `prise`.
    Hint: did you mean `price`?
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(f"{message}\nHint: {hint}" if hint else message)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), str(self), self.hint))


def _rebuild(kind: type[WatersmeetError], text: str, hint: str | None) -> WatersmeetError:
    """Unpickle an error (they travel from worker to driver); its text has the hint already."""
    error = kind(text)
    error.hint = hint
    return error


class QueryError(WatersmeetError, ValueError):
    """The join as requested makes no sense; nothing was started."""


class MethodError(QueryError, AttributeError):
    """A method of a DataFrame was called on a join or a stream, which has a DataFrame but is not one."""


class ColumnError(QueryError):
    """A column is unknown, stands in two streams under one name, or has a type that does not fit."""


class WindowError(QueryError):
    """A window or delay is missing, negative or cannot be kept."""


class PipelineError(QueryError):
    """The file of a pipeline has mistakes; the message lists all of them, with their lines."""


class SettingError(WatersmeetError):
    """The Spark session lacks a setting that exact results depend on."""


class StateError(WatersmeetError):
    """What the checkpoint holds cannot be used; it was left as it is."""


class StateFormatError(StateError):
    """The state was written in a format that this version does not read."""


class StateMismatchError(StateError):
    """The state belongs to another query: other windows, keys, columns or number of shards."""


class StateCorruptError(StateError):
    """A part of the state is missing or is not what was written."""


class MemoryLimitError(WatersmeetError):
    """The state of a join does not fit the memory that it was given, and no tuple may be evicted early."""


class EventError(WatersmeetError):
    """A file holds no events, or was written in a version that this one does not read."""


class ViolationError(WatersmeetError):
    """A tuple violates a punctuation of its own stream, and `on_violation` is "error"."""


class MissingExtraError(WatersmeetError, ImportError):
    """An optional package is needed for this and not installed."""


#: A Watersmeet error inside the text of a Spark error, which quotes a worker's traceback; it ends in its hint, if any.
_EMBEDDED = re.compile(
    r"watersmeet\.errors\.(\w+): (.+?)(?:\nHint: ([^\n]+)|(?=\n\s*\n|\n\s+at |\n[\w=]|\s+SQLSTATE: |\s*$))", re.DOTALL
)
#: In Spark's error when a batch was not read to its end, so that some shards have not written their state.
_UNREAD = re.compile(r"CheckpointInfo length: \d+, numPartitions: \d+")


def found_in(text: str) -> WatersmeetError | None:
    """The Watersmeet error that caused a Spark error with this text; None if there is none."""
    found = _EMBEDDED.search(text)
    kind = globals().get(found[1]) if found else None
    if found and isinstance(kind, type) and issubclass(kind, WatersmeetError):
        return kind(found[2].strip(), hint=found[3])
    if _UNREAD.search(text):
        return StateError(
            "a batch was not read to its end (by `limit`, `take`, `first`, `head`, `show` or `isEmpty` in "
            "`foreachBatch`, say); a shard that is not read writes no state, and Spark refuses the batch.",
            hint="use wm.write, whose sinks may read what they like, or call batch.persist() and batch.count() first.",
        )
    return None


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that is most similar to `name`, whatever its case; None if none is similar."""
    names = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), list(names), 1, cutoff)
    return names[found[0]] if found else None


def suggestion(name: str, known: Sequence[str], have: str) -> str:
    """The hint for an unknown name: the nearest known one, or `have` and all of them.

    >>> suggestion("prise", ["price", "item"], "it has")
    'did you mean `price`?'
    """
    return did_you_mean(name, known) or f"{have} {', '.join(known)}."


def did_you_mean(
    name: str, known: Iterable[str], written: Callable[[str], object] = "`{}`".format, cutoff: float = 0.6
) -> str | None:
    """The question that suggests the nearest known name, as it is `written`; None if none is similar.

    >>> did_you_mean("al", ["all", "probe"], '"{}"'.format)
    'did you mean "all"?'
    """
    near = nearest(name, known, cutoff)
    return f"did you mean {written(near)}?" if near else None
