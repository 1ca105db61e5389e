"""The same streams through Spark: what a user sees of the state."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments import figures
from experiments import on_spark_runs as runs
from experiments.experiment import Experiment
from experiments.on_spark_runs import AUTO, LONG, OWN, PLAIN, PWJOIN, SHORT
from experiments.wo_join import shade_swings
from lab.measure.claims import Claim, Found, Verdict
from lab.measure.spreads import mean


def later(found: Found, name: str) -> float:
    """Mean rows in state over the second half."""
    values = found["counts"][name]["stored"]
    return mean(values[len(values) // 2 :])


def check_state(found: Found) -> Verdict:
    sizes = {name: later(found, name) for name in (OWN, PLAIN, PWJOIN)}
    text = ", ".join(f"{name} {size:,.0f}" for name, size in sizes.items())
    return Verdict(sizes[PWJOIN] < sizes[PLAIN] <= sizes[OWN], text)


def check_same(found: Found) -> Verdict:
    results = {name: found["counts"][name]["results"] for name in (OWN, PLAIN, PWJOIN)}
    return Verdict(len(set(results.values())) == 1, ", ".join(f"{name} {n:,}" for name, n in results.items()))


def draw_rows(figure: Figure, found: Found, names: tuple[str, ...]) -> Axes:
    axes = figure.subplots()
    for style, name in enumerate(names):
        figures.line(axes, found["counts"]["at"], found["counts"][name]["stored"], style, name, markevery=2)
    axes.set_xlabel("stream time, s")
    axes.set_ylabel("rows in state")
    axes.set_ylim(bottom=0)
    figures.thousands(axes)
    figures.below(figure, axes, 3)
    return axes


def draw_state(figure: Figure, found: Found) -> None:
    draw_rows(figure, found, (OWN, PLAIN, PWJOIN))


def accuracy(found: Found, name: str) -> float:
    return float(found["counts"][name]["results"] / found["counts"]["possible"])


def check_auto(found: Found) -> Verdict:
    text = ", ".join(f"{name} {accuracy(found, name):.2%}" for name in (AUTO, LONG, SHORT))
    return Verdict(accuracy(found, AUTO) >= 0.992, text)


def check_auto_state(found: Found) -> Verdict:
    names = (AUTO, LONG, SHORT)
    sizes = {name: mean(found["counts"][name]["stored"]) for name in names}
    text = ", ".join(f"{name} {sizes[name]:,.0f}" for name in names)
    rivals = [n for n in (LONG, SHORT) if accuracy(found, n) >= accuracy(found, AUTO)]
    return Verdict(all(sizes[AUTO] < sizes[n] for n in rivals), f"mean rows in state: {text}")


def draw_auto(figure: Figure, found: Found) -> None:
    shade_swings(draw_rows(figure, found, (SHORT, LONG, AUTO)), burst=False)


ON_SPARK = (
    Experiment(
        id="spark-state",
        row="On Spark",
        title="The streams of PWJoin 8 through Spark",
        setup="Two punct-asc-100-40 streams over 400 values, a tuple every 10 ms, windows of 15 s, as parquet files "
        "of 5 s of stream time, one of each stream a micro-batch, 150 s; two shards. Spark's own stream-stream join "
        "with watermarks of no delay and a condition on the times; ours as window join and, with the punctuations, "
        "as PWJoin. Rows in state as each join reports them after a batch.",
        run=runs.run_state,
        claims=(
            Claim("all three give the same number of results", check_same),
            Claim("rows in state: PWJoin < window join ≤ Spark's own join", check_state),
        ),
        draw=draw_state,
        size=(6.4, 3.4),
        seconds=120,
    ),
    Experiment(
        id="spark-auto",
        row="On Spark",
        title='window="auto" against a watermark',
        setup="The first two streams of WO-Join's Query 1, of which the second one's rate falls to an eighth from 10 "
        "to 40 s (shaded), joined on their epoch; parquet files of 5 s, one of each stream a micro-batch, 120 s; two "
        "shards. Spark's own join needs a bound on how far apart partners arrive: 15 s, or 90 s to be safe. Ours is "
        "given no bound.",
        run=runs.run_auto,
        claims=(
            Claim('window="auto" finds 99.2 % of the results and more', check_auto),
            Claim("with fewer rows in state than a watermark that finds as many", check_auto_state),
        ),
        draw=draw_auto,
        size=(6.4, 3.4),
        seconds=100,
    ),
)
