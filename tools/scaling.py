"""EER by training speakers and steps: python tools/scaling.py BASE.yaml ... --speakers 200 800

Trains each experiment with random subsets of the training speakers (a smaller one is part of a
larger one) and with each number of steps. Options after -- go to train.py in all runs; the data
folder, whose train.csv is divided, must be one of them:

    python tools/scaling.py simple.yaml aamsoftmax.yaml --speakers 200 800 3109 --steps 300 1000 \\
        -o results/scaling -- --data_folder=DATA

It goes on where it was stopped. FOLDER has table.md and plot.png: the mean over all lists of the
most important metric, against speakers, a line for each experiment and number of steps.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from simple_spk.data.manifest import read_manifest, write_manifest
from simple_spk.io.atomic_file import atomic_write, write_text
from tools.experiment_runs import Overrides, Run, Variant, headline_metric, run_all, split_overrides
from tools.seed_statistics import estimate, row


class Point(NamedTuple):
    """An experiment with some of the training speakers and a number of steps."""

    experiment: str
    speakers: int
    steps: int

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"{self.experiment}-{self.speakers}-{self.steps}"


def write_subset(table: Path, speakers: int, subset: Path) -> None:
    """Write the rows of as many speakers of a manifest; a larger number has these and more."""
    manifest = read_manifest(table)
    if not 0 < speakers <= len(manifest.speakers):
        raise ValueError(
            f"--speakers {speakers}: {table} has {len(manifest.speakers)} of them; ask for fewer"
        )
    chosen = np.random.default_rng(0).permutation(len(manifest.speakers))[:speakers]
    rows = np.flatnonzero(np.isin(manifest.speaker_of_row, chosen)).tolist()
    ids = list(manifest.row_of_id)
    write_manifest(
        subset,
        [ids[number] for number in rows],
        [str(manifest.wav(number).resolve()) for number in rows],
        manifest.durations_seconds[rows].tolist(),
        [manifest.speakers[manifest.speaker_of_row[number]] for number in rows],
    )


def make_variants(
    experiments: Sequence[Path],
    speakers: Sequence[int],
    steps: Sequence[int],
    folder: Path,
    overrides: Overrides,
) -> dict[Point, Variant]:
    """All experiments, whose training tables are written to the folder."""
    given = dict(option.removeprefix("--").partition("=")[::2] for option in overrides)
    if "data_folder" not in given:
        raise ValueError("name the data after --: -- --data_folder=DATA")
    table = Path(given["data_folder"]) / "train.csv"
    variants = {}
    for count in speakers:
        subset = (folder / f"train_{count}.csv").resolve()
        write_subset(table, count, subset)
        for experiment in experiments:
            for number in steps:
                point = Point(experiment.stem, count, number)
                options = [
                    f"--train_loader={{manifest: {subset}}}",
                    f"--num_classes={count}",
                    f"--steps={number}",
                ]
                variants[point] = Variant(point.name, experiment, options)
    return variants


def average(run: Run) -> float:
    """The most important metric of a run, averaged over its lists."""
    metric = headline_metric(run.lists)
    return float(np.mean([metric.of(results) for results in run.lists.values()]))


def markdown(values: Mapping[Point, Sequence[float]], title: str) -> str:
    """A table with a row per experiment and steps, and a column per number of speakers."""
    columns = sorted({point.speakers for point in values})
    lines = [
        row(["experiment", "steps", *(f"{count} speakers" for count in columns)]),
        row(["---"] * (2 + len(columns))),
    ]
    for experiment, steps in dict.fromkeys((p.experiment, p.steps) for p in values):
        points = [Point(experiment, count, steps) for count in columns]
        cells = [estimate(values[point]).text(decimals=2) for point in points]
        lines.append(row([experiment, str(steps), *cells]))
    return "\n".join([*lines, "", f"{title}, with 95 % intervals over seeds if several.", ""])


def write_plot(path: Path, values: Mapping[Point, Sequence[float]], title: str) -> None:
    """Draw a line per experiment and number of steps: colors are experiments, dashes steps."""
    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.add_subplot(xlabel="training speakers", ylabel=title, xscale="log")
    experiments = list(dict.fromkeys(point.experiment for point in values))
    budgets = sorted({point.steps for point in values}, reverse=True)
    for color, experiment in zip(("#0072b2", "#d55e00", "#009e73"), experiments, strict=False):
        for dash, steps in zip(("-", "--", ":"), budgets, strict=False):
            points = sorted(p for p in values if (p.experiment, p.steps) == (experiment, steps))
            counts, means = [p.speakers for p in points], [np.mean(values[p]) for p in points]
            label = f"{experiment}, {steps} steps"
            axes.plot(counts, means, f"o{dash}", color=color, label=label, markersize=4)
    counts = sorted({point.speakers for point in values})
    axes.set_xticks(counts, map(str, counts))
    axes.minorticks_off()
    axes.grid(color="0.92")
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False
    )
    with atomic_write(path) as partial:
        figure.savefig(partial, format="png")


def run(
    experiments: Sequence[Path],
    speakers: Sequence[int],
    steps: Sequence[int],
    seeds: Sequence[int],
    folder: Path,
    overrides: Overrides,
    at_once: int = 1,
) -> str:
    """Train all, and write the table and the plot after each seed; the table."""
    if len(experiments) > 3 or len(steps) > 3:
        raise ValueError("a plot has room for three experiments and three numbers of steps")
    variants = make_variants(experiments, speakers, steps, folder, overrides)
    point_of = {point.name: point for point in variants}
    values: dict[Point, list[float]] = {point: [] for point in variants}
    text = ""
    for runs in run_all(list(variants.values()), seeds, folder, overrides, at_once):
        for one in runs:
            values[point_of[one.variant]].append(average(one))
        title = f"{headline_metric(runs[0].lists).title} (average over lists)"
        text = markdown(values, title)
        write_text(folder / "table.md", text)
        write_plot(folder / "plot.png", values, title)
    return text


def main() -> int:
    """Train and draw; returns the exit code."""
    ours, overrides = split_overrides(sys.argv[1:])
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+", type=Path, metavar="BASE.yaml")
    for name, what in (("speakers", "training speakers"), ("steps", "training steps")):
        parser.add_argument(f"--{name}", nargs="+", type=int, required=True, help=what)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="(default 1)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="trainings at a time")
    chosen = vars(parser.parse_args(ours))
    folder = chosen.pop("output")
    return exit_code(
        "scaling.py", lambda: print(run(folder=folder, overrides=overrides, **chosen)), resumes=True
    )


if __name__ == "__main__":
    sys.exit(main())
