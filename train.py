"""Train any recipe: python train.py hparams/simple_resnet34.yaml [--key=value ...]

The YAML file builds the objects; this file puts them to work. Stopped at any moment and started
again with the same command, a run goes on where it was. With several processes:

    torchrun --nproc_per_node=2 train.py hparams/mini.yaml [--device=cpu] [--key=value ...]
"""

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path

import speechbrain as sb
import torch
from hyperpyyaml import load_hyperpyyaml, resolve_references
from speechbrain.utils.distributed import ddp_init_group, if_main_process, run_on_main

from simple_spk.brain import SimPLEBrain, plain_numbers, unwrap
from simple_spk.distributed import leave_group
from simple_spk.model import trained_model
from simple_spk.model_folder import save_model
from simple_spk.whole_file import whole_file
from simple_spk.yaml_errors import explain_yaml_error

logger = logging.getLogger(__name__)

REQUIRED_KEYS = (
    *("output_folder", "prepare", "train_loader", "validation", "test_lists", "modules"),
    *("optimizer", "parameter_groups", "schedule", "epoch_counter", "checkpointer", "seed"),
    *("tensorboard", "log_interval", "collapse_check_steps"),
)
# What may differ when a run is taken up again; limit is that of the epoch counter.
FREE_TO_CHANGE = (
    *("number_of_epochs", "limit", "workers", "log_interval", "collapse_check_steps", "prepare"),
    *("ckpt_interval_steps", "ckpt_interval_minutes"),
)
# Mistakes that a message explains better than a traceback.
USER_ERRORS = (ValueError, OSError, FloatingPointError)


def train(arguments: list[str]) -> dict[str, dict]:
    """Run one experiment; return the metrics of its test lists, which metrics.json holds too."""
    hparams_file, run_options, overrides = sb.parse_arguments(arguments)
    if run_options.device == "cpu" or not torch.cuda.is_available():
        run_options = dataclasses.replace(run_options, distributed_backend="gloo")
    if not Path(hparams_file).is_file():
        raise FileNotFoundError(f"no such YAML file: {hparams_file} (see the folder hparams/)")
    ddp_init_group(run_options)
    with explain_yaml_error(hparams_file), open(hparams_file, encoding="utf-8") as file:
        hparams = load_hyperpyyaml(file, overrides)
    missing = [key for key in REQUIRED_KEYS if key not in hparams]
    if missing:
        raise ValueError(f"{hparams_file} lacks the keys {', '.join(missing)}")
    output_folder = Path(hparams["output_folder"])
    if run_options.debug:  # a few batches must not overwrite a real run's results
        output_folder = output_folder / "debug"
    if hparams["prepare"] is not None:
        run_on_main(hparams["prepare"])
    # Mistakes in the data show here, before training begins.
    train_loader = hparams["train_loader"]()
    if hparams["validation"] is not None:
        hparams["validation"] = hparams["validation"]()
    evaluations = {name: make() for name, make in hparams["test_lists"].items()}
    if if_main_process():
        require_same_settings(output_folder, hparams_file, overrides)
    sb.create_experiment_directory(output_folder, hparams_file, overrides)

    brain = SimPLEBrain(
        modules=hparams["modules"],
        opt_class=hparams["optimizer"],
        hparams=hparams,
        run_opts=run_options,
        checkpointer=hparams["checkpointer"],
    )
    if not run_options.test_only:
        brain.fit(hparams["epoch_counter"], train_loader)
    elif hparams["checkpointer"].recover_if_possible() is None:
        raise FileNotFoundError(f"--test_only: no checkpoint in {output_folder} to test")
    brain.choose_epochs()

    results = {
        name: brain.run_evaluation(evaluation, scores_file=output_folder / f"scores_{name}.txt")
        for name, evaluation in evaluations.items()
    }
    if if_main_process():
        write_model(output_folder / "model", brain)
        # Last of all: where it exists, a run is complete.
        write_json(output_folder / "metrics.json", headline(results) | {"lists": results})
        for name, result in results.items():
            print(f"{name}: {describe(result)}")
    return results


def require_same_settings(output_folder: Path, hparams_file: str, overrides: str) -> None:
    """Raise if a folder holds checkpoints of a run with settings that would train another model."""
    earlier = output_folder / "hyperparams.yaml"
    if not earlier.is_file() or not any((output_folder / "checkpoints").glob("CKPT*")):
        return
    with open(hparams_file, encoding="utf-8") as file:
        now = settings_lines(resolve_references(file, overrides).getvalue())
    changed = [line for line in now if line not in settings_lines(earlier.read_text("utf-8"))]
    if changed:
        raise ValueError(
            f"{output_folder} holds a run with other settings than {'; '.join(changed[:3])}: give "
            f"this one another --output_folder, or delete that folder"
        )


def settings_lines(yaml_text: str) -> list[str]:
    """The lines of a resolved YAML file that decide what is learned, without comments."""
    lines = [line.partition(" #")[0].strip() for line in yaml_text.splitlines()]
    return [
        line
        for line in lines
        if line and not line.startswith(("#", *(f"{key}:" for key in FREE_TO_CHANGE)))
    ]


def write_model(folder: Path, brain: SimPLEBrain) -> None:
    """Write the model folder that simple-spk and Extractor take."""
    modules = {name: unwrap(module) for name, module in brain.modules.items()}
    try:
        model = trained_model(modules.get("front_end"), modules["encoder"], modules["loss"])
        save_model(folder, model)
    except ValueError as error:  # an encoder of somebody's own: training was not in vain
        logger.warning("no model folder was written (the checkpoint has the weights): %s", error)


def headline(results: dict[str, dict]) -> dict:
    """The figures of the first test list that people quote: min_dcf is that of prior 0.01."""
    first: dict = next(iter(results.values()), {})
    return first | ({"min_dcf": first["min_dcf"]["0.01"]} if "min_dcf" in first else {})


def describe(result: dict) -> str:
    """The metrics of one test in words."""
    if "eer" not in result:
        numbers = plain_numbers(result).items()
        return ", ".join(f"{name.replace('_', ' ')} {value:,.6g}" for name, value in numbers)
    accuracy = f"accuracy {result['mean_accuracy']:.2f} %, " if "mean_accuracy" in result else ""
    return accuracy + (
        f"EER {result['eer']:.2f} %, minDCF(0.01) {result['min_dcf']['0.01']:.4f} "
        f"({result['targets']} target and {result['trials'] - result['targets']} non-target trials)"
    )


def write_json(path: Path, content: dict) -> None:
    """Write a JSON file that, if it exists, is whole."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Train; on a user's mistake say what is wrong and return a non-zero exit code."""
    try:
        train(sys.argv[1:])
    except USER_ERRORS as error:
        if os.environ.get("SIMPLE_SPK_TRACEBACK"):
            raise
        message = str(error).strip()
        if "Original Traceback" in message:  # a data worker's error comes with its whole history
            message = message.splitlines()[-1]
        print(f"train.py: error: {message}", file=sys.stderr)
        print("(SIMPLE_SPK_TRACEBACK=1 shows where it happened)", file=sys.stderr)
        return 1
    leave_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
