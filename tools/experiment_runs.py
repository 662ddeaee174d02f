"""Runs several experiments with train.py; finished runs are not repeated."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from simple_spk.distributed import usable_cores
from simple_spk.io.atomic_file import lock_file, write_json

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


class Metric(NamedTuple):
    """A metric that comparisons show, and its keys in the results of a test list."""

    title: str
    keys: tuple[str, ...]
    decimals: int
    higher_is_better: bool = False

    def of(self, metrics: Mapping[str, Any]) -> float:
        """Its value in the results of a test list; NaN if there is none."""
        value: Any = metrics
        for key in self.keys:
            value = value.get(key, {}) if isinstance(value, Mapping) else {}
        return float(value) if isinstance(value, int | float) else math.nan


# The most important first; a table shows those that all its test lists have.
METRICS = (
    Metric("EER %", ("eer",), 2),
    Metric("minDCF(0.01)", ("min_dcf", "0.01"), 3),
    Metric("accuracy %", ("mean_accuracy",), 2, higher_is_better=True),
    Metric("MAP@R %", ("map_at_r",), 2, higher_is_better=True),
    Metric("Precision@1 %", ("precision_at_1",), 2, higher_is_better=True),
    Metric("R-Precision %", ("r_precision",), 2, higher_is_better=True),
)


def common_metrics(lists: Mapping[str, Mapping[str, Any]]) -> list[Metric]:
    """The metrics that all test lists have."""
    return [
        metric
        for metric in METRICS
        if lists and not any(math.isnan(metric.of(results)) for results in lists.values())
    ]


def headline_metric(lists: Mapping[str, Mapping[str, Any]]) -> Metric:
    """The most important metric that all test lists have."""
    found = common_metrics(lists)
    if not found:
        known = ", ".join(metric.title for metric in METRICS)
        raise ValueError(
            f"the test lists {', '.join(lists) or '(none)'} have no metric in common: comparisons "
            f"need lists with labels, and one of {known}"
        )
    return found[0]


def experiments_parser(description: str | None, seeds: Sequence[int]) -> ArgumentParser:
    """A parser with the options of all tools that train several experiments."""
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path, metavar="BASE.yaml", help="an experiment with SimPLE")
    usual = f"(default {' '.join(map(str, seeds))})"
    parser.add_argument("--seeds", nargs="+", type=int, default=seeds, metavar="N", help=usual)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="where all results go"
    )
    shared = "trainings at a time, which share the CPU cores; prepare the data before (default 1)"
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help=shared)
    return parser


def split_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before --, and those after it, ``--key value`` as ``--key=value``."""
    given = list(arguments)
    place = given.index("--") if "--" in given else len(given)
    overrides: list[str] = []
    for word in given[place + 1 :]:
        if not word.startswith("--") and overrides and "=" not in overrides[-1]:
            overrides[-1] += f"={word}"
        else:
            overrides.append(word)
    return given[:place], overrides


def run_all(
    variants: Sequence[Variant],
    seeds: Sequence[int],
    folder: Path,
    overrides: Overrides,
    at_once: int = 1,
) -> Iterator[list[Run]]:
    """Train each variant with each seed into folder/variant/seed, unless that was done before.

    Yields the runs of a seed as soon as all variants have it. A seed fixes the order of the data
    and the first weights of the encoder for all variants.
    """
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise ValueError(f"each variant may be named once: {', '.join(names)}")
    if at_once < 1:
        raise ValueError(f"--at-once must be 1 or more, not {at_once}")
    for variant in variants:
        _refuse_unknown(variant, [*overrides, *variant.overrides])
    threads = None if at_once == 1 else max(1, usable_cores() // at_once)

    stopped = Event()

    def run(variant: Variant, seed: int) -> Run:
        if stopped.is_set():
            raise CancelledError
        started = time.perf_counter()
        try:
            where = folder / variant.name / str(seed)
            lists = run_once(variant, seed, where, overrides, threads)
        except BaseException:
            stopped.set()
            raise
        shown = headline_metric(lists)
        values = ", ".join(f"{name} {shown.title} {shown.of(m):.2f}" for name, m in lists.items())
        minutes = (time.perf_counter() - started) / 60.0
        print(f"{variant.name}, seed {seed}: {values} ({minutes:.1f} minutes)", flush=True)
        return Run(variant.name, seed, lists)

    executor = ThreadPoolExecutor(at_once)
    try:
        of_seeds = [
            [executor.submit(run, variant, seed) for variant in variants]
            for seed in dict.fromkeys(seeds)
        ]
        for futures in of_seeds:
            yield [future.result() for future in futures]
    finally:  # after an error, those that are being trained end, and no other begins
        stopped.set()
        executor.shutdown(cancel_futures=True)


def run_once(
    variant: Variant,
    seed: int,
    folder: Path,
    overrides: Overrides,
    threads: int | None = None,
) -> dict[str, dict]:
    """The metrics of one run, which is trained, resumed or only read, as needed.

    threads is the number of CPU threads of the training; None: torch's default.
    """
    given = [*overrides, *variant.overrides, f"--seed={seed}", f"--output_folder={folder}"]
    given = list({option.partition("=")[0]: option for option in given}.values())  # the last wins
    asked = {"yaml": variant.yaml.read_text(encoding="utf-8"), "overrides": given}
    remembered, metrics = folder / "asked.json", folder / "metrics.json"
    is_trained = metrics.is_file() or any(folder.glob("checkpoints/*"))  # in part at least
    before = remembered.read_text(encoding="utf-8") if remembered.is_file() else None
    if is_trained and before is not None and json.loads(before) != asked:
        raise ValueError(f"{folder} holds a run with other settings: name another output folder")
    if not metrics.is_file():
        write_json(remembered, asked)
        _train([str(variant.yaml), *given], folder / "train.log", threads)
    lists = json.loads(metrics.read_text(encoding="utf-8"))["lists"]
    try:
        headline_metric(lists)
    except ValueError as error:
        raise ValueError(f"{metrics}: {error}") from error
    return lists


def _refuse_unknown(variant: Variant, overrides: Overrides) -> None:
    """Raise if an option is neither a key of the experiment nor one of SpeechBrain's.

    Otherwise the first experiment without that key would fail after others have been trained.
    """
    from speechbrain.utils.run_opts import RunOptions  # slow to import

    keys = {line.partition(":")[0] for line in variant.yaml.read_text("utf-8").splitlines()}
    known = keys | {field.name for field in dataclasses.fields(RunOptions)}
    for option in overrides:
        key = option.removeprefix("--").partition("=")[0]
        if key not in known:
            raise ValueError(
                f"--{key} is not a key of {variant.yaml}: correct it, or leave out the experiments "
                "without it"
            )


def _train(arguments: Sequence[str], log: Path, threads: int | None) -> None:
    """Run train.py with its output in a log file; if it fails, raise with its last lines.

    The log is locked, and train.py inherits the lock: if it outlives a killed tool, no second one
    starts in its folder.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with log.open("a", encoding="utf-8") as file:
        lock_file(file, f"a train.py is still at work in {log.parent}: wait for it, or stop it")
        finished = subprocess.run(
            [sys.executable, str(ROOT / "train.py"), *arguments, "--noprogressbar"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        )
    if finished.returncode != 0:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:]
        raise ChildProcessError(
            f"train.py {' '.join(arguments)} failed: {' / '.join(last)} (see {log})"
        )
