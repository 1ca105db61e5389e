"""The report: every figure with its set-up, its claims, the verdicts, and the reasons of claims that do not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import figures, page
from experiments.catalogue import EXPERIMENTS
from experiments.experiment import Experiment
from lab.measure.claims import Claim, Verdict
from lab.measure.sections import fill
from lab.measure.tables import markdown_table

Results = Mapping[str, Mapping[str, Any]]
TITLE = "The papers' figures, redrawn"
ABOUT = (
    "Every figure and table of the four papers behind Watersmeet, from runs of its engine, with the papers' claims "
    "checked by the program that draws them. A claim that does not reproduce is reported as such, with a reason. "
    "`./run experiments` makes this page; `./run experiments --redraw` makes it again from the stored results. Times "
    "are CPU times of one process and one shard; operators that are compared take turns. Black dotted lines are "
    "predictions of the cost models. Where a paper says “about”, “far” or “most”, the bounds in brackets are ours; "
    "those of windowed-4, windowed-7, multiway-4b, wo-5 and wo-67 were set with a small first run at hand. "
    "Where a claim in times depends on what an operation costs in an engine, one beside it counts the work."
)


UNEXPLAINED = "We have no explanation; the numbers are what there is."


@dataclass(frozen=True)
class Judged:
    """The result of an experiment, with the verdict on each claim."""

    experiment: Experiment
    result: Mapping[str, Any]
    verdicts: tuple[tuple[Claim, Verdict], ...]


def judge(results: Results) -> list[Judged]:
    """The claims of all experiments that have been run, in the order of the catalogue."""
    judged = []
    for id, experiment in EXPERIMENTS.items():
        if id in results:
            found = results[id]["found"]
            verdicts = tuple((claim, claim.check(found)) for claim in experiment.claims)
            judged.append(Judged(experiment, results[id], verdicts))
    return judged


def write(folder: Path, results: Results, readme: Path | None = None) -> list[Judged]:
    """Write figures, `report.md` and `one-page.html` to a folder, and the claims of full runs to the README."""
    judged = judge(results)
    drawn = folder / "figures"
    drawn.mkdir(parents=True, exist_ok=True)
    for j in judged:
        e = j.experiment
        figures.save(drawn / f"{e.id}.svg", e.size, e.draw, j.result["found"])
    text = markdown(judged)
    (folder / "report.md").write_text(text)
    (folder / "one-page.html").write_text(page.html_of(text, TITLE, folder))
    full = [j for j in judged if not j.result["quick"]]
    if readme is not None and full:
        fill(readme, {"claims": summary(full)})
    return judged


def verdict_text(verdict: Verdict) -> str:
    return "holds" if verdict.holds else "**does not hold**"


def markdown(judged: Sequence[Judged]) -> str:
    held = sum(v.holds for j in judged for _, v in j.verdicts)
    every = sum(len(j.verdicts) for j in judged)
    missing = [id for id in EXPERIMENTS if id not in {j.experiment.id for j in judged}]
    parts = [f"# {TITLE}", ABOUT, f"{held} of {every} claims hold."]
    if any(j.result["quick"] for j in judged):
        quick = "Some of these runs are quick ones, of a fraction of the size described"
        parts.append(f"**{quick}: they show that everything runs, not how fast.**")
    if missing:
        parts.append(f"Not run yet: {', '.join(missing)}.")
    parts += [_measured_on(judged), "## Claims", markdown_table(("figure", "claim", "", "found"), _claims(judged))]
    parts += [section(j) for j in judged]
    return "\n\n".join(parts) + "\n"


def _claims(judged: Sequence[Judged]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for j in judged:
        for claim, verdict in j.verdicts:
            link = f"[{j.experiment.row}](#{j.experiment.id})"
            rows.append((link, claim.text, verdict_text(verdict), verdict.numbers))
    return rows


def _measured_on(judged: Sequence[Judged]) -> str:
    """Machines, versions and commits; one line if all runs share them."""
    lines: dict[str, list[str]] = {}
    for j in judged:
        r = j.result
        about = [*(f"{k} {v}" for k, v in r["machine"].items()), *(f"{k} {v}" for k, v in r["versions"].items())]
        line = f"{r['date']}, commit {r['commit']}, seed {r['seed']}: {', '.join(about)}"
        lines.setdefault(line, []).append(j.experiment.id)
    total = sum(j.result["seconds"] for j in judged) / 60
    listed = [f"- {line}" + (f" ({', '.join(ids)})" if len(lines) > 1 else "") for line, ids in lines.items()]
    loads = [j.result["load_before"] for j in judged] or [0.0]
    load = f"{min(loads):.1f} to {max(loads):.1f}"
    return "\n".join(
        [
            f"Measured in {total:.0f} minutes, with a load of {load} before the runs, on:",
            "",
            *listed,
        ]
    )


def section(j: Judged) -> str:
    e = j.experiment
    parts = [
        f'<a id="{e.id}"></a>',
        f"## {e.row}: {e.title}",
        f"![{e.title}](figures/{e.id}.svg)",
        f"*Set-up.* {e.setup}",
    ]
    parts.append("\n".join(f"- {verdict_text(v)}: {claim.text}. Found: {v.numbers}." for claim, v in j.verdicts))
    reasons: dict[str, list[str]] = {}
    for claim, v in j.verdicts:
        if not v.holds:
            reasons.setdefault(claim.otherwise or UNEXPLAINED, []).append(claim.text)
    if e.tables is not None:
        head, *rows = e.tables(dict(j.result["found"]))
        parts.append(markdown_table(head, rows))
    parts += [f"*Why not “{'”, “'.join(texts)}”.* {reason}" for reason, texts in reasons.items()]
    if e.differs:
        parts.append(f"*Where we differ.* {e.differs}")
    parts.append(
        f"`./run experiments {e.id}` runs it; it took {j.result['seconds']:.0f} s. "
        f"Numbers: [results/{e.id}.json](results/{e.id}.json)."
    )
    return "\n\n".join(parts)


# ---------------------------------------------------------------- README


def summary(judged: Sequence[Judged]) -> str:
    """How many claims hold, and where they stand."""
    verdicts = [v for j in judged for _, v in j.verdicts]
    held = sum(v.holds for v in verdicts)
    return f"{held} of {len(verdicts)} of their claims hold: [the report](docs/experiments/report.md)."
