"""The documents as a site: it builds strictly, asks no foreign host for anything, and knows every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import watersmeet
from lab import ROOT
from lab.pages.fences import blocks

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.mark.more
def test_every_page_is_built_and_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    fetched = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["'](?:https?:)?//[^"']*""")
    for file in site.rglob("*.html"):
        assert not fetched.findall(file.read_text()), file
    for file in site.rglob("*.css"):
        assert not re.findall(r"""url\(["']?(?:https?:)?//""", file.read_text()), file


@pytest.mark.more
def test_the_reference_has_every_public_name(site: Path) -> None:
    anchors = re.findall(r'id="watersmeet\.[\w.]+"', (site / "reference.html").read_text())
    known = {anchor.rstrip('"').rpartition(".")[2] for anchor in anchors}
    linked = {"Stream"}  # made by `stream`, and nothing to call
    assert set(watersmeet.__all__) <= known | linked


def test_the_first_page_links_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+\.md)", index.read_text())}
    assert [page for page in PAGES if page not in linked | {index}] == []


def test_commands_that_are_shown_exist() -> None:
    """What stands in `shell` blocks is run elsewhere, or by hand; that there is such a job is looked up."""
    jobs = set(re.findall(r"^  ([a-z-]+) ", (ROOT / "run").read_text(), re.MULTILINE))
    shown = [line for page in PAGES for b in blocks(page) if b.language == "shell" for line in b.text.splitlines()]
    assert shown
    for line in shown:
        first, *words = line.split()
        if first == "./run":
            assert words[0] in jobs, line
        else:
            assert first in ("git", "watersmeet", "pip", "cd"), line


def test_every_job_that_needs_java_first_says_if_it_will_be_installed() -> None:
    before, _, jobs = (ROOT / "run").read_text().partition("\nmain() {")[2].partition(" announce_java ;;")
    announced = set(before.rpartition("\n")[2].strip(" )").split(" | "))
    needing = {name for name, body in re.findall(r"(?ms)^ {8}([a-z-]+)\)\n(.*?);;", jobs) if "ensure_java" in body}
    assert announced == needing


def test_messages_of_the_troubleshooting_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    table = page.partition("| message | what to do |")[2]
    quoted = [
        part for row in table.splitlines() if row.startswith("| `") for part in re.findall("`(.*?)`", row.split("|")[1])
    ]
    assert len(quoted) > 8
    code = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts that go on in the next line
    assert [q for q in quoted if q not in code] == []
