"""Golden states of every kind of operator: `python -m lab.golden.operator_states`, per state format and new operator.

`operators-<n>.json.gz` has, for every subject of the protocol's tests, the durable state of both shards after all
batches but the last, the input of the last batch, and its output. A later version reads the states and gives the same
output, or refuses them.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from base64 import b64decode, b64encode
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab import ROOT
from lab.tws.attempts import Attempt, Machines
from lab.tws.subjects import IDS, SUBJECTS, Subject, subject
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.packing import PACKED
from watersmeet.state.durable.log import FORMAT, MemoryStore

Stores = dict[int, MemoryStore]
#: What a machine spills is no part of the durable state.
NAMES = [name for name in SUBJECTS if not name.endswith(", spilled")]


def path(format: int) -> Path:
    return ROOT / "tests" / "golden" / f"operators-{format}.json.gz"


def batch(of: Subject, stores: Stores, given: pa.Table) -> tuple[Counter[str], Stores]:
    """The output of a batch on a machine without working states, and the state after it."""
    output: Counter[str] = Counter()
    after: Stores = {}
    with tempfile.TemporaryDirectory(dir=worker_cache.base()) as folder, pytest.MonkeyPatch.context() as patch:
        Machines(Path(folder), patch)
        for shard in IDS:
            attempt = Attempt(of, shard, stores[shard], given)
            attempt.run()
            output += attempt.output(of.query.schema.names)
            after[shard] = attempt.task.store()
    return output, after


def packed(store: MemoryStore) -> dict[str, Any]:
    segments = {str(id): b64encode(data).decode() for id, data in store.segments.items()}
    return {"header": b64encode(store.header or b"").decode(), "segments": segments}


def unpacked(stored: dict[str, Any]) -> MemoryStore:
    store = MemoryStore()
    store.header = b64decode(stored["header"])
    store.segments = {int(id): b64decode(data) for id, data in stored["segments"].items()}
    return store


def table(text: str) -> pa.Table:
    return pa.ipc.open_stream(b64decode(text)).read_all()


def _text(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PACKED) as writer:
        writer.write_table(rows)
    return b64encode(sink.getvalue()).decode()


def states(format: int) -> list[MemoryStore]:
    """The golden states of all shards of all operators."""
    golden = json.loads(gzip.decompress(path(format).read_bytes()))
    return [unpacked(one) for of in golden.values() for one in of["stores"].values()]


def main() -> None:
    """Add the subjects that have no golden state in the current format; those that have one stay as they are."""
    file = path(FORMAT)
    golden = json.loads(gzip.decompress(file.read_bytes())) if file.exists() else {}
    for name in (name for name in NAMES if name not in golden):
        of = subject(name)
        stores = of.stores()
        *first, last = of.given
        for given in first:
            _, stores = batch(of, stores, given)
        kept = {str(id): packed(store) for id, store in stores.items()}
        output, _ = batch(of, stores, last)
        golden[name] = {"stores": kept, "given": _text(last), "output": dict(output)}
    file.write_bytes(gzip.compress(json.dumps(golden).encode(), mtime=0))


if __name__ == "__main__":
    main()
