"""Options that several commands share."""

import dataclasses
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from simple_spk.cli.outputs import STANDARD_OUTPUT
from simple_spk.evaluation.bootstrap import REPLICATES
from simple_spk.evaluation.metrics import PRIORS
from simple_spk.evaluation.score_files import SCORE_FORMATS

if TYPE_CHECKING:  # these import torch
    from simple_spk.cli.summaries import SummaryOptions
    from simple_spk.inference.model import Model
    from simple_spk.inference.trial_evaluation import EvaluationOptions
    from simple_spk.models.similarity import Similarity


def add_model(parser: ArgumentParser) -> None:
    """The model, its device and precision."""
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
        help="of the encoder: bf16 is faster on hardware that supports it, and changes embeddings "
        "by some thousandths of their length (default fp32)",
    )


def model_name(options: Namespace) -> str:
    """The name of the model of ``add_model``."""
    return "the built-in model" if options.model is None else str(options.model)


def add_workers(parser: ArgumentParser) -> None:
    """The number of threads that read audio."""
    what = "threads that read audio (default: the number of cores, at most 8)"
    parser.add_argument("--workers", type=int, default=0, metavar="N", help=what)


def add_json(parser: ArgumentParser) -> None:
    """JSON output."""
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=STANDARD_OUTPUT,
        metavar="FILE",
        help="write all metrics as JSON (an array if there are several lists) to FILE, or print "
        "them if no FILE is given",
    )


def add_enrollments(parser: ArgumentParser) -> None:
    """Enrolled models of several recordings."""
    group = parser.add_argument_group("several recordings per enrolled model")
    what = "lines of 'model recording recording ...'"
    group.add_argument("--enrollments", type=Path, metavar="FILE", help=what)
    what = "average the embeddings unchanged (default), or normalized to length 1"
    group.add_argument("--template", choices=("mean", "normalized"), default="mean", help=what)


def add_scoring(parser: ArgumentParser) -> None:
    """From trial lists and embeddings to scores and score files; read by ``scoring_options``."""
    parser.add_argument(
        "--trials",
        type=Path,
        required=True,
        nargs="+",
        metavar="LIST",
        help="trial lists, may be .gz: 'label enroll test', 'enroll test target|nontarget', or no "
        "labels",
    )
    add_enrollments(parser)
    cohort = parser.add_argument_group("score normalization (AS-norm)")
    cohort.add_argument("--cohort", type=Path, metavar="FILE", help="embeddings of the cohort")
    what = "manifest or 'recording speaker' lines: the cohort is one mean embedding per speaker"
    cohort.add_argument("--cohort-speakers", type=Path, metavar="FILE", help=what)
    what = "nearest cohort members (default 300; 0: all)"
    cohort.add_argument("--top-n", type=int, default=300, metavar="N", help=what)
    calibration = parser.add_mutually_exclusive_group()
    calibration.add_argument(
        "--calibration",
        type=Path,
        metavar="JSON",
        help="from simple-spk calibrate: turns scores into log likelihood ratios (default: plain "
        "similarities, even if the model has a calibration)",
    )
    what = "calibrate with the calibration in the model folder, as verify and identify do"
    calibration.add_argument("--own-calibration", action="store_true", help=what)
    what = "score file to write; with several lists, a folder of them"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=what)
    parser.add_argument(
        "--format",
        choices=SCORE_FORMATS,
        default="wespeaker",
        help="score file: 'enroll test score target|nontarget' (wespeaker, default), '0|1 enroll "
        "test score' (voxceleb), 'score enroll test' (voxsrc)",
    )


def scoring_options(options: Namespace, summary: "SummaryOptions") -> "EvaluationOptions":
    """The options of ``add_scoring`` for the library, with the files they name."""
    from simple_spk.data.manifest import read_speakers
    from simple_spk.evaluation.calibration import Calibration
    from simple_spk.evaluation.embedding_files import read_embeddings
    from simple_spk.evaluation.enrollment import read_enrollments
    from simple_spk.evaluation.score_norm import speaker_cohort
    from simple_spk.inference.trial_evaluation import EvaluationOptions

    if options.cohort_speakers is not None and options.cohort is None:
        raise ValueError("--cohort-speakers are the speakers of a cohort: give the --cohort, too")
    if options.own_calibration and options.cohort is not None:
        raise ValueError(
            "--own-calibration is of plain scores, which a --cohort changes: leave one of them out"
        )
    cohort = None
    if options.cohort is not None:
        members = read_embeddings(options.cohort)
        cohort = members.matrix
        if options.cohort_speakers is not None:
            cohort = speaker_cohort(cohort, read_speakers(options.cohort_speakers, members.ids))
    return EvaluationOptions(
        None if options.enrollments is None else read_enrollments(options.enrollments),
        options.template,
        cohort,
        options.top_n or None,
        None if options.calibration is None else Calibration.load(options.calibration),
        str(options.calibration),
        summary.metrics,
        options.speakers,
        score_format=options.format,
        progress=True,
    )


