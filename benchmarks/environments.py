"""Separate environments of peers that are not among our dependencies, in `.bench/peers`, created on first use."""

import subprocess
import sys
from pathlib import Path

from benchmarks import data

#: The packages of each peer, at the measured versions.
PACKAGES = {
    "flink": ("apache-flink==2.3.0",),
    "pathway": ("pathway==0.33.0",),
    "bytewax": ("bytewax==0.21.1", "pyarrow==26.0.1"),
    "polars": ("polars==2.1.0",),
}
LONGEST_INSTALL = 900  # seconds


class NotInstalledError(Exception):
    """A peer's package does not install here; the message names what was tried."""


def python_of(name: str) -> Path:
    """The Python of a peer's environment, which is created unless it exists."""
    folder = data.scratch("peers") / name
    stamp, python = folder / "stamp", folder / "bin" / "python"
    wanted = f"{sys.version_info[:2]} {' '.join(PACKAGES[name])}"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    log = data.scratch("logs") / f"install-{name}.log"
    install = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *PACKAGES[name]]
    with log.open("w") as output:
        for command in ([sys.executable, "-m", "venv", "--clear", folder], install):
            try:
                subprocess.run(command, stdout=output, stderr=output, check=True, timeout=LONGEST_INSTALL)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                slow = isinstance(error, subprocess.TimeoutExpired)
                how = f"not within {LONGEST_INSTALL} s" if slow else "does not install"
                version = ".".join(map(str, sys.version_info[:2]))
                what = " ".join(PACKAGES[name])
                raise NotInstalledError(f"{what} {how} on Python {version} (reason in {log.name})") from None
    stamp.write_text(wanted)
    return python
