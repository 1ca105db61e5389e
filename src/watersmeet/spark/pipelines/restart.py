"""Restart of queries on a busy machine.

Spark starts a Python process for each source written in Python and for the first batch of a stateful query, waits ten
seconds until it connects, and fails the query if it does not. No setting changes the ten seconds. The first process
reads its modules from disk; the next one finds them in memory. So the query is started again, from its checkpoint:
nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

ATTEMPTS = 8
WHY = "the machine is busy: Spark waits 10 s for a Python process that it starts, and it took longer"


def is_slow_start(error: BaseException) -> bool:
    """Whether Spark gave up waiting for a Python process."""
    return "failed to connect back" in str(error)


def patiently(attempt: Callable[[], T], again: Callable[[str], None], interrupted: Event) -> T:
    """What `attempt` returns. If Spark gave up on a Python process it is called again; `again` is given the reason."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return attempt()
        except Exception as error:
            if not left or not is_slow_start(error) or interrupted.is_set():
                raise
            again(f"{WHY}; once more")
    raise AssertionError("the last attempt returns or raises")
