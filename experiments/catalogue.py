"""All experiments, and the figures and tables that they must cover."""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.multiway import MULTIWAY
from experiments.on_spark import ON_SPARK
from experiments.pwjoin import PWJOIN
from experiments.window_joins import WINDOW_JOINS
from experiments.wo_join import WO_JOIN
from experiments.wo_strategies import WO_STRATEGIES

#: Figures and tables of the papers.
ROWS = (
    "PWJoin 8", "PWJoin 9", "PWJoin 10", "PWJoin 11", "PWJoin 12", "PWJoin Eq. 1",
    "Windowed 4", "Windowed 5, 6", "Windowed 7", "Windowed 8",
    "Multi-way table", "Multi-way 2, 3", "Multi-way 4",
    "WO-Join 5–7", "WO-Join 8", "WO-Join 9, 10", "WO-Join 11",
)  # fmt: skip

#: By id, in the order of the report.
EXPERIMENTS: dict[str, Experiment] = {
    e.id: e for e in (*PWJOIN, *WINDOW_JOINS, *MULTIWAY, *WO_JOIN, *WO_STRATEGIES, *ON_SPARK)
}
