"""The registry: what belongs to every operator is there, and what a new one lacks is named."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import watersmeet
from lab.joins.configurations import OPERATORS, WITHOUT_EQUALITY, Operator
from lab.joins.plain_pairs import query
from watersmeet import joins
from watersmeet.checkpoints.contents import parts
from watersmeet.checkpoints.reopen import kind_of, reopen
from watersmeet.cost.machine import DEFAULT
from watersmeet.cost.models import COST_MODELS
from watersmeet.errors import QueryError
from watersmeet.joins import REGISTRY, HashJoin, HybridJoin, Join, LazyJoin, WindowedHashJoin, WOJoin
from watersmeet.joins.algorithm import MOST_STREAMS, Algorithm, Traits
from watersmeet.model.batches import Batch
from watersmeet.model.queries import HOW
from watersmeet.model.windows import KINDS
from watersmeet.optimizer.planner import make_plan
from watersmeet.state.durable import log
from watersmeet.state.durable.log import Header

PAGES = Path(__file__).parents[2] / "docs" / "operators"


def test_every_operator_has_a_cost_model() -> None:
    assert set(COST_MODELS) == set(REGISTRY), "cost/models.py"


def test_every_operator_has_a_page() -> None:
    """A page names its operators in its title."""
    titles = [page.read_text().partition("\n")[0].partition(":")[0] for page in PAGES.glob("*.md")]
    assert {name for title in titles for name in re.findall(r"`(\w+)`", title)} - {"group_by"} == set(REGISTRY), PAGES


def test_every_operator_is_held_to_the_oracle() -> None:
    """`test_contract` runs all of these beside the definition, `test_theta` those without equality."""
    held = {operator.name for operator in OPERATORS} | set(WITHOUT_EQUALITY)
    assert held == set(REGISTRY), "lab/joins/configurations.py"


def test_every_operator_is_public() -> None:
    missing = {name for name, kind in REGISTRY.items() if getattr(watersmeet, kind.__name__, None) is not kind}
    assert missing == set(), "watersmeet/__init__.py"
    assert {kind.__name__ for kind in REGISTRY.values()} <= set(watersmeet.__all__), "watersmeet/__init__.py"


#: What each says is incomplete, and where. tests/tws/test_protocol_operators.py does so for lab/tws/subjects.py.
COMPLETE = {
    "cost/models": test_every_operator_has_a_cost_model,
    "docs/operators": test_every_operator_has_a_page,
    "lab/joins/configurations": test_every_operator_is_held_to_the_oracle,
    "watersmeet/__init__": test_every_operator_is_public,
}


def test_every_operator_has_all_else_by_itself() -> None:
    for name, kind in REGISTRY.items():
        traits = kind.traits
        assert name == traits.name
        assert traits.family in DEFAULT.families
        assert traits.streams in (2, MOST_STREAMS)
        assert set(traits.how) <= set(HOW)
        assert set(traits.windows) <= set(KINDS)


@dataclass(frozen=True, slots=True)
class Toy(HashJoin):
    """An operator that is nowhere but in the registry."""

    traits: ClassVar[Traits] = replace(HashJoin.traits, name="toy")


def test_what_a_new_operator_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = make_plan(query())
    monkeypatch.setitem(REGISTRY, "toy", Toy)
    assert make_plan(query()) == plans, "without a cost model it is taken by its name alone"
    for where, complete in COMPLETE.items():
        with pytest.raises(AssertionError, match=rf"(?s){where}.*toy"):
            complete()
    assert joins.plan(query(), "toy") == Join(query(), Toy())
    assert joins.stored(Toy().describe()) == Toy()


@pytest.mark.parametrize("name", REGISTRY)
def test_every_option_is_documented(name: str) -> None:
    kind = REGISTRY[name]
    text = "\n".join(k.__doc__ or "" for k in kind.__mro__ if k.__module__.startswith("watersmeet"))
    for option in kind.option_fields():
        assert option.name in text


@pytest.mark.parametrize(
    "algorithm",
    [
        *(kind() for kind in REGISTRY.values() if kind is not WindowedHashJoin),
        WindowedHashJoin(7, "all"),
        LazyJoin(every="10 seconds", expiration="1 minute", order=((1,), (0,)), max_matches_per_row=5),
        HybridJoin(index=("a",), every=5, order=(1, 0)),
        WOJoin(buffer="learned", scrambling=(3, None), strategy="dbf", memory="1 MB", shed=True),
        WOJoin(scrambling={"a": 3}, loss=0.01),
    ],
    ids=repr,
)
def test_an_algorithm_is_described_as_json(algorithm: Algorithm[Any]) -> None:
    again = joins.stored(json.loads(json.dumps(algorithm.describe())))
    assert again.describe() == algorithm.describe()
    assert type(algorithm)(**algorithm.given_options()) == algorithm == pickle.loads(pickle.dumps(algorithm))


def test_options_in_words_are_those_in_numbers() -> None:
    assert LazyJoin(every="10 seconds") == LazyJoin(every=10_000_000)
    assert WOJoin(memory="1 MB") == WOJoin(memory=1 << 20)
    with pytest.raises(QueryError, match=r"^`every` is 0 seconds; it is a duration"):
        LazyJoin(every="0 seconds")


def test_a_running_join_knows_its_operator() -> None:
    assert HashJoin().start(query()).operator == {"name": "hash", "options": {}}
    buckets = {"name": "windowed_hash", "options": {"buckets": 3, "invalidation": "probe_insert"}}
    assert joins.plan(query(), "hash", buckets=3).start().operator == buckets


OVER_ROWS = [operator for operator in OPERATORS if operator.name not in ("pjoin", "wo_join", "asof")]


@pytest.mark.parametrize("operator", OVER_ROWS, ids=str)
def test_a_state_is_reopened_as_the_operator_that_wrote_it(operator: Operator) -> None:
    running, store, batches = operator(query()).start(), log.MemoryStore(), []
    for spec, keys, times in zip(query().streams, ([1], [1, 2]), ([1], [2, 3]), strict=True):
        rows = pa.record_batch([pa.array(keys), pa.array(times)], schema=spec.schema)
        batches.append(Batch.of(rows, spec.time))
    list(running.step(batches))
    log.commit(running, log.begin(query()), store)
    assert store.header is not None
    header = Header.unpack(store.header)
    assert header.operator == running.operator
    again = reopen(header, store)
    assert type(again) is type(running)
    assert [part.rows() for part in parts(again)] == [part.rows() for part in parts(running)]
    assert kind_of(header) == operator.name
