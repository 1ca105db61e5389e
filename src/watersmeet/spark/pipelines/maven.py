"""Jars from Maven: by the Ivy that comes with Spark or, where that cannot reach a repository, by Maven's own client."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.find_spark_home import _find_spark_home

from watersmeet.errors import SettingError

PATIENCE = 300  # seconds for one download
_IVY = """<ivy-module version="2.0">
  <info organisation="watersmeet" module="jars"/>
  <dependencies>{}</dependencies>
</ivy-module>
"""
_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="{}"/>'


def fetched(modules: Sequence[str], folder: Path) -> list[Path]:
    """The jars of these modules (``group:name:version``) in a folder; those that are not there are downloaded."""
    jars = {module: folder / jar(module) for module in modules}
    missing = [module for module, file in jars.items() if not file.exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="half-") as half:
            _download(missing, Path(half))
            for module in missing:
                Path(half, jar(module)).replace(jars[module])
    return list(jars.values())


def jar(module: str) -> str:
    """The file name of a module.

    >>> jar("org.apache.spark:spark-avro_2.13:4.1.1")
    'spark-avro_2.13-4.1.1.jar'
    """
    _, name, version = module.split(":")
    return f"{name}-{version}.jar"


def _download(modules: Sequence[str], folder: Path) -> None:
    failures = []
    for way in (by_ivy, by_client):
        failure = way(modules, folder)
        if failure is None and all((folder / jar(module)).exists() for module in modules):
            return
        failures.append(failure or "some of them are not there")
    raise SettingError(
        f"Maven does not give {', '.join(modules)}. Spark's Ivy: {failures[0]} Maven's client: {failures[1]}",
        hint="they are needed once, with a network; or put them in Spark's folder of jars, or name jars of your own in "
        'settings: "spark.jars" = "…".',
    )


def by_ivy(modules: Sequence[str], folder: Path, *, transitive: bool = False) -> str | None:
    """Download modules with Spark's Ivy, with their dependencies if `transitive`; gives the error, or None."""
    java = _java()
    if java is None:
        return "there is no Java."
    ivy = next(Path(_find_spark_home(), "jars").glob("ivy-*.jar"), None)
    if ivy is None:
        return "this Spark has none."
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "ivy.xml")
        listed = (_DEPENDENCY.format(*module.split(":"), str(transitive).lower()) for module in modules)
        wanted.write_text(_IVY.format("".join(listed)), encoding="utf-8")
        command = [java, "-jar", str(ivy), "-ivy", str(wanted), "-cache", str(Path(scratch, "cache"))]
        command += ["-confs", "default", "-types", "jar", "bundle"]
        command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]", "-error"]
        return _run(command)


def by_client(modules: Sequence[str], folder: Path) -> str | None:
    """Download modules with `mvn`, which uses the mirrors of its settings; gives the error, or None."""
    client = shutil.which("mvn")
    if client is None:
        return "there is no mvn."
    for module in modules:
        copied = [client, "-q", "-B", "dependency:copy", f"-Dartifact={module}", f"-DoutputDirectory={folder}"]
        failure = _run(copied)
        if failure is not None:
            return failure
    return None


def _run(command: Sequence[str]) -> str | None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {PATIENCE} s."
    lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
    return (
        None
        if ran.returncode == 0
        else next((line for line in lines if _is_error(line)), f"exit code {ran.returncode}.")
    )


def _is_error(line: str) -> bool:
    return "not found" in line or line.startswith("[ERROR]")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    return program if program is not None and Path(program).exists() else None
