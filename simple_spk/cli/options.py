"""Options that several commands share."""

from argparse import ArgumentParser, Namespace, _ActionsContainer
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simple_spk import LONGEST_SECONDS
from simple_spk.cli.outputs import STANDARD_OUTPUT
from simple_spk.evaluation.bootstrap import REPLICATES
from simple_spk.evaluation.metrics import PRIORS

if TYPE_CHECKING:
    import torch

    from simple_spk.inference.extractor import Extractor


def add_value(
    parser: _ActionsContainer, usage: str, what: str, kind: Callable[[str], Any] = Path, **more: Any
) -> None:
    """Add an argument with a value: its names and metavar (``-o --output FILE``), and its help."""
    *names, metavar = usage.split()
    parser.add_argument(*names, type=kind, metavar=metavar, help=what, **more)


def add_model(
    parser: ArgumentParser, with_workers: bool = False, longest_seconds: float = LONGEST_SECONDS
) -> None:
    """The model, its device and precision, and perhaps the threads that read audio."""
    what = "folder (RUN/model) or owner/name on the Hugging Face Hub (default: the built-in model)"
    add_value(parser, "--model MODEL", what, str)
    add_value(parser, "--device DEVICE", "cpu (default), cuda, cuda:1, ...", str, default="cpu")
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="of the encoder: bf16 is faster on hardware that supports it, and changes embeddings "
        "by some thousandths of their length (default fp32)",
    )
    what = f"refuse longer recordings (default {longest_seconds:.0f})"
    add_value(parser, "--longest-seconds N", what, float, default=longest_seconds)
    if with_workers:
        what = "threads that read audio (default: the number of cores, at most 8)"
        add_value(parser, "--workers N", what, int, default=0)


def load_extractor(options: Namespace, device: "str | torch.device") -> "Extractor":
    """The extractor of the options of ``add_model``."""
    from simple_spk.inference.extractor import Extractor  # with torch, which not all commands need

    return Extractor.load(options.model, device, options.precision, options.longest_seconds)


def add_json(parser: ArgumentParser) -> None:
    """JSON output."""
    what = (
        "all metrics as JSON (an array for several lists), to FILE, or printed if FILE is omitted"
    )
    add_value(parser, "--json FILE", what, nargs="?", const=STANDARD_OUTPUT)


def add_enrollments(parser: ArgumentParser) -> None:
    """Enrolled models of several recordings."""
    group = parser.add_argument_group("several recordings per enrolled model")
    add_value(group, "--enrollments FILE", "lines of 'model recording recording ...'")
    what = "average the embeddings unchanged (default), or normalized to length 1"
    group.add_argument("--template", choices=("mean", "normalized"), default="mean", help=what)


def add_summary(parser: ArgumentParser, when: str = "") -> None:
    """Metrics of scores and their outputs; ``when``: if intervals depend on other options."""
    add_json(parser)
    group = parser.add_argument_group("report")
    add_value(group, "--report HTML", "write a report page")
    add_value(group, "--det FILE", "draw the DET curves: .png, .svg or .pdf")
    what = "table of speakers or recordings (vox1_meta.csv): break report and JSON down by columns"
    add_value(group, "--metadata CSV", what)
    add_metrics(parser, None if when else REPLICATES, f"{when}; 0: no intervals")


def add_metrics(
    parser: ArgumentParser, replicates: int | None = REPLICATES, when: str = ""
) -> None:
    """Costs and intervals; ``when`` completes the help of the default of the replicates."""
    group = parser.add_argument_group("costs and intervals")
    what = f"draws of speakers for 95 %% intervals (default {REPLICATES}{when})"
    add_value(group, "--replicates N", what, int, default=replicates)
    add_value(group, "--seed N", "random seed of the draws (default 0)", int, default=0)
    what = "speakers, by manifest or 'recording speaker' lines (default: by the names or labels)"
    add_value(group, "--speakers FILE", what)
    what = f"target priors of the detection costs (default {' '.join(map(str, PRIORS))})"
    add_value(group, "--priors P", what, float, nargs="+", default=PRIORS)
    add_value(group, "--miss-cost C", "cost of a miss (default 1)", float, default=1.0)
    what = "cost of a false alarm (default 1)"
    add_value(group, "--false-alarm-cost C", what, float, default=1.0)


def add_audio(parser: ArgumentParser) -> None:
    """The recordings of embed and cluster."""
    what = "audio files, folders of them, lists (.txt, .scp) or manifests (.csv)"
    add_value(parser, "audio FILE|FOLDER|LIST", what, nargs="+")


def add_decision(parser: ArgumentParser, prior_of: str) -> None:
    """Decision rule and JSON output; ``prior_of`` is an event for the help."""
    what = (
        "accept at the threshold of this false-accept rate, such as 1e-3 (default: accept at a "
        "probability of 0.5 or more)"
    )
    add_value(parser, "--far RATE", what, float)
    add_value(parser, "--prior P", f"prior probability that {prior_of} (default 0.5)", float)
    parser.add_argument("--json", action="store_true", help="print JSON")
