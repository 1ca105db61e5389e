"""A standalone cluster of two workers on loopback: a pipeline by `--master`, and the wheel by spark-submit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lab import ROOT
from lab.pages.commands import Place
from lab.processes import free_port

pytestmark = [pytest.mark.spark, pytest.mark.more]

SPARK = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
PATIENCE = 120  # seconds in which workers register


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster whose workers have no Watersmeet of their own on their path but what they are sent."""
    folder = tmp_path_factory.mktemp("cluster")
    port, page = free_port(), free_port()
    url = f"spark://{HOST}:{port}"
    given = {"SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(SPARK)}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | given
    deploy = str(SPARK / "bin" / "spark-class")
    package = "org.apache.spark.deploy"
    commands = [[f"{package}.master.Master", "--host", HOST, "--port", str(port), "--webui-port", str(page)]]
    for n in range(2):
        where = ["--host", HOST, "--webui-port", "0", "--work-dir", str(folder / f"worker{n}")]
        commands.append([f"{package}.worker.Worker", *where, "--cores", "1", "--memory", "1g", url])
    started = []
    try:
        for n, command in enumerate(commands):
            with (folder / f"{n}.log").open("wb") as log:
                started.append(subprocess.Popen([deploy, *command], env=environment, stdout=log, stderr=log))
        _wait_for_workers(page)
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)


def _wait_for_workers(page: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{page}/json/", timeout=5) as answer:
                if re.search(rb'"aliveworkers"\s*:\s*2', answer.read()):
                    return
        except OSError:
            time.sleep(0.2)  # the page is not there yet
    raise AssertionError("two workers did not register")


def place(folder: Path, **settings: str) -> Place:
    """The examples, with executors that fit a small machine and other settings of Spark's."""
    made = Place(folder, SPARK_LOCAL_IP=HOST)
    given = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", **settings}
    with (folder / "examples" / "pipelines" / "folders.toml").open("a") as pipeline:
        pipeline.write("\n[session]\nshards = 2\n[session.settings]\n")
        pipeline.writelines(f'"{name}" = "{value}"\n' for name, value in given.items())
    return made


def results(folder: Path) -> int:
    import duckdb

    files = f"{folder}/examples/pipelines/out/results/*/*.parquet"
    ((count, best),) = duckdb.sql(f"SELECT count(*), max(price) FROM '{files}'").fetchall()
    assert best == 30.0
    return int(count)


def test_a_pipeline_on_a_cluster_whose_workers_have_watersmeet(master: str, tmp_path: Path) -> None:
    here = place(tmp_path, **{"spark.executorEnv.PYTHONPATH": str(ROOT / "src")})
    printed = here.run(f"watersmeet run --once --master {master} examples/pipelines/folders.toml", 600)
    assert "7 rows in, 3 results" in printed
    assert results(tmp_path) == 3


def test_the_wheel_by_spark_submit(master: str, tmp_path: Path) -> None:
    here = place(tmp_path)
    build = "from hatchling.build import build_wheel; print(build_wheel(__import__('sys').argv[1]))"
    wheel = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()[-1]
    (tmp_path / wheel).rename(tmp_path / "watersmeet.zip")
    printed = here.run(
        f"unset PYTHONPATH\n{SPARK}/bin/spark-submit --master {master} --py-files watersmeet.zip "
        f"{ROOT}/src/watersmeet/cli/__main__.py run --once examples/pipelines/folders.toml",
        600,
    )
    assert "7 rows in, 3 results" in printed
    assert results(tmp_path) == 3
