"""Statistics over seeds: means, confidence intervals, paired differences."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from simple_spk.io.atomic_file import atomic_write, write_text
from tools.experiment_runs import Metric, Run, common_metrics, headline_metric

AVERAGE = "average"  # over the test lists
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean and the half width of its 95 % confidence interval (Student's t); NaN: one seed."""

    mean: float
    half_width: float

    def text(self, decimals: int) -> str:
        """Both numbers as mean ± half width."""
        reach = "" if math.isnan(self.half_width) else f" ± {self.half_width:.{decimals}f}"
        return f"{self.mean:.{decimals}f}{reach}"


def estimate(values: Sequence[float]) -> Estimate:
    """The mean of one value per seed, with its interval.

    >>> estimate([1.0, 2.0, 3.0]).text(decimals=2)
    '2.00 ± 2.48'
    """
    if len(values) < 2:
        return Estimate(float(np.mean(values)), math.nan)
    reach = stats.t.ppf((1.0 + CONFIDENCE) / 2.0, len(values) - 1)
    return Estimate(float(np.mean(values)), float(reach * stats.sem(values)))


class Comparison:
    """The metrics of runs, (variants, seeds) for each test list and for their average.

    Only seeds that all variants have are used, as differences are paired by seed.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self.variants = list(dict.fromkeys(run.variant for run in runs))
        of_variant = {name: {r.seed for r in runs if r.variant == name} for name in self.variants}
        self.seeds = sorted(set.intersection(*of_variant.values()))
        found = {(run.variant, run.seed): run.lists for run in runs}
        names = list(runs[0].lists)
        if not self.seeds or any(list(lists) != names for lists in found.values()):
            raise ValueError("the runs have no seed, or not the same test lists, in common")

        headline_metric(runs[0].lists)

        def table(metric: Metric) -> dict[str, NDArray[np.float64]]:
            tables = {
                name: np.array(
                    [
                        [metric.of(found[variant, seed][name]) for seed in self.seeds]
                        for variant in self.variants
                    ]
                )
                for name in names
            }
            if len(names) > 1:
                tables[AVERAGE] = np.mean(list(tables.values()), axis=0)
            return tables

        self.metrics = {metric: table(metric) for metric in common_metrics(runs[0].lists)}

    @property
    def headline(self) -> NDArray[np.float64]:
        """The headline metric (variants, seeds), averaged over the lists."""
        return list(self.metrics[self.headline_metric].values())[-1]

    @property
    def headline_metric(self) -> Metric:
        """The most important metric."""
        return next(iter(self.metrics))

    def difference(self, number: int, reference: int = 0) -> Estimate:
        """The headline metric of a variant minus that of the reference, paired by seed."""
        return estimate((self.headline[number] - self.headline[reference]).tolist())


def markdown(comparison: Comparison) -> str:
    """A table with a row per variant; the first is what the others are compared with."""
    columns = [
        (f"{name}, {metric.title}", table, metric.decimals)
        for metric, tables in comparison.metrics.items()
        for name, table in tables.items()
    ]
    reference, shown = comparison.variants[0], comparison.headline_metric
    what = shown.title.removesuffix(" %")
    header = ["variant", *(title for title, *_ in columns), f"Δ {what} vs {reference} (paired)"]
    lines = [row(header), row(["---"] * len(header))]
    for number, variant in enumerate(comparison.variants):
        cells = [estimate(table[number].tolist()).text(digits) for _, table, digits in columns]
        difference = comparison.difference(number).text(shown.decimals) if number else ""
        lines.append(row([variant, *cells, difference]))
    seeds = ", ".join(map(str, comparison.seeds))
    note = f"Mean over the seeds {seeds}, with 95 % intervals over seeds (Student's t); the last "
    note += "column is paired by seed. Intervals are over training runs, not over test data."
    if len(comparison.seeds) == 1:
        note = f"One seed, {seeds}: no intervals."
    return "\n".join([*lines, "", note, ""])


def row(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def write_plot(path: Path, comparison: Comparison) -> None:
    """Draw the headline metric of each variant: a dot per seed, the mean with its interval."""
    height = 1.4 + 0.4 * len(comparison.variants)
    figure = Figure(figsize=(7.0, height), dpi=150, layout="constrained")
    shown = comparison.headline_metric
    what = f" ({AVERAGE} over lists)" if AVERAGE in comparison.metrics[shown] else ""
    axes = figure.add_subplot(xlabel=f"{shown.title}{what}")
    for place, values in enumerate(comparison.headline):
        mean, half_width = estimate(values.tolist())
        reach = None if math.isnan(half_width) else half_width
        words = ("mean" if reach is None else "mean and its 95 % interval", "one seed")
        labels = words if place == 0 else (None, None)
        axes.errorbar(
            mean,
            place,
            xerr=reach,
            fmt="D",
            color="#0072b2",
            capsize=4,
            markersize=5,
            label=labels[0],
        )
        below = [place + 0.25] * len(values)
        axes.plot(values, below, "o", color="#d55e00", markersize=4, label=labels[1])
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    axes.set_yticks(range(len(comparison.variants)), comparison.variants)
    axes.set_ylim(len(comparison.variants) - 0.5, -0.5)  # the first on top
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
    with atomic_write(path) as partial:
        figure.savefig(partial, format="png")


def write_comparison(folder: Path, title: str, runs: Sequence[Run]) -> str:
    """Write table.md and plot.png of runs into a folder; the table's text."""
    comparison = Comparison(runs)
    text = f"{title}\n\n{markdown(comparison)}"
    write_text(folder / "table.md", text)
    write_plot(folder / "plot.png", comparison)
    return text
