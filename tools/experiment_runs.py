"""Several experiments trained by train.py, one after the other; what is done is not done again."""

import json
import math
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simple_spk.file_lock import lock_file
from simple_spk.whole_file import write_json

ROOT = Path(__file__).parents[1]
Overrides = Sequence[str]  # --key=value, as train.py takes them


class Variant(NamedTuple):
    """One experiment among several that are compared."""

    name: str
    yaml: Path
    overrides: Overrides = ()


class Run(NamedTuple):
    """The metrics of one seed of a variant: those of each test list, by its name."""

    variant: str
    seed: int
    lists: dict[str, dict]


class Figure(NamedTuple):
    """A number that comparisons show, and where it stands in the metrics of a test list."""

    title: str
    keys: tuple[str, ...]
    decimals: int
    higher_is_better: bool = False

    def of(self, metrics: Mapping[str, Any]) -> float:
        """The figure of a test list; nan if it has none."""
        value: Any = metrics
        for key in self.keys:
            value = value.get(key, {}) if isinstance(value, Mapping) else {}
        return float(value) if isinstance(value, int | float) else math.nan


# All that comparisons know, the more telling first; a table shows those that all its lists have.
FIGURES = (
    Figure("EER %", ("eer",), 2),
    Figure("minDCF(0.01)", ("min_dcf", "0.01"), 3),
    Figure("accuracy %", ("mean_accuracy",), 2, higher_is_better=True),
    Figure("MAP@R %", ("map_at_r",), 2, higher_is_better=True),
    Figure("Precision@1 %", ("precision_at_1",), 2, higher_is_better=True),
    Figure("R-Precision %", ("r_precision",), 2, higher_is_better=True),
)


def common_figures(lists: Mapping[str, Mapping[str, Any]]) -> list[Figure]:
    """The figures that all test lists have."""
    return [
        figure
        for figure in FIGURES
        if lists and not any(math.isnan(figure.of(metrics)) for metrics in lists.values())
    ]


def headline_figure(lists: Mapping[str, Mapping[str, Any]]) -> Figure:
    """The most telling figure that all test lists have."""
    found = common_figures(lists)
    if not found:
        known = ", ".join(figure.title for figure in FIGURES)
        raise ValueError(
            f"the test lists {', '.join(lists) or '(none)'} have no figure in common: comparisons "
            f"need lists with labels, and one of {known}"
        )
    return found[0]


def experiments_parser(description: str | None, seeds: Sequence[int]) -> ArgumentParser:
    """What tools that train several experiments are asked alike, whatever else they ask."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, metavar="BASE.yaml", help="an experiment with SimPLE")
    usual = f"(default {' '.join(map(str, seeds))})"
    parser.add_argument("--seeds", nargs="+", type=int, default=seeds, metavar="N", help=usual)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where all results go"
    )
    return parser


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before --, and those after it."""
    given = list(arguments)
    place = given.index("--") if "--" in given else len(given)
    return given[:place], given[place + 1 :]


def run_all(
    variants: Sequence[Variant], seed: int, folder: Path, overrides: Overrides
) -> list[Run]:
    """Train each variant with a seed into folder/variant/seed, unless that was done before.

    A seed fixes the order of the data and the first weights of the encoder for all variants.
    """
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise ValueError(f"each variant may be named once: {', '.join(names)}")
    runs = []
    for variant in variants:
        started = time.perf_counter()
        lists = run_once(variant, seed, folder / variant.name / str(seed), overrides)
        runs.append(Run(variant.name, seed, lists))
        shown = headline_figure(lists)
        figures = ", ".join(f"{name} {shown.title} {shown.of(m):.2f}" for name, m in lists.items())
        minutes = (time.perf_counter() - started) / 60.0
        print(f"{variant.name}, seed {seed}: {figures} ({minutes:.1f} minutes)", flush=True)
    return runs


def run_once(variant: Variant, seed: int, folder: Path, overrides: Overrides) -> dict[str, dict]:
    """The metrics of one run, which is trained, taken up or only read, as need be."""
    given = [*overrides, *variant.overrides, f"--seed={seed}", f"--output_folder={folder}"]
    given = list({option.partition("=")[0]: option for option in given}.values())  # the last wins
    asked = {"yaml": variant.yaml.read_text(encoding="utf-8"), "overrides": given}
    remembered, metrics = folder / "asked.json", folder / "metrics.json"
    if remembered.is_file() and json.loads(remembered.read_text(encoding="utf-8")) != asked:
        raise ValueError(
            f"{folder} holds a run with other settings: name another output folder, or delete it"
        )
    if not metrics.is_file():
        write_json(remembered, asked)
        _train([str(variant.yaml), *given], folder / "train.log")
    lists = json.loads(metrics.read_text(encoding="utf-8"))["lists"]
    try:
        headline_figure(lists)
    except ValueError as error:
        raise ValueError(f"{metrics}: {error}") from error
    return lists


def _train(arguments: Sequence[str], log: Path) -> None:
    """Run train.py to its end, with all it says going to a file; raise with its last words.

    The file is locked, and the lock passes to train.py with it: one that outlived a killed tool is
    not joined by a second one in its folder.
    """
    with log.open("a", encoding="utf-8") as file:
        lock_file(file, f"a train.py is still at work in {log.parent}: wait for it, or stop it")
        finished = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *arguments, "--noprogressbar"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            check=False,
        )
    if finished.returncode != 0:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        raise ChildProcessError(
            f"train.py {' '.join(arguments)} failed: {' / '.join(last)} (see {log})"
        )
