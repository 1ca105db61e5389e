"""Values from the environment: `${NAME}` in a pipeline. They are filled in when it is read, and never shown.

`hide` replaces every value that this process has filled in by its `${NAME}`, in messages and logs.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

_NAME = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
SHORTEST = 4
_read: dict[str, str] = {}  # values by `${NAME}`


class UnsetError(LookupError):
    """A variable is not set; the message is its name."""


def filled(text: str, environment: Mapping[str, str]) -> str:
    """The text with variables filled in; `$${` is an escaped `${`."""

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return "${"
        name = found[2]
        if name not in environment:
            raise UnsetError(name)
        _read[found[0]] = environment[name]
        return environment[name]

    return _NAME.sub(one, text)


def hide(text: str) -> str:
    """The text with values replaced by their names; values shorter than SHORTEST stay, any text may contain them."""
    for name, value in sorted(_read.items(), key=lambda item: -len(item[1])):
        if len(value) >= SHORTEST:
            text = text.replace(value, name)
    return text


class Hiding(logging.Filter):
    """Hides secrets in the messages and tracebacks of log records."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = hide(record.getMessage()), None
        if record.exc_info:  # formatters use exc_text if it is set
            record.exc_text = hide(logging.Formatter().formatException(record.exc_info))
        return True
