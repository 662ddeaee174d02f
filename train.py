"""Train any recipe: python train.py hparams/simple_resnet34.yaml [--key=value ...]

The YAML file builds the objects; this file runs them. A run that was stopped at any moment goes on
when it is started again with the same command. With several processes:

    torchrun --nproc_per_node=2 train.py hparams/mini.yaml [--device=cpu] [--key=value ...]

A run is resumed only with the settings that it began with. --may_change=KEY allows another value of
a key, for example --may_change=learning_rate --learning_rate=0.01.

A training whose embeddings collapse is stopped after collapse_check_steps, with what helps;
--keep_going only warns.

A YAML file and the options that override it are a program: what they name is imported and called.
Run only those that you trust (SECURITY.md).
"""

import signal

if __name__ == "__main__":  # until main runs, Ctrl-C ends the program without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import contextlib
import dataclasses
import logging
import os
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if missing := [name for name in ("speechbrain", "hyperpyyaml") if find_spec(name) is None]:
    sys.exit(f"error: training needs {' and '.join(missing)}: pip install -e '.[train]'")

# Progress in a log file: once a minute. tqdm reads these when it is imported.
if sys.stderr is not None and not sys.stderr.isatty():
    os.environ.setdefault("TQDM_MININTERVAL", "60")
    os.environ.setdefault("TQDM_MAXINTERVAL", "60")

import speechbrain as sb
import torch
from hyperpyyaml import load_hyperpyyaml, resolve_references
from speechbrain.utils.distributed import ddp_init_group, if_main_process, run_on_main
from speechbrain.utils.run_opts import RunOptions

from simple_spk.cli.errors import exit_code
from simple_spk.data.dataset import explain_worker_failures
from simple_spk.distributed import leave_group, own_device, require_usable_device
from simple_spk.doctor.training import memory_advice
from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import save_model
from simple_spk.io.atomic_file import lock_folder, write_json, write_text
from simple_spk.training.brain import SimPLEBrain
from simple_spk.training.data_check import check_recordings
from simple_spk.training.log import describe_result, headline
from simple_spk.training.resume_check import SETTINGS, require_same_settings
from simple_spk.training.settings_check import check_settings, explain_yaml_error, split_options

logger = logging.getLogger(__name__)

MAY_CHANGE, KEEP_GOING = "--may_change=", "--keep_going"
REQUIRED_KEYS = (
    "output_folder",
    "prepare",
    "train_loader",
    "validation",
    "test_lists",
    "modules",
    "optimizer",
    "parameter_groups",
    "schedule",
    "epoch_counter",
    "checkpointer",
    "seed",
    "tensorboard",
    "log_interval",
    "collapse_check_steps",
)
# See SimPLEBrain.
OPTIONAL_KEYS = (
    "channels_last",
    "crops_per_chunk",
    "decay_matrices_only",
    "epochs_to_average",
    "best_epoch",
)


def train(arguments: list[str]) -> dict[str, dict]:
    """Run one experiment; return the metrics of its test lists, which metrics.json holds too."""
    ours = [text for text in arguments if text.startswith(MAY_CHANGE)]
    may_change = {key for text in ours for key in text.removeprefix(MAY_CHANGE).split(",")}
    keep_going = KEEP_GOING in arguments
    arguments = [text for text in arguments if text not in (*ours, KEEP_GOING)]
    arguments, overrides = split_options(arguments, RunOptions().keys())
    hparams_file, run_options, unknown = sb.parse_arguments(arguments)
    if unknown:
        raise ValueError(f"unknown option: {unknown}")
    if run_options.device == "cpu" or not torch.cuda.is_available():
        run_options = dataclasses.replace(run_options, distributed_backend="gloo")
    if not Path(hparams_file).is_file():
        raise FileNotFoundError(f"no such YAML file: {hparams_file} (see the folder hparams/)")
    check_settings(
        Path(hparams_file), overrides, (*REQUIRED_KEYS, *OPTIONAL_KEYS), run_options.keys()
    )
    ddp_init_group(run_options)
    if run_options.device is not None:
        run_options = dataclasses.replace(run_options, device=own_device(run_options.device))
        require_usable_device(run_options.device)
    with explain_yaml_error(hparams_file), open(hparams_file, encoding="utf-8") as file:
        hparams = load_hyperpyyaml(file, overrides)
    missing = [key for key in REQUIRED_KEYS if key not in hparams]
    if missing:
        raise ValueError(f"{hparams_file} lacks the keys {', '.join(missing)}")
    for name, module in hparams["modules"].items():
        if not isinstance(module, torch.nn.Module):
            raise ValueError(
                f"{hparams_file}: modules: {name} is {module!r}, not a module: write "
                f"'{name}: !new:' before the name of its class"
            )
    output_folder = Path(hparams["output_folder"])
    if run_options.debug:  # a few batches must not overwrite a real run's results
        output_folder = output_folder / "debug"
    with contextlib.ExitStack() as locks:
        if if_main_process():
            locks.enter_context(lock_folder(output_folder, "training"))
        return train_in_folder(
            output_folder, hparams_file, hparams, run_options, overrides, may_change, keep_going
        )


