"""States of every kind of operator that an earlier version wrote are read, and what comes after is the same."""

from __future__ import annotations

import gzip
import json
import warnings
import zlib
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lab.golden import operator_states as operators
from lab.tws.subjects import subject
from lab.tws.task import header_of
from watersmeet.checkpoints.reopen import reopen
from watersmeet.errors import StateCorruptError
from watersmeet.state import segments
from watersmeet.state.durable.log import FORMAT, MemoryStore

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


@pytest.mark.parametrize("kind", ["gone", "matched"])
def test_marks_without_a_value_are_refused_though_the_checksum_fits(kind: str) -> None:
    """They name rows of the state, and NULL was read as some number."""
    store = next(s for s in operators.states(FORMAT) if any(e.kind == kind for e in header_of(s).segments))
    header, forged = header_of(store), MemoryStore()
    (entry, *_) = (e for e in header.segments if e.kind == kind)
    rows = segments.unpack(entry.id, store.segments[entry.id], entry.checksum).rows
    data = segments.pack(rows.set_column(0, rows.schema.names[0], pa.nulls(rows.num_rows, rows.schema.types[0])))
    forged.segments = store.segments | {entry.id: data.to_pybytes()}
    header.segments[header.segments.index(entry)] = replace(entry, size=data.size, checksum=zlib.crc32(data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(StateCorruptError, match="is not one of this format"):
            reopen(header, forged)


@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", "0.1/../../x", "", "0"])
def test_a_piece_that_would_be_another_file_is_refused(name: str) -> None:
    """Spilled rows are files of these names, which are written, read and removed."""
    store = next(s for s in operators.states(FORMAT) if any(e.kind == "spilled" for e in header_of(s).segments))
    header = header_of(store)
    spilled = next(part for part in header.metadata["spilled"].values() if part["pieces"])
    spilled["pieces"][0][0] = name
    with pytest.raises(StateCorruptError, match="is no name of a piece"):
        reopen(header, store)
