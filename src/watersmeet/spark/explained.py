"""An explanation in words: lines for the terminal, from its facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.model import durations


def lines(f: dict[str, Any]) -> list[str]:
    """The whole text."""
    asked = ", asked for by name" if f["forced"] else ""
    title = f"{f['algorithm']} ({f['how']}) of {', '.join(s['name'] for s in f['streams'])} on {', '.join(f['on'])}"
    out = [title + asked, f"  {f['mode']}, {f['shards']} shards, {f['divided']}"]
    if "keeps" in f:
        out.append(f"  keeps what the keys' own order asks for: {f['keeps']}")
    if "order" in f:
        out.append(f"  order: {f['order']['text']}")
    for s in f["streams"]:
        out += _stream(s)
    if "windows" in f:
        out.append(f"  windows: {f['windows']}")
    if "where" in f:
        out.append(f"  where {f['where']}")
    if "groups" in f:
        out.append(f"  groups by {', '.join(f['groups']['by'])}, in {f['groups']['operator']}")
        out.append(f"    a group comes out {f['groups']['come']}")
    out += _predicted(f)
    if "measured" in f:
        out += _measured(f["measured"])
    for inner in f.get("inner", ()):
        out += [f"  {line}" for line in lines({**inner, "settings": {}, "warnings": []})]
    out += _section("warnings", f["warnings"])
    out += _section("not taken", map(_alternative, f["rejected"]))
    out += _section("settings", [f"{name} = {value}" for name, value in f["settings"].items()])
    return out


def _stream(s: dict[str, Any]) -> Iterator[str]:
    yield f"  {s['name']}: {s['retention']}"
    longest = "with no bound in time" if s["kept_s"] is None else f"at most {_duration(s['kept_s'])}"
    stay = s["figures"]["stay_s"]
    here = f", {_duration(stay)} on average" if stay is not None else ""
    p, figures = s["predicted"], s["figures"]
    found = "looked up by key" if s["index"] == "hash" else "scanned"
    yield f"    kept {longest}{here}; about {p['tuples']:,.0f} tuples, {size(p['bytes'])}, {found}"
    closes = f", {figures['closings']:,.4g} keys closed/s" if figures["closings"] else ""
    keys = f"{figures['keys']:,.0f} keys{closes}"
    yield f"    {figures['rate']:,.4g} rows/s, {keys}, {figures['row_bytes']:,.0f} bytes a row"
    yield f"    columns: {', '.join(s['columns'])}"
    if "comes" in s:
        yield f"    {s['comes']}"
    if s["punctuations"]:
        heard = "says when it is through" if s["listens"] else "says, unheard by this algorithm"
        yield f"    {heard}: {', '.join(s['punctuations'])}"
    if "idle" in s:
        yield f"    idle: {s['idle']}"
    yield f"    late: {s['late']}"


def _predicted(f: dict[str, Any]) -> Iterator[str]:
    p = f["predicted"]
    yield f"  figures: {f['statistics']['text']}"
    work = f"about {p['results_per_s']:,.4g} results/s; {p['cpu_ns_per_s'] / 1e9:.1%} of a core"
    yield f"  predicted: {p['tuples']:,.0f} tuples, {size(p['bytes'])} of state; {work}"


def _measured(m: dict[str, Any]) -> Iterator[str]:
    p, c = m["predicted"], m["compared"]
    yield f"  measured in {m['batches']} batch{'es' if m['batches'] != 1 else ''}:"
    lost = "".join(f", {m[name]:,} {word}" for name, word in (("late", "late"), ("violations", "violating")) if m[name])
    yield f"    {m['rows_in']:,} rows in{lost}; {m['results']:,} results from {m['probed']:,} tuples looked at"
    yield f"    {m['invalidated']:,} tuples left with their window, {m['purged']:,} with their key"
    groups = f", {m['open_groups']:,} open groups" if m["open_groups"] or m["groups"] else ""
    held = _beside(m["state_bytes"], p.get("state_bytes"), size)
    yield f"    stored {_beside(m['stored'], p.get('stored'))} tuples, {held}{groups}"
    if c:
        found = f"{_beside(c['probed'], p['probed'])} tuples looked at, {_beside(c['results'], p['results'])} results"
        took = _beside(c["join_us"] / 1000, p["join_us"] / 1000)
        yield f"    where the work was foretold: {found}, {took} ms of joining"
    if m["idle"]:
        yield f"    a stream was idle in {m['idle']} of them"


def _beside(measured: float, predicted: float | None, spell: Any = None) -> str:
    spell = spell or (lambda x: f"{x:,.0f}" if x >= 10 or x == round(x) else f"{x:.2g}")
    return spell(measured) if predicted is None else f"{spell(measured)} (predicted {spell(predicted)})"


def _alternative(a: dict[str, Any]) -> str:
    price = "" if a["cpu_ns_per_s"] is None else f" ({a['cpu_ns_per_s'] / 1e9:.1%} of a core, {size(a['bytes'])})"
    return f"{a['algorithm']}: {a['why']}{price}"


def _section(title: str, entries: Any) -> list[str]:
    said = [f"    {entry}" for entry in entries]
    return [f"  {title}:", *said] if said else []


def size(count: float) -> str:
    """Bytes in the unit in which they are few."""
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def _duration(seconds: float) -> str:
    """In words, the largest units first: 12 hours 5 seconds."""
    if seconds < 60:
        return f"{seconds:.3g} second{'s' if seconds != 1 else ''}"
    rest, said = round(seconds), []
    for unit in (86_400, 3_600, 60, 1):
        if rest >= unit:
            said.append(durations.spell(rest // unit * unit * 1_000_000))
            rest %= unit
    return " ".join(said[:2])
