"""The package as it is published: the contents of wheel and sdist, and the wheel in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import watersmeet
from lab import ROOT

pytest.importorskip("hatchling")

#: A user's program, by the wheel alone: a join of streams, with a restart and the state that is left, beside the batch.
PROGRAM = """
import watersmeet as wm
from watersmeet import aggregates, testing

def joined(a, b):
    return wm.join(*(wm.stream(df, time=time, window="5 seconds") for df, time in ((a, "a_at"), (b, "b_at"))), on="k")

spark, clock = wm.session(master="local[1]", shards=1), testing.Clock()
batches = [[(k, clock.at("1 second")) for k in range(first, first + 4)] for first in (0, 2)]
a, b = ([rows, [(key, clock.at("1 minute"))]] for rows, key in zip(batches, (8, 9)))
feeds = (testing.feed(spark, f"k long, {name}_at timestamp", rows, name) for name, rows in (("a", a), ("b", b)))
outcome = testing.check(joined, *feeds)
held = [row["k"] for row in outcome.state["stream1"]]
print(wm.__file__, sorted(row["k"] for row in outcome.results), held, sep="\\n")
spark.stop()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.more
def test_the_wheel_has_the_package_with_its_types_and_pages_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        meta = Parser().parsestr(file.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode())
        entry_points = file.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    folders = {"watersmeet", "pyspark_watersmeet", f"watersmeet-{watersmeet.__version__}.dist-info"}
    assert {name.split("/")[0] for name in names} == folders
    sources = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src" / "watersmeet").rglob("*") if p.is_file()}
    assert {name for name in sources if "__pycache__" not in name} <= set(names)
    assert "watersmeet/py.typed" in names
    assert (meta["Name"], meta["Version"], meta["License-Expression"]) == (
        "watersmeet",
        watersmeet.__version__,
        "Apache-2.0",
    )
    assert meta["Summary"]
    assert meta["Author"] == "The Watersmeet maintainers"
    assert meta["Requires-Python"] == ">=3.11"
    assert meta["Description-Content-Type"] == "text/markdown"
    assert set(meta.get_all("Provides-Extra") or ()) == {"cli", "connect", "demo"}
    claimed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert {"Typing :: Typed", "Programming Language :: Python :: 3 :: Only"} <= set(claimed)
    assert sorted(meta.get_all("Classifier") or ()) == sorted(claimed)
    assert "watersmeet = watersmeet.cli.__main__:main" in entry_points


@pytest.mark.more
def test_the_sdist_has_the_sources_and_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extraction_filter = getattr(tarfile, "data_filter", None)  # not in Python 3.11.2
        file.extractall(tmp_path)
    (unpacked,) = tmp_path.iterdir()
    assert set(os.listdir(unpacked)) - {"PKG-INFO", ".gitignore"} == {
        *("src", "LICENSE", "CHANGELOG.md", "README.md", "pyproject.toml")
    }
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")]
    subprocess.run(command, cwd=unpacked, check=True, capture_output=True)

    def contents(folder: Path) -> dict[str, int]:
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as file:
            return {info.filename: info.CRC for info in file.infolist()}

    assert contents(tmp_path / "again") == contents(built)


#: What pip says where no package index can be reached; that a version is not there sounds otherwise.
UNREACHABLE = re.compile(r"\(from versions: none\)|NewConnectionError|ConnectTimeout|Network is unreachable|timed out")


@pytest.mark.more
@pytest.mark.spark
def test_the_wheel_is_installed_and_used_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    """Dependencies come from the package index, but for PySpark, which takes minutes; all are lent without an index."""
    (wheel,) = built.glob("*.whl")
    home, lent = tmp_path / "env", tmp_path / "lent"
    venv.create(home, symlinks=True, with_pip=True)
    python, site = home / "bin" / "python", Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    here = Path(sysconfig.get_path("purelib"))
    lent.mkdir()
    for package in (*here.glob("pyspark*"), *here.glob("py4j*")):
        (lent / package.name).symlink_to(package)
    (site / "lent.pth").write_text(f"{lent}\n")
    own = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | own

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    pip = ("-m", "pip", "--disable-pip-version-check", "--no-input")
    installed = run(*pip, "install", "--retries", "1", "--timeout", "15", "--only-binary", ":all:", wheel)
    if installed.returncode == 0:
        checked = run(*pip, "check")
        assert checked.returncode == 0, checked.stdout
    else:
        assert UNREACHABLE.search(installed.stderr), installed.stderr[-2000:]
        alone = run(*pip, "install", "--no-index", "--no-deps", wheel)
        assert alone.returncode == 0, alone.stderr[-2000:]
        # a .pth inside that folder, such as our editable install, does not count
        (site / "lent.pth").write_text(f"{here}\n")
    ran = run("-c", PROGRAM)
    assert ran.returncode == 0, ran.stderr[-2000:]
    place, keys, held = ran.stdout.splitlines()[-3:]
    assert Path(place).is_relative_to(site)
    assert (keys, held) == ("[2, 3]", "[8]")
