"""Everything Watersmeet raises on purpose.

::

    WatersmeetError
    ├── QueryError            the join as asked for makes no sense (also a ValueError)
    │   ├── ColumnError       a column is unknown, clashes or has the wrong type
    │   ├── WindowError       a window or delay is missing, negative or cannot be kept
    │   └── PipelineError     the file of a pipeline has mistakes; all of them are listed
    ├── SettingError          the Spark session lacks a setting
    ├── StateError            what the checkpoint holds cannot be used
    │   ├── StateFormatError  ... it was written in another format
    │   ├── StateMismatchError... it belongs to another query, window, key or number of shards
    │   └── StateCorruptError ... a part is missing or its checksum is wrong
    ├── MemoryLimitError      what has to be kept does not fit the memory that it was given
    ├── EventError            a file of events is none, or of another version
    ├── ViolationError        a stream broke its word, and the query was told to stop then
    └── MissingExtraError     an optional package is not installed

Messages name the argument, the rule, the reason, and end in a hint.
"""


class WatersmeetError(Exception):
    """Root of all errors of this package."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__(f"{message}\nHint: {hint}" if hint else message)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), str(self)))


def _rebuild(kind: type[WatersmeetError], text: str) -> WatersmeetError:
    """Unpickle an error (they travel from worker to driver) without asking for its hint again."""
    return kind(text)


class QueryError(WatersmeetError, ValueError):
    """The join as asked for makes no sense; nothing was started."""


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
    """What a join has to keep does not fit the memory that it was given, and nothing may be shed."""


class EventError(WatersmeetError):
    """A file of events is none, or was written in a version that this one does not read."""


class ViolationError(WatersmeetError):
    """A tuple came against a punctuation of its own stream, and `on_violation` is "error"."""


class MissingExtraError(WatersmeetError, ImportError):
    """An optional package is needed for this and not installed."""