def with_model(
    scoring: "EvaluationOptions", options: Namespace, model: "Model"
) -> "EvaluationOptions":
    """Scoring options with a model's name, threshold and (for --own-calibration) calibration."""
    scoring = dataclasses.replace(scoring, model=model_name(options), threshold=model.threshold)
    if options.own_calibration:
        if model.calibration is None:
            raise ValueError("--own-calibration: the model has none: leave it out, or calibrate it")
        own = "the model itself"
        return dataclasses.replace(scoring, calibration=model.calibration, calibration_name=own)
    if model.calibration is not None and options.calibration is None:
        print(
            "simple-spk: note: scores are plain similarities; --own-calibration turns them into "
            "the log likelihood ratios that verify decides by",
            file=sys.stderr,
        )
    return scoring


def add_summary(parser: ArgumentParser, always_intervals: bool) -> None:
    """Metrics of scores and their outputs; read by ``summaries.summary_options``."""
    add_json(parser)
    group = parser.add_argument_group("report")
    group.add_argument("--report", type=Path, metavar="HTML", help="write a report page")
    what = "draw the DET curves: .png, .svg or .pdf"
    group.add_argument("--det", type=Path, metavar="FILE", help=what)
    group.add_argument(
        "--metadata",
        type=Path,
        metavar="CSV",
        help="table about speakers or recordings, such as vox1_meta.csv: break the report and the "
        "JSON down by its columns",
    )
    when = "" if always_intervals else " with --json or --report, else 0"
    add_metrics(parser, REPLICATES if always_intervals else None, f"{when}; 0: no intervals")


def add_metrics(
    parser: ArgumentParser, replicates: int | None = REPLICATES, when: str = ""
) -> None:
    """Costs and intervals; ``when`` completes the help of the default of the replicates."""
    group = parser.add_argument_group("costs and intervals")
    what = f"draws of speakers for 95 %% intervals (default {REPLICATES}{when})"
    group.add_argument("--replicates", type=int, default=replicates, metavar="N", help=what)
    what = "random seed of the draws (default 0)"
    group.add_argument("--seed", type=int, default=0, metavar="N", help=what)
    what = "manifest or 'recording speaker' lines (default: from the names or labels of the list)"
    group.add_argument("--speakers", type=Path, metavar="FILE", help=what)
    what = f"target priors of the detection costs (default {' '.join(map(str, PRIORS))})"
    group.add_argument("--priors", type=float, nargs="+", default=PRIORS, metavar="P", help=what)
    for error in ("miss", "false-alarm"):
        what = f"cost of a {error.replace('-', ' ')} (default 1)"
        group.add_argument(f"--{error}-cost", type=float, default=1.0, metavar="C", help=what)


def add_decision(parser: ArgumentParser) -> None:
    """Decision rule and JSON output of verify and identify."""
    parser.add_argument(
        "--far",
        type=float,
        metavar="RATE",
        help="accept at the threshold of this false-accept rate, such as 1e-3 (default: accept "
        "at a probability of 0.5 or more)",
    )
    parser.add_argument(
        "--prior",
        type=float,
        metavar="P",
        help="prior probability that the speaker is the same or, to identify, is one of those "
        "enrolled (default 0.5)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_similarity(parser: ArgumentParser, when: str = "") -> None:
    """The similarity; ``when`` begins the help with a condition."""
    what = f"{when}similarity (default generalized, the inner product)"
    parser.add_argument("--similarity", choices=("generalized", "cosine"), help=what)
    what = "b_theta of generalized (default 0.3)"
    parser.add_argument("--angular-bias", type=float, metavar="COSINE", help=what)


def named_similarity(options: Namespace) -> "Similarity":
    """The similarity that the options of ``add_similarity`` name."""
    from simple_spk.models.similarity import (
        ANGULAR_BIAS,
        CosineSimilarity,
        GeneralizedInnerProduct,
    )

    if options.similarity == "cosine":
        if options.angular_bias is not None:
            raise ValueError("--angular-bias is of the generalized similarity: leave it out")
        return CosineSimilarity()
    bias = options.angular_bias
    return GeneralizedInnerProduct(ANGULAR_BIAS if bias is None else bias)
