"""The protocol of state, cache, retry and compaction (`lab.tws.protocol`), over every kind of operator.

Two kinds at a time share the caches of three machines. The rings have a few examples of each pair, `more` has other
pairs and more of them, and `python -m soak mishaps` takes their number as an argument.
"""

from __future__ import annotations

import pytest

from lab.tws.subject_runs import check, pairs

pytestmark = pytest.mark.tws


@pytest.mark.parametrize("pair", pairs(1), ids=" and ".join)
def test_the_protocol_holds_for_every_operator(pair: tuple[str, str]) -> None:
    check(pair, examples=2, steps=6)


@pytest.mark.more
@pytest.mark.parametrize("pair", pairs(5), ids=" and ".join)
def test_the_protocol_holds_for_every_operator_in_more_examples(pair: tuple[str, str]) -> None:
    check(pair, examples=5, steps=9)
