"""The parent of Python workers as `watersmeet.spark.runtime.daemon` is, with the soak's traps in place."""

from __future__ import annotations

import runpy

from soak import traps

if __name__ == "__main__":
    traps.install()
    runpy.run_module("watersmeet.spark.runtime.daemon", run_name="__main__")
