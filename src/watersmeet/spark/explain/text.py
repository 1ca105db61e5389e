"""The text of an explanation: lines for the terminal, from its facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.model import durations, sizes
from watersmeet.spark.explain.memory_text import TOO_MANY
from watersmeet.spark.explain.retention_text import WATERMARK


def title(f: dict[str, Any]) -> str:
    """The first line: algorithm, kind of join, streams and key."""
    on = f"on {', '.join(f['on'])}" if f["on"] else "without equality"
    return f"{f['algorithm']} ({f['how']}) of {', '.join(s['name'] for s in f['streams'])} {on}"


def lines(f: dict[str, Any], *, verbose: bool = False) -> list[str]:
    """Operator, retention and cautions; with `verbose` also statistics, costs, alternatives and settings."""
    forced = ", chosen by name" if f["forced"] else ""
    shards = f"{f['shards']} shard{'s' if f['shards'] != 1 else ''}"
    if "tasks" in f:
        shards += f" in {f['tasks']} task{'s' if f['tasks'] != 1 else ''}"
    out = [title(f) + forced, f"  {f['mode']}, {shards}, {f['divided']}"]
    if "asof" in f:
        out.append(f"  answer: {f['asof']}")
    if "keeps" in f:
        out.append(f"  state by order of keys: {f['keeps']}")
    if "memory" in f:
        out.append(f"  memory: {f['memory']['text']}")
    if "order" in f:
        out.append(f"  order: {f['order']['text']}")
    for s in f["streams"]:
        out += _stream(s, verbose=verbose)
    if verbose and "hot_keys" in f:
        out.append(f"  hot keys: {f['hot_keys']}")
    if "windows" in f:
        out.append(f"  windows: {f['windows']}")
    if "indexed" in f:
        out.append(f"  indexes: {f['indexed']}")
    if "where" in f:
        out.append(f"  where {f['where']}")
    if "groups" in f:
        out.append(f"  groups by {', '.join(f['groups']['by'])}, in {f['groups']['operator']}")
        out.append(f"    a group comes out {f['groups']['come']}")
    out += _predicted(f, verbose=verbose)
    if "measured" in f:
        out += _measured(f["measured"])
    for inner in f.get("inner", ()):
        out += [f"  {line}" for line in lines({**inner, "settings": {}}, verbose=verbose)]
    out += _section("cautions", f["warnings"])
    if verbose:
        out += _section("alternatives", map(_alternative, f["rejected"]))
        out += _section("settings", [f"{name} = {value}" for name, value in f["settings"].items()])
    return out


def _stream(s: dict[str, Any], *, verbose: bool) -> Iterator[str]:
    yield f"  {s['name']}: {s['retention'] if verbose else s['retention'].removesuffix(WATERMARK)}"
    longest = "with no bound in time" if s["kept_s"] is None else f"at most {_duration(s['kept_s'])}"
    p, statistics = s["predicted"], s["statistics"]
    stay = statistics["stay_s"]
    kept = longest if stay is None else f"{longest}, {_duration(stay)} on average"
    if verbose:
        found = {"hash": "looked up by key", "scan": "scanned", "sorted": "sorted"}[s["index"]]
        yield f"    kept {kept}; about {p['tuples']:,.0f} tuples, {sizes.formatted(p['bytes'])}, {found}"
        closes = f", {amount(statistics['closed_keys'])} keys closed/s" if statistics["closed_keys"] else ""
        keys = f"{statistics['keys']:,.0f} keys{closes}"
        yield f"    {amount(statistics['rate'])} rows/s, {keys}, {statistics['row_bytes']:,.0f} bytes a row"
        yield f"    columns: {', '.join(s['columns'])}"
    else:
        late = f"; late if more than {s['delay']} behind the newest {s['time']}" if s["delay"] is not None else ""
        yield f"    kept {kept}{late}"
    if "comes" in s:
        yield f"    {s['comes']}"
    if s["punctuations"]:
        used = "punctuations" if s["uses_punctuations"] else "punctuations (ignored by this algorithm)"
        yield f"    {used}: {', '.join(dict.fromkeys(s['punctuations']))}"
    for name in ("idle", "clock"):
        if name in s:
            yield f"    {name}: {s[name]}"
    if verbose or s["delay"] is None:
        yield f"    late: {s['late']}"


def _predicted(f: dict[str, Any], *, verbose: bool) -> Iterator[str]:
    p = f["predicted"]
    yield f"  statistics: {f['statistics']['text']}"
    state = f"{p['tuples']:,.0f} tuples, {sizes.formatted(p['bytes'])} of state"
    if verbose:
        yield f"  predicted: {state}; about {amount(p['results_per_s'])} results/s; {_cores(p['cpu_ns_per_s'])}"
    elif p["bytes"] >= TOO_MANY and f["statistics"]["source"] == "assumed":
        yield f"  predicted: more than {sizes.formatted(TOO_MANY)} of state, under these assumptions"
    else:
        yield f"  predicted: {state}"


def amount(number: float) -> str:
    """A number with four significant digits or more: 34,667 or 9.5 or 0.025."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def _cores(nanoseconds: float) -> str:
    """CPU time per second, in cores."""
    cores = nanoseconds / 1e9
    return f"{cores:.1%} of a core" if cores < 1 else f"{cores:,.1f} cores"


