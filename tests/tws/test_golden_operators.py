"""States of every kind of operator that an earlier version wrote are read, and what comes after is the same."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

import pytest

from lab.golden import operator_states as operators
from lab.tws.subjects import subject
from watersmeet.state.durable.log import FORMAT

pytestmark = pytest.mark.tws

GOLDEN: dict[str, Any] = json.loads(gzip.decompress(operators.path(FORMAT).read_bytes()))


def test_every_kind_of_operator_has_a_golden_state() -> None:
    assert set(GOLDEN) == set(operators.NAMES)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_state_is_read_and_goes_on(name: str) -> None:
    golden = GOLDEN[name]
    stores = {int(id): operators.unpacked(store) for id, store in golden["stores"].items()}
    assert any(store.segments for store in stores.values()), "something was kept"
    output, _ = operators.batch(subject(name), stores, operators.table(golden["given"]))
    assert output == Counter(golden["output"])
