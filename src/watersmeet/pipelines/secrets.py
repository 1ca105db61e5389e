"""Values from the environment: `${NAME}` in a pipeline. They are put in when it is read, and never shown.

What this process has read so, it hides in everything that it says afterwards: `hide` puts the name back.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

_NAME = re.compile(r"\$(\$\{)|\$\{([^}]*)\}")
SHORTEST = 4
_read: dict[str, str] = {}  # values by the text that stands for them


class UnsetError(LookupError):
    """A variable is not set; its name."""


def filled(text: str, environment: Mapping[str, str]) -> str:
    """The text with variables put in; `$${` stands for `${` itself."""

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
    """The text with names in the place of values; not of values so short that any text has them."""
    for name, value in sorted(_read.items(), key=lambda item: -len(item[1])):
        if len(value) >= SHORTEST:
            text = text.replace(value, name)
    return text


class Hiding(logging.Filter):
    """Log records without secrets, in what is said and in the errors that it is said of."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = hide(record.getMessage()), None
        if record.exc_info:  # formatters take the text, once there is one
            record.exc_text = hide(logging.Formatter().formatException(record.exc_info))
        return True
