"""Exit codes, and what a user sees of an error: its message; with `-v` where it came from, too."""

from __future__ import annotations

import re
import sys
import traceback
from enum import IntEnum

from rich.console import Console
from rich.text import Text

from watersmeet.errors import MissingExtraError, QueryError, SettingError, WatersmeetError
from watersmeet.pipelines.secrets import hide


class Exit(IntEnum):
    """What `watersmeet` ends with."""

    DONE = 0
    FAILED = 1  # something went wrong while it ran
    USAGE = 2  # the command was called wrongly
    MISTAKE = 3  # the pipeline or query has a mistake; nothing was started
    MISSING = 4  # something is not on this machine; the message says how to get it
    INTERRUPTED = 130  # Ctrl-C


class MissingError(WatersmeetError):
    """Something that a command needs is not on this machine."""


def code_of(error: BaseException) -> Exit:
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(error, MissingExtraError | MissingError | SettingError):
        return Exit.MISSING
    return Exit.MISTAKE if isinstance(error, QueryError) else Exit.FAILED


def tell(error: BaseException, *, verbose: bool) -> Exit:
    """Say on standard error what went wrong; the exit code that belongs to it."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if verbose:
        console.print(Text(hide("".join(traceback.format_exception(error)).rstrip()), style="dim"))
    if isinstance(error, KeyboardInterrupt):
        console.print("interrupted")
        return code_of(error)
    said = Text.assemble(("error: ", "bold red"), hide(summary(error)))
    said.highlight_regex(r"(?m)^Hint:", "bold")
    console.print(said)
    for note in getattr(error, "__notes__", ()):
        console.print(hide(note), markup=False)
    if not verbose and not isinstance(error, WatersmeetError):
        console.print(
            f"Hint: `{' '.join(['watersmeet', '-v', *sys.argv[1:]])}` shows where it came from.", markup=False
        )
    return code_of(error)


def summary(error: BaseException) -> str:
    """The message of an error of ours, be it that Spark tells it of a worker; of any other its kind and first line."""
    text = str(error)
    if isinstance(error, WatersmeetError):
        return text
    for pattern in _OURS:
        found = pattern.search(text)
        if found is not None:
            return found[1].strip()
    first = next((line for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}".rstrip(": ")


#: What is ours in the text of an error of Spark's: an error of a worker, a message that cannot be read.
_OURS = (
    re.compile(r"watersmeet\.errors\.\w+: (.+?(?:\nHint: [^\n]+)?)(?=\n\s*\n|\n\s+at |\n\w|\s*$)", re.DOTALL),
    re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE|\n|$)"),
)
