"""Golden states of every kind of operator: `python -m tests.golden.operators`, once per state format.

`operators-<n>.json.gz` has, for every subject of the protocol's tests, the durable state of both shards after all
batches but the last, this one's input, and what it said. A later version reads the states and says the same, or
refuses them.
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

from tests.tws.test_protocol_operators import IDS, SUBJECTS, Attempt, Machines, Subject, subject
from watersmeet.spark import worker_cache
from watersmeet.spark.packing import PACKED
from watersmeet.state.log import FORMAT, MemoryStore

Stores = dict[int, MemoryStore]


def path(format: int) -> Path:
    return Path(__file__).parent / f"operators-{format}.json.gz"


def batch(of: Subject, stores: Stores, given: pa.Table) -> tuple[Counter[str], Stores]:
    """What a batch says, on a machine that has never seen the query, and the state that it leaves."""
    said: Counter[str] = Counter()
    after: Stores = {}
    with tempfile.TemporaryDirectory(dir=worker_cache.base()) as folder, pytest.MonkeyPatch.context() as patch:
        Machines(Path(folder), patch)
        for shard in IDS:
            attempt = Attempt(of, shard, stores[shard], given)
            attempt.run()
            said += attempt.said(of.query.schema.names)
            after[shard] = attempt.task.store()
    return said, after


def packed(store: MemoryStore) -> dict[str, Any]:
    segments = {str(id): b64encode(data).decode() for id, data in store.segments.items()}
    return {"header": b64encode(store.header or b"").decode(), "segments": segments}


def unpacked(told: dict[str, Any]) -> MemoryStore:
    store = MemoryStore()
    store.header = b64decode(told["header"])
    store.segments = {int(id): b64decode(data) for id, data in told["segments"].items()}
    return store


def table(text: str) -> pa.Table:
    return pa.ipc.open_stream(b64decode(text)).read_all()


def _text(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, PACKED) as writer:
        writer.write_table(rows)
    return b64encode(sink.getvalue()).decode()


def main() -> None:
    golden = {}
    for name in SUBJECTS:
        of, stores = subject(name), {id: MemoryStore() for id in IDS}
        *first, last = of.given
        for given in first:
            _, stores = batch(of, stores, given)
        kept = {str(id): packed(store) for id, store in stores.items()}
        said, _ = batch(of, stores, last)
        golden[name] = {"stores": kept, "given": _text(last), "said": dict(said)}
    path(FORMAT).write_bytes(gzip.compress(json.dumps(golden).encode(), mtime=0))


if __name__ == "__main__":
    main()
