"""Scores of trial lists from embeddings, and the error rates of those that have labels."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.commands.options import (
    REPLICATES,
    add_figures,
    add_scoring,
    add_trials,
    model_name,
)
from simple_spk.commands.report import plan_report, report
from simple_spk.commands.scored_lists import plan_scoring, score_lists, with_own_calibration
from simple_spk.embeddings_file import read_embeddings
from simple_spk.hub import resolve
from simple_spk.model import Model
from simple_spk.model_folder import load_model
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.templates import read_durations

ANGULAR_BIAS = 0.3


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of score."""
    add_trials(parser)
    parser.add_argument(
        "--embeddings",
        type=Path,
        required=True,
        metavar="FILE",
        help="from simple-spk embed, or of another toolkit: .npz, .safetensors, .ark or .scp",
    )
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="score as this model does: model folder, or owner/name on the Hugging Face Hub",
    )
    parser.add_argument(
        "--similarity",
        choices=("generalized", "cosine"),
        help="without --model: which score (default generalized)",
    )
    parser.add_argument(
        "--angular-bias",
        type=float,
        metavar="COSINE",
        help=f"b_theta of generalized (default {ANGULAR_BIAS})",
    )
    parser.add_argument(
        "--manifest", type=Path, metavar="CSV", help="durations, if the calibration looks at them"
    )
    add_scoring(parser)
    add_figures(parser, always_intervals=False)


def run(options: Namespace) -> None:
    """Score, write and report."""
    if options.replicates is None:  # scoring is quick, resampling takes longer
        options.replicates = REPLICATES if options.json or options.report else 0
    if options.own_calibration and options.model is None:
        raise ValueError("--own-calibration is that of a model: name the --model, or leave it out")
    plan = plan_scoring(options)
    asked = plan_report(plan.lists, options)
    embeddings = read_embeddings(options.embeddings)
    similarity, threshold, model = _similarity(options)
    if model is not None:
        plan = with_own_calibration(plan, model, options)
    seconds = None if options.manifest is None else read_durations(options.manifest)
    name = None if model is None else model_name(options)
    results = score_lists(plan, embeddings, similarity, threshold, seconds, options, name)
    report(results, asked, options)


def _similarity(options: Namespace) -> tuple[Similarity, float | None, Model | None]:
    """The similarity that was asked for; the threshold for it and the model, if it is a model's."""
    kind, angular_bias = options.similarity, options.angular_bias
    if options.model is not None:
        if kind is not None or angular_bias is not None:
            raise ValueError("--model has its own similarity: leave out either it or the other")
        model = load_model(resolve(options.model))
        return model.similarity, model.threshold, model
    if kind == "cosine":
        if angular_bias is not None:
            raise ValueError("--angular-bias is of the generalized similarity: leave it out")
        return CosineSimilarity(), None, None
    similarity = GeneralizedInnerProduct(ANGULAR_BIAS if angular_bias is None else angular_bias)
    return similarity, None, None
