"""Writes the tables and pictures of `docs/reliability.md` from the result files; the rest of the page stays.

A part between `<!-- name: begin -->` and `<!-- name: end -->` is replaced. Without a result file it is `NOTHING`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.measure.sections import fill
from lab.measure.tables import markdown_table
from soak import campaign, endless, faults, fuzz

PAGE = ROOT / "docs" / "reliability.md"
RESULTS = Path(__file__).parent / "results"
RECOVERY = ROOT / "benchmarks" / "results" / "recovery.json"


def write(page: Path = PAGE, results: Path = RESULTS, recovery: Path = RECOVERY) -> None:
    """Fill in every part."""
    parts: dict[str, Callable[[], str]] = {
        "faults": lambda: fault_table(campaign.read(results / "faults.jsonl")),
        "endless": lambda: endless_part(_json(results / "endless.json"), page.parent / "pictures"),
        "fuzzing": lambda: fuzz_table(fuzz.read(results / "fuzz.jsonl")),
        "guided": lambda: guided_table(_json(results / "guided.json")),
        "recovery": lambda: recovery_table(_json(recovery)),
    }
    fill(page, {name: part() for name, part in parts.items()})


def _json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


NOTHING = "No run is stored yet."


def fault_table(done: list[dict[str, Any]]) -> str:
    """A table with one line per kind of fault: how often, what was done, how it ended."""
    if not done:
        return NOTHING
    kinds = {k: [d for d in done if d["kind"] == k] for k in campaign.KINDS}
    rows = []
    for kind, some in kinds.items():
        if not some:
            continue
        ended = Counter(d["outcome"] if d["outcome"] in campaign.GOOD else "wrong" for d in some)
        outcomes = ", ".join(f"{n} {how}" for how, n in ended.most_common())
        refusals = Counter(s.removeprefix("refused: ") for d in some for s in d["seen"] if s.startswith("refused: "))
        by = f" (by {', '.join(refusals)})" if refusals else ""
        restarts = sum(d["restarts"] for d in some)
        rows.append([f"`{kind}`", faults.about(kind), str(len(some)), str(restarts), outcomes + by])
    bad = [d for d in done if d["outcome"] not in campaign.GOOD]
    hours = sum(d["seconds"] for d in done) / 3600
    seeds = ", ".join(str(s) for s in sorted({d["seed"] for d in done}))
    total = f"{len(done)} faults of {len(rows)} kinds in {hours:.1f} hours (seed {seeds}). "
    total += f"{len(bad)} did not end as they should."
    text = f"{total}\n\n" + markdown_table(
        ["kind", "what was done", "times", "drivers restarted", "how it ended"], rows
    )
    if bad:
        text += "\n\nNot as they should be:\n\n"
        text += "\n".join(f"- `{d['kind']}`, number {d['number']}, seed {d['seed']}: {d['outcome'][:200]}" for d in bad)
    return text


def fuzz_table(done: list[dict[str, Any]]) -> str:
    """A table with one line per target: how many cases, and how they ended."""
    if not done:
        return NOTHING
    from soak import targets

    counted = fuzz.totals(done)
    rows = []
    for name, ended in counted.items():
        total = sum(d["cases"] for d in done if d["target"] == name)
        outcomes = ", ".join(f"{n:,} {how}" for how, n in ended.most_common() if n and how != "finding")
        rows.append([f"`{name}`", targets.about(name), f"{total:,}", outcomes, str(ended["finding"])])
    cases = sum(d["cases"] for d in done)
    seconds = sum(d["seconds"] for d in done)
    head = f"{cases:,} cases, {seconds / 3600:.1f} hours of one core."
    return f"{head}\n\n" + markdown_table(["target", "what is fuzzed", "cases", "how they ended", "findings"], rows)


def guided_table(outcome: dict[str, Any] | None) -> str:
    if not outcome:
        return NOTHING
    from soak import guided

    rows = []
    for target, one in outcome.items():
        about = (guided.GUIDED[target].__doc__ or "").rstrip(".")
        places = "{} at first, {} at the end".format(*one["places"])
        found = "1" if one["finding"] else "0"
        rows.append([f"`{target}`", about, f"{one['runs']:,}", f"{one['seconds'] / 60:.0f} minutes", places, found])
    return markdown_table(["target", "what is fuzzed", "runs", "took", "places in the code reached", "findings"], rows)


def endless_part(outcome: dict[str, Any] | None, pictures: Path) -> str:
    if not outcome:
        return NOTHING
    from soak import endless_chart

    endless_chart.draw(outcome, pictures / "endless.svg")
    samples = outcome["samples"]
    sampled = {s["batch"]: s["rows_in"] for s in samples}
    seconds = samples[-1]["at"] - samples[0]["at"]
    batches = samples[-1]["batch"] - samples[0]["batch"]
    rate = sum(sampled.values()) / len(sampled) * batches / max(seconds, 1)
    exact = sum(p["state"] == p["predicted"] for p in outcome["predicted"])
    compared = len(outcome["predicted"])
    grown = endless.flat(outcome)
    rows = [[f"`{name}`", f"{ratio:.3f}"] for name, ratio in outcome["growth"].items()]
    found = f"Grown by more than {endless.MOST_GROWTH - 1:.0%}: {', '.join(grown)}." if grown else "Nothing has grown."
    return (
        f"{outcome['minutes']:g} minutes, {batches:,} batches, about {rate:,.0f} rows a second, pauses included, by "
        f"the batches that were sampled. In {exact} of {compared} samples the state had exactly as many "
        f"tuples as predicted. {found}\n\n![Memory, state, rows and files over the run](pictures/endless.svg)\n\n"
        + markdown_table(["figure", "last third of the run over the middle third (medians)"], rows)
    )


def recovery_table(outcome: dict[str, Any] | None) -> str:
    if not outcome:
        return NOTHING
    rows = [
        [
            f"`{name}`",
            f"{one['rows']:,}",
            f"{one['recovery_s']:.1f} s",
            f"{one['build_s']:.0f} s",
            f"{one['checkpoint_mb']:.0f} MB",
        ]
        for name, one in outcome.items()
    ]
    head = [
        "contender",
        "rows in state",
        "from start of the process to the next commit",
        "building took",
        "state on disk",
    ]
    return markdown_table(head, rows)
