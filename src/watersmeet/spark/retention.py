"""How long a stream's rows are kept, and what becomes of those that come late or without a match: in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watersmeet.joins import listens
from watersmeet.joins.wo_join import EQUATIONS, WOJoin
from watersmeet.model import durations
from watersmeet.model.queries import StreamSpec
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
    heard = listens(joined.operator)
    progress = "" if spec.timeless else " (progress = newest time seen - delay)"
    if isinstance(joined.operator, WOJoin):
        ends.append(f"{names} {these} closed its {', '.join(spec.key)} by {_disorder(joined.operator)}")
    if heard and all(o.signs or o.known for o in others):
        ends.append(f"{names} {these} closed its {', '.join(spec.key)}")
    facts = {
        "name": spec.name,
        "time": spec.time,
        "window": window,
        "delay": _delay(spec),
        "columns": list(spec.schema.names),
        "listens": heard,
        "punctuations": [*(k.promise.__class__.__name__.lower() for k in joined.streams[i].known)]
        + [sign.kind for sign in joined.streams[i].signs],
        "retention": f"a row is kept until {', or until '.join(ends)}{progress}"
        if ends
        else f"a row is kept until {names} {these} ended",
        "late": f"none by its {spec.time}; what comes further behind in {', '.join(spec.key)} than was foreseen is "
        "joined with what is there, and counted as `too_late`"
        if spec.timeless
        else f"rows more than {_delay(spec)} behind the newest {spec.time} of earlier batches are "
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


def bounds(joined: Joined) -> dict[str, str]:
    """Of a join without windows: what it goes by, and what holds its memory down."""
    join = joined.operator
    if not isinstance(join, WOJoin):
        return {}
    bound = "no bound" if join.memory is None else f"at most {join.memory:,} bytes a shard"
    ways = {
        "none": "nothing is held back",
        "msf": "rows wait until they can be sorted",
        "dbf": "rows of a stream that leads wait in the state store",
        "hybrid": "rows wait until they can be sorted, those of a stream that leads in the state store",
        "auto": "rows are held back as far as that asks for",
    }
    return {"keeps": f"{bound}, strategy {join.strategy}: {ways[join.strategy]}"}


def _disorder(join: WOJoin) -> str:
    """In words how a stream is known to be through with a key."""
    known = join.scrambling is not None and None not in join.scrambling
    factor = "as far as is known to be possible" if known else "as far as rows of late have come behind"
    if join.buffer == "learned":
        factor = f"as far as all but {join.loss:.2%} of the rows with partners have come behind"
    if join.buffer in EQUATIONS:
        factor = f"as equation {join.buffer[2:]} has it"
    return f"being past it, {factor}"


def _delay(spec: StreamSpec) -> str | None:
    if spec.late_share is not None:
        return f"the delay measured ({spec.late_share:.2%} of the rows may be late)"
    return None if spec.timeless else durations.spell(spec.delay)
