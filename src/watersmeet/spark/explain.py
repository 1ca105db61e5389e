"""What a join will do, in words and as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from watersmeet.model import durations
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.session import REQUIRED


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
            lines.append(f"    late: {s['late']}")
        if "groups" in f:
            lines.append(f"  groups by {', '.join(f['groups']['by'])}, in {f['groups']['operator']}")
            lines.append(f"    a group comes out {f['groups']['come']}")
        if f["settings"]:
            lines.append("  settings:")
            lines += [f"    {name} = {value}" for name, value in f["settings"].items()]
        return "\n".join(lines)


def explain(query: JoinQuery, shards: int, streaming: bool) -> Explanation:
    """The explanation of a query that is divided into `shards`."""
    streams = []
    for i, s in enumerate(query.streams):
        others = " and ".join(o.name for j, o in enumerate(query.streams) if j != i)
        reach = durations.spell(s.window.length) if isinstance(s.window, TimeWindow) else None
        streams.append(
            {
                "name": s.name,
                "time": s.time,
                "window": reach,
                "delay": durations.spell(s.delay),
                "retention": f"a row is kept until {others} is past its {s.time} + {reach} "
                f"(progress = newest time seen - delay)",
                "late": f"rows more than {durations.spell(s.delay)} behind the newest {s.time} of earlier batches are "
                "not joined; they are counted and come out in `tagged` as `late`",
            }
        )
    return Explanation(
        {
            "algorithm": "hash join over value lists",
            "how": query.how,
            "on": list(query.streams[0].key),
            "mode": "streaming" if streaming else "static (one batch, nothing is kept)",
            "shards": shards,
            "streams": streams,
            "settings": {name: value for name, (value, _) in REQUIRED.items()} if streaming else {},
        }
    )
