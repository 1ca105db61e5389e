"""Exit codes, and what a user sees of an error: its message; with `-v` where it came from, too."""

from __future__ import annotations

import sys
import traceback
from enum import IntEnum

from rich.console import Console
from rich.text import Text

from watersmeet.errors import MissingExtraError, QueryError, SettingError, WatersmeetError


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
        console.print(Text("".join(traceback.format_exception(error)).rstrip(), style="dim"))
    if isinstance(error, KeyboardInterrupt):
        console.print("interrupted")
        return code_of(error)
    message, _, hint = summary(error).partition("\nHint: ")
    console.print(Text.assemble(("error: ", "bold red"), message))
    if hint:
        console.print(Text.assemble(("hint: ", "bold"), hint))
    if not verbose and not isinstance(error, WatersmeetError):
        again = " ".join(["watersmeet", "-v", *sys.argv[1:]])
        console.print(Text.assemble(("hint: ", "bold"), f"`{again}` shows where it came from."))
    return code_of(error)


def summary(error: BaseException) -> str:
    """The message of an error of ours; of any other its first line and its kind."""
    if isinstance(error, WatersmeetError):
        return str(error)
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first}".rstrip(": ")
