"""Options that several commands share, so that they are spelt alike everywhere."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from simple_spk.evaluation.bootstrap import REPLICATES
from simple_spk.evaluation.metrics import PRIORS
from simple_spk.evaluation.score_files import SCORE_FORMATS

if TYPE_CHECKING:
    from simple_spk.models.similarity import Similarity

STANDARD_OUTPUT = Path("-")


def add_model(parser: ArgumentParser) -> None:
    """Which model, and where it computes."""
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="model folder (RUN/model), or owner/name on the Hugging Face Hub (default: the model "
        "that comes with simple_spk)",
    )
    parser.add_argument(
        "--device", default="cpu", metavar="DEVICE", help="cpu (default), cuda, cuda:1, ..."
    )
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16"),
        default="fp32",
        help="of the encoder: bf16 is faster where the hardware knows it, and moves embeddings by "
        "some thousandths of their length (default fp32)",
    )


def model_name(options: Namespace) -> str:
    """What the model of ``add_model`` is called."""
    return "the built-in model" if options.model is None else str(options.model)


def add_workers(parser: ArgumentParser) -> None:
    """How many threads read audio."""
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="threads that read audio ahead (default: as many as there are cores, at most 8)",
    )


def add_json(parser: ArgumentParser) -> None:
    """Where the figures go."""
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=STANDARD_OUTPUT,
        metavar="FILE",
        help="write all figures here (an array if there are several lists), or print them as JSON "
        "if no FILE is given",
    )


def add_trials(parser: ArgumentParser) -> None:
    """Which trials."""
    parser.add_argument(
        "--trials",
        type=Path,
        required=True,
        nargs="+",
        metavar="LIST",
        help="trial lists, may be .gz: 'label enroll test', 'enroll test target|nontarget', or no "
        "labels",
    )


def add_scoring(parser: ArgumentParser) -> None:
    """From embeddings to scores: templates, normalization, calibration, and the files of scores."""
    enrollment = parser.add_argument_group("several recordings per enrolled model")
    enrollment.add_argument(
        "--enrollments", type=Path, metavar="FILE", help="lines of 'model recording recording ...'"
    )
    enrollment.add_argument(
        "--template",
        choices=("mean", "normalized"),
        default="mean",
        help="mean of the embeddings as they are (default), or of normalized ones",
    )
    cohort = parser.add_argument_group("score normalization (AS-norm)")
    cohort.add_argument("--cohort", type=Path, metavar="FILE", help="embeddings to normalize with")
    cohort.add_argument(
        "--cohort-speakers",
        type=Path,
        metavar="FILE",
        help="manifest or 'recording speaker' lines: one mean embedding per speaker is the cohort",
    )
    cohort.add_argument(
        "--top-n",
        type=int,
        default=300,
        metavar="N",
        help="nearest cohort members (default 300; 0: all)",
    )
    calibration = parser.add_mutually_exclusive_group()
    calibration.add_argument(
        "--calibration",
        type=Path,
        metavar="JSON",
        help="from simple-spk calibrate: scores become log likelihood ratios (default: they are "
        "plain similarities, also of a model with a calibration of its own)",
    )
    calibration.add_argument(
        "--own-calibration",
        action="store_true",
        help="the same by the calibration in the model folder, as verify and identify do",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="score file to write; with several lists, a folder of them",
    )
    parser.add_argument(
        "--format",
        choices=SCORE_FORMATS,
        default="wespeaker",
        help="score file: 'enroll test score target|nontarget' (wespeaker, default), '0|1 enroll "
        "test score' (voxceleb), 'score enroll test' (voxsrc)",
    )


def add_figures(parser: ArgumentParser, always_intervals: bool) -> None:
    """What is computed of scores, and how it is shown."""
    add_json(parser)
    group = parser.add_argument_group("figures")
    group.add_argument("--report", type=Path, metavar="HTML", help="write a page to look at")
    group.add_argument(
        "--det", type=Path, metavar="FILE", help="draw the DET curves: .png, .svg or .pdf"
    )
    group.add_argument(
        "--metadata",
        type=Path,
        metavar="CSV",
        help="table about speakers or recordings, such as vox1_meta.csv: break the report and the "
        "JSON down by its columns",
    )
    when = "" if always_intervals else " with --json or --report, else 0"
    replicates = REPLICATES if always_intervals else None
    add_measures(parser, replicates, f"{when}; 0: no intervals")


def add_measures(
    parser: ArgumentParser, replicates: int | None = REPLICATES, when: str = ""
) -> None:
    """What costs are of, and how many draws of speakers intervals rest on, by default or when."""
    group = parser.add_argument_group("costs and intervals")
    group.add_argument(
        "--replicates",
        type=int,
        default=replicates,
        metavar="N",
        help=f"draws of speakers for 95 %% intervals (default {REPLICATES}{when})",
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of those draws (default 0)"
    )
    group.add_argument(
        "--speakers",
        type=Path,
        metavar="FILE",
        help="manifest or 'recording speaker' lines (default: the list tells who is who)",
    )
    group.add_argument(
        "--priors",
        type=float,
        nargs="+",
        default=PRIORS,
        metavar="P",
        help=f"target priors of the detection costs (default {' '.join(map(str, PRIORS))})",
    )
    for error in ("miss", "false-alarm"):
        what = error.replace("-", " ")
        group.add_argument(
            f"--{error}-cost", type=float, default=1.0, metavar="C", help=f"of a {what} (default 1)"
        )


def add_decision(parser: ArgumentParser) -> None:
    """What is accepted, and how it is answered."""
    parser.add_argument(
        "--far",
        type=float,
        metavar="RATE",
        help="accept so rarely that strangers pass at this rate, such as 1e-3 (default: accept "
        "from a probability of 0.5 on)",
    )
    parser.add_argument(
        "--prior",
        type=float,
        metavar="P",
        help="probability, before anything is heard, that the speaker is the same or, to identify, "
        "is one of those enrolled (default 0.5)",
    )
    parser.add_argument("--json", action="store_true", help="answer as JSON")


def add_similarity(parser: ArgumentParser, when: str = "") -> None:
    """Which score; ``when`` says at the beginning of the help when that is asked."""
    parser.add_argument(
        "--similarity",
        choices=("generalized", "cosine"),
        help=f"{when}which score (default generalized, the inner product)",
    )
    parser.add_argument(
        "--angular-bias",
        type=float,
        metavar="COSINE",
        help="b_theta of generalized (default 0.3)",
    )


def named_similarity(options: Namespace) -> "Similarity":
    """The similarity that the options of ``add_similarity`` name."""
    from simple_spk.models.similarity import (  # needs torch
        CosineSimilarity,
        GeneralizedInnerProduct,
    )

    angular_bias = options.angular_bias
    if options.similarity == "cosine":
        if angular_bias is not None:
            raise ValueError("--angular-bias is of the generalized similarity: leave it out")
        return CosineSimilarity()
    return GeneralizedInnerProduct(
        **({} if angular_bias is None else {"angular_bias": angular_bias})
    )
