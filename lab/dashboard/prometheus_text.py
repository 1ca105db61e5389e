"""Prometheus' text format, read strictly."""

from __future__ import annotations

import re

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)\{{({LABEL}(?:,{LABEL})*)\}} (\S+)")


def parse(text: str) -> dict[str, dict[str, float]]:
    """Samples by family and labels; strict: HELP, TYPE, then the samples of a family, each once, and nothing else."""
    found: dict[str, dict[str, float]] = {}
    family = ""
    lines = text.split("\n")
    assert lines.pop() == "", "the last line ends"
    for line in lines:
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in found
            found[family] = {}
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family
            assert not found[family]
            assert kind == ("counter" if family.endswith("_total") else "gauge")
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == family
            assert match[2] not in found[family]
            found[family][match[2]] = float(match[3])
    assert all(found.values())
    return found
