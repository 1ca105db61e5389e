"""Pictures of the live page for the documents: ``python -m lab.dashboard.screenshots EVENTS [FOLDER]``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from lab import ROOT
from lab.dashboard.browser import CHROMIUM, FLAGS
from watersmeet import dashboard

IMAGES = ROOT / "docs" / "images"
#: The pictures: width, height, colour scheme, and the element at the top.
PICTURES = {
    "page-light": (1240, 1080, "light", "header"),
    "page-dark": (1240, 1010, "dark", "[data-chart=left]"),
    "page-phone": (390, 980, "dark", "header"),
}


def take(events: Path, folder: Path) -> None:
    """Draw the page of an event file, as it is after the last batch."""
    folder.mkdir(parents=True, exist_ok=True)
    with dashboard.serve(events) as served, sync_playwright() as playwright:
        for name, (width, height, scheme, first) in PICTURES.items():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
                context = playwright.chromium.launch_persistent_context(
                    profile,
                    executable_path=CHROMIUM,
                    args=list(FLAGS),
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    timezone_id="UTC",
                )
                page = context.pages[0]
                page.goto(served.url)
                page.wait_for_selector("body[data-ready=yes]", state="attached")
                page.wait_for_selector("#tile-tuples")
                top = 0 if first == "header" else page.locator(first).bounding_box()["y"] - 70  # type: ignore[index]
                page.evaluate(f"scrollTo(0, {top})")
                page.screenshot(path=folder / f"{name}.png")
                context.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else IMAGES)
