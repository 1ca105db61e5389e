"""Who defines a join imports the kernels and runs none: the first call of one loads the compiler's tables."""

from __future__ import annotations

import os
import subprocess
import sys

from lab import ROOT

SCRIPT = """
import sys
import watersmeet.spark.joined, watersmeet.spark.write
print([
    f"{name}.{kernel}"
    for name, module in sys.modules.items()
    if name.startswith("watersmeet.kernels")
    for kernel, dispatcher in vars(module).items()
    if getattr(dispatcher, "overloads", None)
])
"""


def test_importing_the_doors_loads_no_kernel() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, check=True)
    assert ran.stdout == "[]\n"
