"""What a join will do, in words and as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watersmeet.joins import JOINS, MULTIWAY, listens
from watersmeet.joins.wo_join import EQUATIONS, WOJoin
from watersmeet.model import durations
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.spark.counters import SHARDS, counters
from watersmeet.spark.order_report import Progress, drawn, order_facts
from watersmeet.spark.session import REQUIRED

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined

#: A key is hot if it has so large a share of a stream's rows in a batch on a shard, of so many rows at least.
HOT_SHARE, HOT_ROWS = 0.2, 2_000


@dataclass(frozen=True)
class Explanation:
    """`str()` is the text for the terminal, `to_dict()` the same as data, `to_svg()` a picture of the plan."""

    facts: dict[str, Any]
    draw: Callable[[], str]

    def to_dict(self) -> dict[str, Any]:
        return self.facts

    def to_svg(self) -> str:
        """The plan as a picture; figures of the streams are measured if a progress was given, else assumed."""
        return self.draw()

    def __str__(self) -> str:
        return "\n".join(_lines(self.facts))


def _lines(f: dict[str, Any]) -> list[str]:
    lines = [f"{f['algorithm']} ({f['how']}) of {', '.join(s['name'] for s in f['streams'])} on {', '.join(f['on'])}"]
    lines.append(f"  {f['mode']}, {f['shards']} shards, {f['divided']}")
    if "keeps" in f:
        lines.append(f"  keeps what the keys' own order asks for: {f['keeps']}")
    if "order" in f:
        lines.append(f"  order: {f['order']['text']}")
    for s in f["streams"]:
        lines.append(f"  {s['name']}: {s['retention']}")
        if "comes" in s:
            lines.append(f"    {s['comes']}")
        if s["punctuations"]:
            heard = "says when it is through" if s["listens"] else "says, unheard by this algorithm"
            lines.append(f"    {heard}: {', '.join(s['punctuations'])}")
        if "idle" in s:
            lines.append(f"    idle: {s['idle']}")
        lines.append(f"    late: {s['late']}")
    if "windows" in f:
        lines.append(f"  windows: {f['windows']}")
    if "where" in f:
        lines.append(f"  where {f['where']}")
    lines += [f"  hot key: {told}" for told in f.get("hot_keys", ())]
    if "groups" in f:
        lines.append(f"  groups by {', '.join(f['groups']['by'])}, in {f['groups']['operator']}")
        lines.append(f"    a group comes out {f['groups']['come']}")
    for inner in f.get("inner", ()):
        lines += [f"  {line}" for line in _lines({**inner, "settings": {}})]
    if f["settings"]:
        lines.append("  settings:")
        lines += [f"    {name} = {value}" for name, value in f["settings"].items()]
    return lines


def explain(joined: Joined, progress: Progress | None = None) -> Explanation:
    """The explanation of a join that is defined; a progress of the running query adds what was measured."""
    query = joined.query
    counted = any(isinstance(s.window, RowsWindow) and not s.window.per_key for s in query.streams)
    facts = {
        "algorithm": algorithm_of(joined),
        "how": query.how,
        "on": list(query.streams[0].key),
        "mode": "streaming" if joined.streaming else "static (one batch, nothing is kept)",
        "shards": len(joined.ids),
        "divided": "one because rows of a whole stream are counted" if counted else "keys divided by hash",
        **_bounds(joined),
        **({"order": order_facts(joined, progress)} if isinstance(joined.operator, MULTIWAY) else {}),
        "streams": [_stream(joined, i) for i in range(len(query.streams))],
        **_where(joined),
        **_skew(progress),
        **_tree(joined),
        "settings": {name: value for name, (value, _) in REQUIRED.items()} if joined.streaming else {},
    }
    return Explanation(facts, lambda: drawn(joined, algorithm_of(joined), progress))


def _bounds(joined: Joined) -> dict[str, str]:
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


def algorithm_of(joined: Joined) -> str:
    return next(name for name, kind in JOINS.items() if type(joined.operator) is kind)


def _tree(joined: Joined) -> dict[str, Any]:
    """Of a join on different attributes: the operators before this one, and which windows hold in the end."""
    if not joined.inner:
        return {}
    return {
        "windows": "a tree of window joins finds more than the join of all streams at once (its pairs have the time of "
        "their newer part), so a filter behind this operator keeps those results of which every tuple is in its own "
        "stream's window at the time of the newest",
        "inner": [explain(inner).to_dict() for inner in joined.inner],
    }


def _where(joined: Joined) -> dict[str, str]:
    if joined.query.where is not None:
        return {"where": f"{joined.query.where.text}: asked of every pair in the operator, before it counts as a match"}
    if joined.condition is None or joined.inner:
        return {}
    return {"where": "… by Spark, which filters the results behind the operator"}


def _skew(progress: Progress | None) -> dict[str, list[str]]:
    """Keys that had so many rows in the last batch that their shard kept the others waiting."""
    shards = counters(progress).get(SHARDS, []) if progress is not None else []
    told = [
        f"{key} has {share:.0%} of the rows of {stream['name']} in shard {shard['shard']}, which the others wait for"
        for shard in shards
        for stream in shard.get("streams", ())
        for key, share in stream["hot"]
        if share >= HOT_SHARE and stream["rows_in"] >= HOT_ROWS
    ]
    return {"hot_keys": told} if told else {}


def _stream(joined: Joined, i: int) -> dict[str, Any]:
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
