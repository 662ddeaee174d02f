"""The options that turn embeddings into scores: similarity, normalization and calibration."""

import dataclasses
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from simple_spk import ANGULAR_BIAS
from simple_spk.cli.messages import warn
from simple_spk.cli.options import add_enrollments, add_value
from simple_spk.data.manifest import read_speakers
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.enrollment import read_enrollments
from simple_spk.evaluation.score_files import SCORE_FORMATS
from simple_spk.evaluation.score_norm import speaker_cohort
from simple_spk.evaluation.scoring import NumpySimilarity
from simple_spk.inference.trial_scoring import EvaluationOptions

if TYPE_CHECKING:
    from simple_spk.inference.model import Model


def add_scoring(parser: ArgumentParser) -> None:
    """From trial lists and embeddings to scores and score files."""
    what = "trial lists (or .gz): 'label enroll test', 'enroll test target|nontarget', or no labels"
    add_value(parser, "--trials LIST", what, required=True, nargs="+")
    add_enrollments(parser)
    cohort = parser.add_argument_group("score normalization (AS-norm)")
    add_value(cohort, "--cohort FILE", "embeddings of the cohort")
    what = "manifest or 'recording speaker' lines: the cohort is one mean embedding per speaker"
    add_value(cohort, "--cohort-speakers FILE", what)
    add_value(cohort, "--top-n N", "nearest cohort members (default 300; 0: all)", int, default=300)
    calibration = parser.add_mutually_exclusive_group()
    what = "turn scores into log likelihood ratios, by a file of simple-spk calibrate"
    add_value(
        calibration, "--calibration JSON", f"{what} (default: none, even if the model has one)"
    )
    what = "calibrate with the calibration in the model folder, as verify and identify do"
    calibration.add_argument("--own-calibration", action="store_true", help=what)
    what = "score file to write; with several lists, a folder of them"
    add_value(parser, "-o --output FILE", what)
    parser.add_argument(
        "--format",
        choices=SCORE_FORMATS,
        default="wespeaker",
        help="score file: 'enroll test score target|nontarget' (wespeaker, default), '0|1 enroll "
        "test score' (voxceleb), 'score enroll test' (voxsrc)",
    )


def scoring_options(options: Namespace, metrics: MetricOptions) -> EvaluationOptions:
    """The options of ``add_scoring`` for the library, with the files they name."""
    if options.cohort_speakers is not None and options.cohort is None:
        raise ValueError("--cohort-speakers are the speakers of a cohort: give the --cohort, too")
    if options.own_calibration and options.cohort is not None:
        raise ValueError("--own-calibration is of plain scores, which a --cohort changes: drop one")
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
        metrics,
        options.speakers,
        score_format=options.format,
        progress=True,
    )


def with_model(scoring: EvaluationOptions, options: Namespace, model: "Model") -> EvaluationOptions:
    """Scoring options with a model's name, threshold and (for --own-calibration) calibration."""
    name = options.model or "the built-in model"
    scoring = dataclasses.replace(scoring, model=name, threshold=model.threshold)
    if options.own_calibration:
        if model.calibration is None:
            raise ValueError("--own-calibration: the model has none: leave it out, or calibrate it")
        own = "the model itself"
        return dataclasses.replace(scoring, calibration=model.calibration, calibration_name=own)
    if model.calibration is not None and options.calibration is None:
        warn("note: scores are plain similarities; --own-calibration gives log likelihood ratios")
    return scoring


def add_similarity(parser: ArgumentParser, when: str = "") -> None:
    """The similarity; ``when`` begins the help with a condition."""
    what = f"{when}similarity (default generalized, the inner product)"
    parser.add_argument("--similarity", choices=("generalized", "cosine"), help=what)
    add_value(parser, "--angular-bias COSINE", "b_theta of generalized (default 0.3)", float)


def named_similarity(options: Namespace) -> NumpySimilarity:
    """The similarity that the options of ``add_similarity`` name."""
    bias = options.angular_bias
    if options.similarity != "cosine":
        if bias is not None and not -1.0 <= bias <= 1.0:
            raise ValueError(f"--angular-bias is a cosine: it must lie in [-1, 1], not {bias}")
        return NumpySimilarity(ANGULAR_BIAS if bias is None else bias)
    if bias is not None:
        raise ValueError("--angular-bias is of the generalized similarity: leave it out")
    return NumpySimilarity()