def _measured(m: dict[str, Any]) -> Iterator[str]:
    p, c = m["predicted"], m["compared"]
    yield f"  measured in {m['batches']} batch{'es' if m['batches'] != 1 else ''}:"
    lost = "".join(
        f", {m[name]:,} {label}" for name, label in (("late", "late"), ("violations", "violating")) if m[name]
    )
    yield f"    {m['rows_in']:,} rows in{lost}; {m['results']:,} results from {m['probed']:,} tuples looked at"
    yield f"    {m['expired']:,} tuples expired, {m['purged']:,} purged"
    groups = f", {m['open_groups']:,} open groups" if m["open_groups"] or m["groups"] else ""
    held = _beside(m["state_bytes"], p.get("state_bytes"), sizes.formatted)
    spilled = f", {sizes.formatted(m['spilled_bytes'])} of it spilled to disk" if m["spilled_bytes"] else ""
    yield f"    stored {_beside(m['stored'], p.get('stored'))} tuples, {held}{spilled}{groups}"
    if c:
        found = f"{_beside(c['probed'], p['probed'])} tuples looked at, {_beside(c['results'], p['results'])} results"
        took = _beside(c["join_us"] / 1000, p["join_us"] / 1000)
        yield f"    where the work was predicted: {found}, {took} ms of joining"
    if m["idle"]:
        yield f"    a stream was idle in {m['idle']} of them"


def _beside(measured: float, predicted: float | None, formatted: Any = None) -> str:
    formatted = formatted or (lambda x: f"{x:,.0f}" if x >= 10 or x == round(x) else f"{x:.2g}")
    text: str = formatted(measured)
    return text if predicted is None else f"{text} (predicted {formatted(predicted)})"


def _alternative(a: dict[str, Any]) -> str:
    price = "" if a["cpu_ns_per_s"] is None else f" ({_cores(a['cpu_ns_per_s'])}, {sizes.formatted(a['bytes'])})"
    return f"{a['algorithm']}: {a['why']}{price}"


def _section(title: str, entries: Any) -> list[str]:
    indented = [f"    {entry}" for entry in entries]
    return [f"  {title}:", *indented] if indented else []


def _duration(seconds: float) -> str:
    """A duration in its two largest units: 12 hours 5 seconds."""
    if seconds < 60:
        return f"{seconds:.3g} second{'s' if seconds != 1 else ''}"
    rest, parts = round(seconds), []
    for unit in (86_400, 3_600, 60, 1):
        if rest >= unit:
            parts.append(durations.formatted(rest // unit * unit * 1_000_000))
            rest %= unit
    return " ".join(parts[:2])
