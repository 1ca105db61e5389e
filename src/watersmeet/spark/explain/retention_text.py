"""Text about the retention of a stream's rows, and about rows that are late or have no match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watersmeet.joins.closed_partners import may_purge
from watersmeet.joins.wo_join.operator import EQUATIONS, WOJoin
from watersmeet.model import durations
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import Interval, RowsWindow, TimeWindow, Tumbling, format_window
from watersmeet.spark.explain.asof_text import retention_ends

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined


#: The definition of "past", behind the retention of a stream's rows.
WATERMARK = " (watermark = newest event time - delay)"


def stream_facts(joined: Joined, i: int) -> dict[str, Any]:
    """The facts about stream i that do not depend on statistics."""
    query, spec = joined.query, joined.query.streams[i]
    others = [o for j, o in enumerate(joined.streams) if j != i]
    names = " and ".join(o.name for o in others)
    one, these = ("is", "has") if len(others) == 1 else ("are", "have")
    window, ends = None, []
    if isinstance(spec.window, TimeWindow):
        window = durations.formatted(spec.window.length)
        ends.append(f"{names} {one} past its {spec.time} + {window}")
    if isinstance(spec.window, Interval):
        window = format_window(spec.window)
        ends.append(f"{names} {one} past its {spec.time} {durations.signed(spec.window.upper)}")
    if isinstance(spec.window, Tumbling):
        window = format_window(spec.window)
        ends.append(f"{names} {one} past the end of its {durations.formatted(spec.window.length)} of {spec.time}")
    if isinstance(spec.window, RowsWindow):
        of = f"its {', '.join(spec.key)}" if spec.window.per_key else spec.name
        window = f"{spec.window.rows} rows of {of if spec.window.per_key else 'the stream'}"
        ends.append(f"{spec.window.rows} later rows of {of} have come and {names} {one} past the last of them")
    uses_punctuations = joined.operator.algorithm.uses_punctuations
    watermark = "" if spec.timeless else WATERMARK
    algorithm = joined.operator.algorithm
    if isinstance(algorithm, WOJoin):
        ends.append(f"{names} {one} past its {', '.join(spec.key)} by {_disorder(algorithm)}")
    if query.asof is not None:
        ends = retention_ends(joined, query.asof, i)
    elif uses_punctuations and all(o.closes for o in others) and (not query.is_theta or may_purge(query, i)):
        columns = " and ".join(str(query.streams[j].compared) for j in range(len(query.streams)) if j != i)
        what = f"every {columns} that it could match" if query.is_theta else f"its {', '.join(spec.key)}"
        ends.append(f"{names} {these} closed {what}")
    facts = {
        "name": spec.name,
        "time": spec.time,
        "window": window,
        "delay": _delay(spec),
        "columns": list(spec.schema.names),
        "uses_punctuations": uses_punctuations,
        "punctuations": [*(k.constraint.__class__.__name__.lower() for k in joined.streams[i].constraints)]
        + [rule.kind for rule in joined.streams[i].rules if rule.kind != "empty"],
        "retention": f"a row is kept until {', or until '.join(ends)}{watermark}"
        if ends
        else f"a row is kept until {names} {these} ended",
        "late": f"none by its {spec.time}; rows further behind in {', '.join(spec.key)} than expected are "
        "joined with the tuples still in state, and counted as `too_late`"
        if spec.timeless
        else f"rows more than {_delay(spec)} behind the newest {spec.time} of earlier batches are "
        "not joined; they are counted and come out in `tagged` as `late`",
    }
    if spec.idle_clock is not None:
        behind = durations.formatted(spec.idle_clock + spec.delay)
        facts["clock"] = (
            f"after {durations.formatted(spec.idle_clock)} without rows, by the timestamps of the batches, its "
            f"watermark is {behind} behind them; batches run without rows then"
        )
    if spec.idle_after is not None:
        facts["idle"] = (
            f"while it has no rows and {names} {'advances' if len(others) == 1 else 'advance'} by more than "
            f"{durations.formatted(spec.idle_after)}, its watermark is that far behind {names}"
        )
    if query.how == "semi" and i == 0:
        facts["comes"] = "a row comes out at its first match, and is evicted"
    elif query.asof is not None and i == 0:
        facts["comes"] = "a row comes out, with its answer, when it is no longer kept; one without a key at once"
    elif query.pads(i):
        facts["comes"] = "a row without a match comes out when it is no longer kept; one without a key at once"
    return facts


def bounds(joined: Joined) -> dict[str, str]:
    """The memory bound and strategy of a join without windows; empty for other joins."""
    join = joined.operator.algorithm
    if not isinstance(join, WOJoin):
        return {}
    bound = "no bound" if join.memory is None else f"at most {join.memory:,} bytes a shard"
    ways = {
        "none": "no row is deferred",
        "msf": "rows are deferred until they can be sorted",
        "dbf": "rows of a stream that leads are deferred, in the state store",
        "hybrid": "rows are deferred until they can be sorted, those of a stream that leads in the state store",
        "auto": "rows are deferred as far as the bound requires",
    }
    return {"keeps": f"{bound}, strategy {join.effective_strategy}: {ways[join.effective_strategy]}"}


def _disorder(join: WOJoin) -> str:
    """How far a stream must be past a key to have closed it."""
    known = join.scrambling is not None and None not in join.scrambling
    distance = "the known disorder" if known else "the measured disorder"
    if join.buffer == "learned":
        distance = f"the disorder of all but {join.loss:.2%} of the rows with partners"
    if join.buffer in EQUATIONS:
        distance = f"the disorder of equation {join.buffer[2:]}"
    return distance


def _delay(spec: StreamSpec) -> str | None:
    if spec.late_share is not None:
        return f"the delay measured ({spec.late_share:.2%} of the rows may be late)"
    return None if spec.timeless else durations.formatted(spec.delay)
