"""How long a stream's rows are kept, and what becomes of those that come late or without a match: in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watersmeet.joins import LISTENING
from watersmeet.model import durations
from watersmeet.model.windows import RowsWindow, TimeWindow

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined


def stream_facts(joined: Joined, i: int) -> dict[str, Any]:
    """What is said of stream i, whatever its figures are."""
    query, spec = joined.query, joined.query.streams[i]
    others = [o for j, o in enumerate(joined.streams) if j != i]
    names = " and ".join(o.name for o in others)
    one, these = ("is", "has") if len(others) == 1 else ("are", "have")
    window, ends = None, []
    if isinstance(spec.window, TimeWindow):
        window = durations.spell(spec.window.length)
        ends.append(f"{names} {one} past its {spec.time} + {window}")
    if isinstance(spec.window, RowsWindow):
        of = f"its {', '.join(spec.key)}" if spec.window.per_key else spec.name
        window = f"{spec.window.rows} rows of {of if spec.window.per_key else 'the stream'}"
        ends.append(f"{spec.window.rows} later rows of {of} have come and {names} {one} past the last of them")
    listens = isinstance(joined.operator, LISTENING)
    if listens and all(o.signs or o.known for o in others):
        ends.append(f"{names} {these} closed its {', '.join(spec.key)}")
    facts = {
        "name": spec.name,
        "time": spec.time,
        "window": window,
        "delay": durations.spell(spec.delay),
        "columns": list(spec.schema.names),
        "listens": listens,
        "punctuations": [*(k.promise.__class__.__name__.lower() for k in joined.streams[i].known)]
        + [sign.kind for sign in joined.streams[i].signs],
        "retention": f"a row is kept until {', or until '.join(ends)} (progress = newest time seen - delay)"
        if ends
        else f"a row is kept until {names} {these} ended",
        "late": f"rows more than {durations.spell(spec.delay)} behind the newest {spec.time} of earlier batches are "
        "not joined; they are counted and come out in `tagged` as `late`",
    }
    if spec.idle_after is not None:
        facts["idle"] = (
            f"while it shows nothing and {names} {'goes' if len(others) == 1 else 'go'} on by more than "
            f"{durations.spell(spec.idle_after)}, it is taken to be that far behind {names}"
        )
    if query.how == "semi" and i == 0:
        facts["comes"] = "a row comes out at its first match, and is forgotten"
    elif query.pads(i):
        facts["comes"] = "a row without a match comes out when it is no longer kept; one without a key at once"
    return facts
