"""Results as files: one JSON per experiment, with the circumstances of its run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.experiment import Experiment, Run
from lab.measure.circumstances import circumstances, commit

DIGITS = 6  # of every float that is kept


def perform(experiment: Experiment, *, quick: bool, seed: int, on_progress: Callable[[float], None]) -> dict[str, Any]:
    """Run an experiment; returns everything that its report needs, as plain values."""
    around, began = circumstances(), time.perf_counter()
    found = experiment.run(Run(quick, seed, on_progress))
    seconds = round(time.perf_counter() - began, 1)
    about = {
        "id": experiment.id,
        "quick": quick,
        "seed": seed,
        "seconds": seconds,
        "commit": commit("src", "experiments"),
    }
    return about | around | {"found": plain(found)}


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
