"""All four folds: python recipes/CUB200/cross_validate.py EXPERIMENT.yaml -o FOLDER [-- OPTIONS]

Trains an experiment such as recipes/CUB200/hparams/simple_bninception.yaml four times, each with a
quarter of the training classes held out for validation, and tests the four models: separately (the
mean of their metrics) and as an ensemble (concatenated). --loss replaces the loss by one of the
folder losses/ next to the experiment. Options after -- are passed to train.py:

    python recipes/CUB200/cross_validate.py recipes/CUB200/hparams/simple_bninception.yaml \\
        --loss triplet -o results/cub200/triplet -- --data_folder=DATA --imagenet_weights=FILE

A stopped run resumes with the same command. Results are in FOLDER: metrics.json and the four runs.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from simple_spk.cli.errors import exit_code
from simple_spk.io.atomic_file import write_json
from simple_spk.vision.retrieval_evaluation import concatenated_metrics, read_scorable
from tools.compare_losses import loss_file
from tools.exchange_loss import write_experiment
from tools.experiment_runs import Overrides, Variant, run_once, split_overrides

FOLDS = 4
LIST = "test"  # the test list of the experiment
SHOWN = {"precision_at_1": "Precision@1", "r_precision": "R-Precision", "map_at_r": "MAP@R"}


def cross_validate(
    experiment: Path, folder: Path, seed: int, overrides: Overrides, loss: str | None = None
) -> dict[str, Any]:
    """Train and test all folds; the metrics of each, their mean, and those of the ensemble."""
    if loss is not None:
        changed = folder / "experiments" / f"{loss}.yaml"
        write_experiment(experiment, loss_file(loss, experiment), changed)
        experiment = changed
    runs = []
    for fold in range(FOLDS):
        name = f"fold{fold}"
        variant = Variant(name, experiment, [f"--fold={fold}"])
        runs.append(run_once(variant, seed, folder / name / str(seed), overrides)[LIST])
        print(f"{name}: {in_words(runs[-1])}", flush=True)
    models = [
        read_scorable(folder / f"fold{fold}" / str(seed) / f"scores_{LIST}.npz")
        for fold in range(FOLDS)
    ]
    classes = [name.partition("/")[0] for name in models[0].ids]  # as prepare.py names images
    labels = torch.from_numpy(np.unique(classes, return_inverse=True)[1])
    return {
        "folds": runs,
        "separate": {name: float(np.mean([run[name] for run in runs])) for name in SHOWN},
        "concatenated": concatenated_metrics(models, labels),
    }


def in_words(metrics: dict[str, Any]) -> str:
    """The metrics of the paper's table."""
    return ", ".join(f"{title} {metrics[name]:.2f}" for name, title in SHOWN.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, test, and return the exit code."""
    ours, overrides = split_overrides(sys.argv[1:] if arguments is None else arguments)
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "experiment", type=Path, metavar="EXPERIMENT.yaml", help="what each fold is trained with"
    )
    parser.add_argument("--loss", metavar="LOSS", help="another loss, by its name or file")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default 1)")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="runs and metrics.json"
    )
    options = parser.parse_args(ours)

    def run() -> None:
        found = cross_validate(
            options.experiment, options.output, options.seed, overrides, options.loss
        )
        write_json(options.output / "metrics.json", found)
        for kind in ("separate", "concatenated"):
            print(f"{kind}: {in_words(found[kind])}")

    return exit_code("cross_validate.py", run, resumes=True)


if __name__ == "__main__":
    sys.exit(main())
