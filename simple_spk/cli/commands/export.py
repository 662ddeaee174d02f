"""A trained model as a folder to use and to share: ours, one ONNX file, or SpeechBrain's."""

import shutil
import uuid
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk import SAMPLE_RATE
from simple_spk.evaluation.calibration import Calibration
from simple_spk.export.onnx import LARGEST_DIFFERENCE, check_onnx, export_onnx
from simple_spk.export.speechbrain import export_speechbrain
from simple_spk.export.training_run import find_model, load_trained
from simple_spk.export.wespeaker import import_wespeaker
from simple_spk.inference.model import Model
from simple_spk.inference.model_folder import (
    CARD,
    LIMITS,
    is_automatic,
    load_model,
    resolve,
    save_model,
)
from simple_spk.io.atomic_file import write_text


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of export."""
    parser.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="a training run (its model/, or if it has not ended its newest checkpoint), a "
        "checkpoint (RUN/checkpoints/CKPT...), a model folder, or owner/name on the "
        "Hugging Face Hub",
    )
    parser.add_argument("target", type=Path, nargs="?", metavar="TARGET", help="the folder to make")
    parser.add_argument(
        "--format",
        choices=("folder", "onnx", "speechbrain"),
        default="folder",
        help="folder: for simple-spk and Extractor (default); onnx: waveforms to embeddings in any "
        "runtime; speechbrain: for EncoderClassifier and SpeakerRecognition.from_hparams",
    )
    parser.add_argument(
        "--from",
        dest="origin",
        choices=("wespeaker",),
        help="wespeaker: the source is avg_model.pt of its ResNet-18 or ResNet-34, or its folder",
    )
    parser.add_argument(
        "--sample-rate",
        type=int,
        default=SAMPLE_RATE,
        metavar="HERTZ",
        help="with --from wespeaker: of the speech that it was trained on (default %(default)s)",
    )
    parser.add_argument(
        "--calibration", type=Path, metavar="JSON", help="put this in, from simple-spk calibrate"
    )
    parser.add_argument("--training-data", metavar="TEXT", help="what the model was trained on")
    parser.add_argument(
        "--card",
        type=Path,
        metavar="MD",
        help="text file to become README.md (default: the source's own, or what the model tells)",
    )
    parser.add_argument(
        "--half", action="store_true", help="store weights as 16-bit floats: half the size"
    )
    parser.add_argument(
        "--check",
        type=Path,
        metavar="FOLDER",
        help="instead: compare a runtime's embeddings with those stored in an ONNX export",
    )


def run(options: Namespace) -> int:
    """Export, or check an export."""
    if options.check is not None:
        if options.source is not None:
            raise ValueError("--check takes one folder and exports nothing: leave SOURCE out")
        return _check(options.check)
    if options.target is None:
        raise ValueError(
            "name what to export and the folder to make: simple-spk export SOURCE TARGET"
        )
    if options.half and options.format != "folder":
        raise ValueError(f"--half is for --format folder; {options.format} takes 32-bit floats")
    if options.sample_rate != SAMPLE_RATE and options.origin is None:
        raise ValueError("--sample-rate is for --from wespeaker: other models know their own")
    low, high = LIMITS["sample_rate"]
    if not low <= options.sample_rate <= high:
        raise ValueError(f"--sample-rate lies between {low} and {high}, not {options.sample_rate}")
    target: Path = options.target
    if target.exists():
        raise ValueError(f"{target} exists: name a folder that does not, or delete it")
    model, card = _read_source(options)
    # The folder is whole or does not exist; until then it has a name that nobody else has.
    partial = target.with_name(f"{target.name}.{uuid.uuid4().hex}.partial")
    try:
        if options.format == "folder":
            save_model(partial, model, card, options.half)
            load_model(partial)  # what nobody could load is not worth a name
        else:
            write = {"onnx": export_onnx, "speechbrain": export_speechbrain}[options.format]
            write(partial, model)
            if card is not None:
                write_text(partial / CARD, card)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"wrote {target} ({size / 1e6:.1f} MB)")
    return _check(target) if options.format == "onnx" else 0


def _read_source(options: Namespace) -> tuple[Model, str | None]:
    """The model to export, with what the options add, and a card that was written for it."""
    card = None if options.card is None else options.card.read_text(encoding="utf-8")
    if options.origin == "wespeaker":
        model, dropped = import_wespeaker(options.source, options.sample_rate)
        if dropped:
            print(f"left out: the classifier of the training speakers, {dropped:,} numbers")
    else:
        folder = find_model(resolve(options.source))
        model = load_trained(folder)
        print(f"model: {folder}")
        if card is None and (folder / CARD).is_file():
            written = (folder / CARD).read_text(encoding="utf-8")
            # A card that was made from a model is made anew, of the model as it is now.
            card = None if is_automatic(written) else written
    if options.calibration is not None:
        model = model._replace(calibration=Calibration.load(options.calibration))
    if options.training_data is not None:
        model = model._replace(training_data=options.training_data)
    return model, card


def _check(folder: Path) -> int:
    """Say how far a runtime's embeddings lie from PyTorch's; exit code 1 if too far."""
    difference = check_onnx(folder)
    holds = difference <= LARGEST_DIFFERENCE
    verdict = "equal to PyTorch's" if holds else "NOT those of PyTorch"
    print(
        f"{folder}: embeddings are {verdict}: greatest relative difference {difference:.2g} "
        f"(at most {LARGEST_DIFFERENCE:g})"
    )
    return 0 if holds else 1
