"""What a join will do, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from watersmeet.joins import JOINS
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model import durations
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.session import REQUIRED

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined


@dataclass(frozen=True)
class Explanation:
    """`str()` is the text for the terminal, `to_dict()` the same as data."""

    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.facts

    def __str__(self) -> str:
        f = self.facts
        lines = [
            f"{f['algorithm']} ({f['how']}) of {', '.join(s['name'] for s in f['streams'])} on {', '.join(f['on'])}"
        ]
        lines.append(f"  {f['mode']}, {f['shards']} shards, keys divided by hash")
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
        if "where" in f:
            lines.append(f"  where {f['where']}")
        if "groups" in f:
            lines.append(f"  groups by {', '.join(f['groups']['by'])}, in {f['groups']['operator']}")
            lines.append(f"    a group comes out {f['groups']['come']}")
        if f["settings"]:
            lines.append("  settings:")
            lines += [f"    {name} = {value}" for name, value in f["settings"].items()]
        return "\n".join(lines)


def explain(joined: Joined) -> Explanation:
    """The explanation of a join that is defined."""
    query = joined.query
    return Explanation(
        {
            "algorithm": next(name for name, kind in JOINS.items() if type(joined.operator) is kind),
            "how": query.how,
            "on": list(query.streams[0].key),
            "mode": "streaming" if joined.streaming else "static (one batch, nothing is kept)",
            "shards": len(joined.ids),
            "streams": [_stream(joined, i) for i in range(len(query.streams))],
            **_where(joined),
            "settings": {name: value for name, (value, _) in REQUIRED.items()} if joined.streaming else {},
        }
    )


def _where(joined: Joined) -> dict[str, str]:
    if joined.query.where is not None:
        return {"where": f"{joined.query.where.text}: asked of every pair in the operator, before it counts as a match"}
    return {} if joined.condition is None else {"where": "… by Spark, which filters the results behind the operator"}


def _stream(joined: Joined, i: int) -> dict[str, Any]:
    query, spec = joined.query, joined.query.streams[i]
    others = [o for j, o in enumerate(joined.streams) if j != i]
    names = " and ".join(o.name for o in others)
    window = durations.spell(spec.window.length) if isinstance(spec.window, TimeWindow) else None
    ends = [f"{names} is past its {spec.time} + {window}"] if window else []
    listens = isinstance(joined.operator, PWJoin)
    if listens and all(o.signs or o.known for o in others):
        ends.append(f"{names} has closed its {', '.join(spec.key)}")
    facts = {
        "name": spec.name,
        "time": spec.time,
        "window": window,
        "delay": durations.spell(spec.delay),
        "listens": listens,
        "punctuations": [*(k.promise.__class__.__name__.lower() for k in joined.streams[i].known)]
        + [sign.kind for sign in joined.streams[i].signs],
        "retention": f"a row is kept until {', or until '.join(ends)} (progress = newest time seen - delay)"
        if ends
        else f"a row is kept until {names} has ended",
        "late": f"rows more than {durations.spell(spec.delay)} behind the newest {spec.time} of earlier batches are "
        "not joined; they are counted and come out in `tagged` as `late`",
    }
    if spec.idle_after is not None:
        facts["idle"] = (
            f"while it shows nothing and {names} goes on by more than {durations.spell(spec.idle_after)}, "
            f"it is taken to be that far behind {names}"
        )
    if query.how == "semi" and i == 0:
        facts["comes"] = "a row comes out at its first match, and is forgotten"
    elif query.pads(i):
        facts["comes"] = "a row without a match comes out when it is no longer kept; one without a key at once"
    return facts
