"""Events of a running query: one JSON object a line, with a version, for people and other programs.

Kinds: `plan` (what will run), `started`, `batch` (one for each micro-batch), `ended`. Fields: docs/monitoring.md.
"""

from __future__ import annotations

import json
from typing import Any

from watersmeet.errors import EventError

#: Grows when a field changes its meaning or goes; new fields alone leave it as it is.
VERSION = 1
KINDS = ("plan", "started", "batch", "ended")

Event = dict[str, Any]


def to_line(event: Event) -> str:
    """An event as a line of JSON, without the line break."""
    return json.dumps({"v": VERSION, **event}, allow_nan=False, separators=(",", ":"))


def read(line: str) -> Event | None:
    """The event of a line, None if it has none; an event of another version is refused."""
    try:
        event = json.loads(line)
        json.dumps(event, allow_nan=False)  # it can be handed on: no number that JSON has not, nothing too deep
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("kind") not in KINDS or type(event.get("v")) is not int:
        return None
    if event["v"] != VERSION:
        raise EventError(
            f"the event has version {event['v']}; this Watersmeet reads version {VERSION}.",
            hint="look at the file with the Watersmeet that wrote it.",
        )
    return event
