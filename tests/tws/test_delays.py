"""Measured delays through the real packer and processor: all shards agree, and every late row is handed out."""

from __future__ import annotations

import shutil
from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from lab.joins.oracle import bag
from lab.joins.plain_pairs import arrivals, tolerant
from lab.tws.task import Shards
from watersmeet.joins.reference.definition import Tuple, window_join
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.spark.runtime import worker_cache

pytestmark = pytest.mark.tws


@pytest.mark.parametrize("shards", [1, 3])
def test_shards_agree_on_the_delay_and_every_late_row_is_reported(shards: int) -> None:
    """Rows dealt out to any partitions, working states lost now and then."""
    run, chance, size = Shards(tolerant(0.02), shards), Random(shards), 100
    times = [arrivals(seed, 0.3, 1200) for seed in (1, 2)]
    watermarks = [BEFORE_ALL, BEFORE_ALL]
    on_time: list[list[Tuple]] = [[], []]
    found, late, outcome = [], 0, []
    for n, at in enumerate(range(0, 1200, size)):
        new_elements = []
        for i, spec in enumerate(run.query.streams):
            some = times[i][at : at + size]
            new_elements.append(pa.record_batch([some % 20, some], schema=spec.schema))
            on_time[i] += [Tuple(t, (t % 20,), t) for t in some.tolist() if t >= watermarks[i]]
            late += int(np.count_nonzero(some < watermarks[i]))
        out = run.step(new_elements, chance)
        found += out.results
        outcome += out.late
        (watermarks,) = {tuple(h.watermarks) for h in run.headers()}
        assert {tuple(s["delays"]) for s in out.stats} == {tuple(out.stats[0]["delays"])}
        assert len(outcome) == late
        if n % 5 == 2:
            shutil.rmtree(worker_cache.application_cache().root)
    assert 0 < late <= 0.05 * 2400
    assert Counter(detail["stream"] for detail in outcome).keys() == {"a", "b"}
    expected = window_join(on_time, [s.window for s in run.query.streams])
    assert bag(found) == bag([(a.key[0], a.ts, b.ts) for a, b in expected])
