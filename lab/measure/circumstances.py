"""The circumstances of a measurement: date, machine, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lab import ROOT


def circumstances() -> dict[str, Any]:
    """Day, machine, versions and the load before."""
    packages = {name: version(name) for name in ("pyspark", "pyarrow", "numpy", "numba")}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": {"cores": os.cpu_count(), "CPU": _cpu(), "memory": f"{_memory():.0f} GB"},
        "versions": {"Python": platform.python_version(), "Java": _java()} | packages,
        "load_before": os.getloadavg()[0],
    }


def commit(*folders: str) -> str:
    """The commit of the tree, and whether these folders have changed since; "unknown" outside a clone."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return "unknown"
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *folders], check=False).returncode
    return head.stdout.strip() + (", with changes" if changed else "")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / 2**30


def _java() -> str:
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return shown.split('"')[1] if '"' in shown else "unknown"
