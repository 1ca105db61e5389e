"""Exit codes, and the output for an error: its message, with `-v` also the traceback."""

from __future__ import annotations

import re
import sys
import traceback
from enum import IntEnum

from rich.console import Console
from rich.text import Text

from watersmeet.errors import MissingExtraError, QueryError, SettingError, WatersmeetError, found_in
from watersmeet.pipelines.secrets import hide


class Exit(IntEnum):
    """Exit codes of `watersmeet`."""

    DONE = 0
    FAILED = 1  # something went wrong while it ran
    USAGE = 2  # the command was called wrongly
    MISTAKE = 3  # the pipeline or query has a mistake; nothing was started
    MISSING = 4  # something is not on this machine; the message has a hint how to get it
    INTERRUPTED = 130  # Ctrl-C


class MissingError(WatersmeetError):
    """Something that a command needs is not on this machine."""


def code_of(error: BaseException) -> Exit:
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(error, MissingExtraError | MissingError | SettingError):
        return Exit.MISSING
    return Exit.MISTAKE if isinstance(error, QueryError) else Exit.FAILED


def report(error: BaseException, *, verbose: bool) -> Exit:
    """Print an error to standard error; returns its exit code."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if verbose:
        console.print(Text(hide("".join(traceback.format_exception(error)).rstrip()), style="dim"))
    if isinstance(error, KeyboardInterrupt):
        console.print("interrupted")
        return code_of(error)
    message = Text.assemble(("error: ", "bold red"), hide(summary(error)))
    message.highlight_regex(r"(?m)^Hint:", "bold")
    console.print(message)
    for line in getattr(error, "__notes__", ()):
        console.print(hide(line), markup=False)
    if not verbose and not isinstance(error, WatersmeetError):
        console.print(
            f"Hint: `{' '.join(['watersmeet', '-v', *sys.argv[1:]])}` shows where it came from.", markup=False
        )
    return code_of(error)


def summary(error: BaseException) -> str:
    """The message of a Watersmeet error, also if Spark wraps it; of any other error its type and first line."""
    text = str(error)
    if isinstance(error, WatersmeetError):
        return text
    if "Python worker failed to connect back" in text:
        return _SLOW
    ours = found_in(text)
    if ours is not None:
        return str(ours)
    raised = _RAISED.search(text)
    if raised is not None:
        return raised[1].strip()
    first = next((line for line in text.splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}".rstrip(": ")


_SLOW = (
    "Spark waits 10 s for a Python process that it starts; on this machine, busy as it is, it took longer.\n"
    "Hint: run it again when less is going on; with its checkpoint it goes on where it was."
)
#: An error that a query raises itself (`raise_error`), for a malformed message.
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE|\n|$)")
