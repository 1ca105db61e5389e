"""Results as files: one JSON per experiment, with what its numbers depend on."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.spark import circumstances
from experiments.experiment import Experiment, Run

ROOT = Path(__file__).parents[1]
DIGITS = 6  # of every float that is kept


def perform(experiment: Experiment, *, quick: bool, seed: int, tell: Callable[[float], None]) -> dict[str, Any]:
    """Run an experiment; everything that its report needs, as plain values."""
    around, began = circumstances(), time.perf_counter()
    found = experiment.run(Run(quick, seed, tell))
    seconds = round(time.perf_counter() - began, 1)
    about = {"id": experiment.id, "quick": quick, "seed": seed, "seconds": seconds, "commit": commit()}
    return about | around | {"found": plain(found)}


def commit() -> str:
    """The commit of the tree, and whether something has been changed since; "unknown" outside a clone."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "unknown"
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src", "experiments"], check=False).returncode
    return head.stdout.strip() + (", with changes" if changed else "")


def plain(value: Any) -> Any:
    """The same in JSON's types, floats rounded."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return value
    number = float(value)
    if not math.isfinite(number):
        return None
    return int(number) if hasattr(value, "dtype") and value.dtype.kind in "iu" else float(f"{number:.{DIGITS}g}")


def store(folder: Path, result: dict[str, Any]) -> None:
    path = folder / "results" / f"{result['id']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """Results by id, of those experiments that have been run."""
    paths = sorted((folder / "results").glob("*.json"))
    return {r["id"]: r for r in (json.loads(p.read_text()) for p in paths)}
