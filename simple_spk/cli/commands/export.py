"""Export a trained model as a folder: for simple_spk, as ONNX, for sherpa-onnx or SpeechBrain.

SOURCE is a training run (its model/ or, if training has not ended, its newest checkpoint), a
checkpoint (RUN/checkpoints/CKPT...), a model folder, or owner/name on the Hugging Face Hub. With
--from wespeaker it is avg_model.pt of a ResNet-18 or ResNet-34 of WeSpeaker, its folder, or its
ONNX file; with --from speechbrain the folder of an ECAPA-TDNN (hyperparams.yaml and
embedding_model.ckpt), of which nothing is executed; with --from 3dspeaker the weights of a CAM++.

--push owner/name also puts the folder on the Hugging Face Hub, in a repository that is private
unless --public, or that exists. TARGET may then be left out.
"""

import tempfile
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from simple_spk import SAMPLE_RATE
from simple_spk.cli.messages import say
from simple_spk.cli.options import add_value
from simple_spk.evaluation.calibration import Calibration
from simple_spk.io.atomic_file import atomic_folder, write_text
from simple_spk.io.input_file import read_file

if TYPE_CHECKING:
    from simple_spk.inference.model import Model

LARGEST_CARD_BYTES = 10**7
ORIGINS = ("wespeaker", "speechbrain", "3dspeaker")


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of export."""
    add_value(parser, "source SOURCE", "training run, checkpoint or model", str, nargs="?")
    add_value(parser, "target TARGET", "folder to create", nargs="?")
    parser.add_argument(
        "--format",
        choices=("folder", "onnx", "sherpa", "speechbrain"),
        default="folder",
        help="folder: for simple-spk and Extractor (default); onnx: waveforms to embeddings in any "
        "runtime; sherpa: for sherpa-onnx; "
        "speechbrain: for EncoderClassifier and SpeakerRecognition.from_hparams",
    )
    what = "SOURCE is a model of this toolkit"
    parser.add_argument("--from", dest="origin", choices=ORIGINS, help=what)
    what = "with --from wespeaker: sample rate of the training data (default %(default)s)"
    add_value(parser, "--sample-rate HERTZ", what, int, default=SAMPLE_RATE)
    add_value(parser, "--calibration JSON", "add this calibration, from simple-spk calibrate")
    add_value(parser, "--training-data TEXT", "description of the training data", str)
    what = "text file for README.md (default: that of SOURCE, or a description of the model)"
    add_value(parser, "--card MD", what)
    what = "store weights as 16-bit floats: half the size"
    parser.add_argument("--half", action="store_true", help=what)
    what = "also push the folder to this repository on the Hugging Face Hub"
    add_value(parser, "--push OWNER/NAME", what, str)
    what = "with --push: make a new repository public"
    parser.add_argument("--public", action="store_true", help=what)
    what = "only compare the embeddings of a runtime with those stored in an ONNX or sherpa export"
    add_value(parser, "--check FOLDER", what)


def run(options: Namespace) -> int:
    """Export, or check an export."""
    if options.check is not None:
        if options.source is not None or options.push is not None:
            raise ValueError("--check exports nothing: leave SOURCE and --push out")
        return _check(options.check)
    if options.source is None or (options.target is None and options.push is None):
        raise ValueError("name source and target: simple-spk export SOURCE TARGET")
    if options.public and options.push is None:
        raise ValueError("--public is for --push owner/name")
    if options.half and options.format != "folder":
        raise ValueError(f"--half is for --format folder; {options.format} has 32-bit floats")
    if options.sample_rate != SAMPLE_RATE and options.origin != "wespeaker":
        raise ValueError("--sample-rate is for --from wespeaker: other models have their own")
    if options.push is None:
        return _export(options, options.target)
    from simple_spk.export.hub import check_push, push_folder

    check_push(options.push)
    with tempfile.TemporaryDirectory() as folder:
        target = options.target or Path(folder) / "model"
        code = _export(options, target)
        if code == 0:
            say(f"pushed to {push_folder(target, options.push, options.public)}")
    return code


def _export(options: Namespace, target: Path) -> int:
    """Write the target; 1 if a runtime gives other embeddings with it."""
    from simple_spk.export.onnx import export_onnx
    from simple_spk.export.sherpa import export_sherpa
    from simple_spk.export.speechbrain import export_speechbrain
    from simple_spk.inference.model_folder import CARD, LIMITS, load_model, save_model

    low, high = LIMITS["sample_rate"]
    if not low <= options.sample_rate <= high:
        raise ValueError(f"--sample-rate must be {low} to {high}, not {options.sample_rate}")
    if target.exists():
        raise ValueError(f"{target} exists: name a new folder, or delete it")
    model, card = _read_source(options)
    with atomic_folder(target, "exporting") as partial:
        if options.format == "folder":
            save_model(partial, model, card, options.half)
            load_model(partial)  # raises if the export cannot be loaded
        else:
            writers = {
                "onnx": export_onnx,
                "sherpa": export_sherpa,
                "speechbrain": export_speechbrain,
            }
            writers[options.format](partial, model)
            if card is not None:
                write_text(partial / CARD, card)
    size = sum(path.stat().st_size for path in target.iterdir())
    if options.target is not None:
        say(f"wrote {target} ({size / 1e6:.1f} MB)")
    is_checked = options.format == "onnx" or (
        options.format == "sherpa" and find_spec("sherpa_onnx") is not None
    )
    return _check(target) if is_checked else 0


def _read_source(options: Namespace) -> tuple["Model", str | None]:
    """The model to export, with the additions of the options, and its hand-written card."""
    from simple_spk.export.speechbrain_ecapa import import_speechbrain
    from simple_spk.export.three_d_speaker import import_three_d_speaker
    from simple_spk.export.training_run import find_model, load_trained
    from simple_spk.export.wespeaker import import_wespeaker
    from simple_spk.inference.model_folder import CARD, is_automatic, resolve

    card = None if options.card is None else _read_card(options.card)
    if options.origin == "speechbrain":
        model = import_speechbrain(options.source)
    elif options.origin == "3dspeaker":
        model = import_three_d_speaker(options.source)
    elif options.origin == "wespeaker":
        model, dropped = import_wespeaker(options.source, options.sample_rate)
        if dropped:
            say(f"left out: the classifier of the training speakers, {dropped:,} weights")
    else:
        folder = find_model(resolve(options.source))
        model = load_trained(folder)
        say(f"model: {folder}")
        if card is None and (folder / CARD).is_file():
            written = _read_card(folder / CARD)
            # A generated card is generated again for the model as it is now.
            card = None if is_automatic(written) else written
    if options.calibration is not None:
        model = model._replace(calibration=Calibration.load(options.calibration))
    if options.training_data is not None:
        model = model._replace(training_data=options.training_data)
    return model, card


def _read_card(path: Path) -> str:
    """The text of a model card."""
    try:
        return read_file(path, "model card", LARGEST_CARD_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text of UTF-8 ({error}): write it again") from error


def _check(folder: Path) -> int:
    """Compare the embeddings of a runtime with those of PyTorch; 1 if they differ."""
    from simple_spk.export.onnx import LARGEST_DIFFERENCE, check_onnx
    from simple_spk.export.sherpa import GRAPH, check_sherpa

    difference = check_sherpa(folder) if (folder / GRAPH).is_file() else check_onnx(folder)
    holds = difference <= LARGEST_DIFFERENCE
    verdict = "equal to PyTorch's" if holds else "NOT those of PyTorch"
    measured = f"greatest relative difference {difference:.2g} (at most {LARGEST_DIFFERENCE:g})"
    say(f"{folder}: embeddings are {verdict}: {measured}")
    return 0 if holds else 1
