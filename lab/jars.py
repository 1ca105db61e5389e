"""Jars for tests with other systems, from Maven's packages, fetched by the Ivy that comes with Spark.

They are kept under `.cache/jars`. Without them and without a network the tests are skipped, with the reason.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from lab import ROOT
from watersmeet.spark.pipelines import maven

CACHE = ROOT / ".cache" / "jars"


class NotAtHand(Exception):  # noqa: N818  # not an error: a reason to skip
    """The packages are not available here."""


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise NotAtHand("there is no Java")
    return found


def fetched(name: str, modules: Sequence[str]) -> Path:
    """The folder with the jars of these modules and of all they need."""
    digest = hashlib.sha256("\n".join(modules).encode()).hexdigest()[:12]
    folder = CACHE / f"{name}-{digest}"
    if folder.is_dir():
        return folder
    half = CACHE / f"{name}-{digest}.half"
    shutil.rmtree(half, ignore_errors=True)
    failure = maven.by_ivy(modules, half, transitive=True)
    if failure is not None or not half.is_dir():
        raise NotAtHand(f"Maven's packages of {name} cannot be had: {failure}")
    half.rename(folder)
    return folder
