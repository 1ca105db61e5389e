"""The browser of the machine, and how it is started."""

from __future__ import annotations

import shutil

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--no-sandbox",  # the tests may run as root; the browser sees no page but this one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