def train_in_folder(
    output_folder: Path,
    hparams_file: str,
    hparams: dict[str, Any],
    run_options: Any,
    overrides: Any,
    may_change: set[str],
    keep_going: bool,
) -> dict[str, dict]:
    """Run the experiment of a loaded YAML file in its folder, which nobody else writes to."""
    if hparams["prepare"] is not None:
        run_on_main(hparams["prepare"])
    # Errors in data and settings are raised here, before training begins.
    with explain_yaml_error(hparams_file):
        train_loader = hparams["train_loader"]()
        if hparams["validation"] is not None:
            hparams["validation"] = hparams["validation"]()
        evaluations = {name: make() for name, make in (hparams["test_lists"] or {}).items()}
        hparams["optimizer"]([torch.nn.Parameter(torch.zeros(1))])
    if if_main_process():
        check_recordings(train_loader.dataset, [hparams["validation"], *evaluations.values()])
        with open(hparams_file, encoding="utf-8") as file:
            settings = resolve_references(file, overrides).getvalue()
        changes = require_same_settings(output_folder, settings, may_change)
        if changes or not (output_folder / SETTINGS).is_file():  # never cut short by a kill
            write_text(output_folder / SETTINGS, f"# {Path(hparams_file).resolve()}\n{settings}")
    try:
        sb.create_experiment_directory(output_folder)
    except ValueError as error:  # logging does not tell why it cannot open log.txt
        raise error.__cause__ or error from None
    if if_main_process() and changes:
        logger.warning("changed settings: %s", "; ".join(changes))

    brain = SimPLEBrain(
        modules=hparams["modules"],
        opt_class=hparams["optimizer"],
        hparams=hparams,
        run_opts=run_options,
        checkpointer=hparams["checkpointer"],
    )
    brain.keep_going = keep_going
    if not run_options.test_only:
        try:
            brain.fit(hparams["epoch_counter"], train_loader)
        except torch.OutOfMemoryError as error:
            reason = str(error).partition(". ")[0]
            raise ValueError(f"{reason}: {memory_advice(output_folder / SETTINGS)}") from error
    elif hparams["checkpointer"].recover_if_possible() is None:
        raise FileNotFoundError(f"--test_only: no checkpoint in {output_folder} to test")
    brain.choose_epochs()

    results = {
        name: brain.run_evaluation(evaluation, scores_file=output_folder / f"scores_{name}.txt")
        for name, evaluation in evaluations.items()
    }
    if if_main_process():
        write_model(output_folder / "model", brain.plain_modules)
        # Written last: a run that has this file is complete.
        write_json(output_folder / "metrics.json", headline(results) | {"lists": results})
        for name, result in results.items():
            print(f"{name}: {describe_result(result)}")
    return results


def write_model(folder: Path, modules: torch.nn.ModuleDict) -> None:
    """Write the model folder for simple-spk and Extractor."""
    front_end = getattr(modules, "front_end", None)
    try:
        save_model(folder, trained_model(front_end, modules["encoder"], modules["loss"]))
    except ValueError as error:  # an encoder that a model folder cannot describe
        logger.warning("no model folder was written (the checkpoint has the weights): %s", error)


def run() -> None:
    """Train with the options of the command line; all processes end together."""
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(f"{__doc__}\nOptions of SpeechBrain:\n")
    with explain_worker_failures():
        train(sys.argv[1:])
    leave_group()


def _report_thread(failed: threading.ExceptHookArgs) -> None:
    """Print the traceback of a thread, unless it is the system that refused something."""
    if not issubclass(failed.exc_type, OSError):
        threading.__excepthook__(failed)


def main() -> int:
    """Train, and return the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # No tracebacks if log.txt or TensorBoard's file cannot be written; of the latter, whose thread
    # fails, the next call raises the error.
    logging.raiseExceptions = False
    threading.excepthook = _report_thread
    code = exit_code("train.py", run, resumes=True)
    if code == 1:
        print("(SIMPLE_SPK_TRACEBACK=1 shows where it happened)", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
