"""`watersmeet doctor`: checks what is needed on this machine, and how to get what is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from watersmeet.cli.failures import Exit
from watersmeet.errors import SettingError


@dataclass(frozen=True)
class Finding:
    """The result of one check. `remedy` is what to do; None if all is well."""

    what: str
    found: str
    remedy: str | None = None
    needed: bool = True  # False: the remedy is optional


def examine() -> Exit:
    """Print all findings; returns MISSING if something needed is missing, else DONE."""
    findings = [look() for look in CHECKS]
    table = Table(show_edge=False, show_header=False, box=None, padding=(0, 1))
    for _ in range(3):
        table.add_column(overflow="fold")
    for f in findings:
        mark = "[green]ok[/]" if f.remedy is None else "[red]missing[/]" if f.needed else "[yellow]not here[/]"
        table.add_row(mark, f.what, f.found if f.remedy is None else f"{f.found}\n→ {f.remedy}")
    Console(highlight=False).print(table)
    return Exit.MISSING if any(f.remedy and f.needed for f in findings) else Exit.DONE


def python() -> Finding:
    return Finding("Python", f"{sys.version.split()[0]} at {sys.executable}")


def java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one."
    if program is None or not Path(program).exists():
        return Finding("Java", f"none at {program}" if program else "none on PATH, JAVA_HOME is not set", remedy)
    output = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r'version "(\d+)[^"]*"', output)
    if found is None or int(found[1]) < 17:
        return Finding("Java", f"{output.splitlines()[0] if output else 'no version'} at {program}", remedy)
    return Finding("Java", f"{found[1]} at {program}")


def spark() -> Finding:
    needed = next(text for text in requires("watersmeet") or () if text.startswith("pyspark"))
    remedy = f'pip install "{needed}"'
    try:
        have = version("pyspark")
    except PackageNotFoundError:
        return Finding("Spark", "pyspark is not installed", remedy)
    if not _fits(have, needed):
        return Finding("Spark", f"PySpark {have}", remedy)
    home = os.environ.get("SPARK_HOME")
    if home and not Path(home, "bin", "spark-submit").exists():
        return Finding("Spark", f"SPARK_HOME is {home}, where no Spark is", "unset SPARK_HOME.")
    return Finding("Spark", f"PySpark {have}" + (f", SPARK_HOME is {home}" if home else ""))


def _fits(have: str, needed: str) -> bool:
    """Whether a version is in a range.

    >>> [_fits(version, "pyspark<4.4,>=4.0.2") for version in ("4.0.1", "4.0.2", "4.3.1.dev0", "4.4.0")]
    [False, True, True, False]
    """
    limits = {sign: _numbers(limit) for sign, limit in re.findall(r"(>=|<)([\d.]+)", needed)}
    return limits[">="] <= _numbers(have) < limits["<"]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


def settings() -> Finding:
    from watersmeet.spark.session import REQUIRED

    return Finding("settings", f"`watersmeet run` and wm.session() set {len(REQUIRED)}: {', '.join(REQUIRED)}")


def kernels() -> Finding:
    from watersmeet.kernels import compile as compiling

    try:
        folder = compiling.folder()
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding("Numba cache", str(error), "set NUMBA_CACHE_DIR to a folder that can be written.")
    made = len(list(folder.rglob("*.nbc")))
    found = f"{made} compiled kernels" if made else "empty: the first batch compiles the kernels, about ten seconds"
    return Finding("Numba cache", f"{found}, in {folder}")


def working_state() -> Finding:
    from watersmeet.spark.runtime import worker_cache

    base = worker_cache.base()
    free = shutil.disk_usage(base).free
    if free < 1 << 30:
        return Finding(
            "working state", f"{free >> 20} MB free in {base}", "make room there, or set TMPDIR.", needed=False
        )
    return Finding("working state", f"{free / (1 << 30):.1f} GB free in {base}")


def kafka() -> Finding:
    return _package("Kafka jars", "kafka")


def avro() -> Finding:
    return _package("Avro jars", "avro")


def _package(what: str, kind: str) -> Finding:
    from watersmeet.spark.pipelines import packages

    name = packages.NAMES[kind]
    if packages.in_spark(name):
        return Finding(what, f"{name} is in Spark's own folder")
    try:
        packages.fetched([kind])
    except SettingError as error:
        found, _, remedy = str(error).partition("\nHint: ")
        return Finding(what, found, remedy, needed=False)
    return Finding(what, f"{packages.described(kind)}, in {packages.folder()}")


CHECKS: tuple[Callable[[], Finding], ...] = (python, java, spark, settings, kernels, working_state, kafka, avro)
