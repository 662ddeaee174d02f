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
from simple_spk.commands.scored_lists import plan_scoring, score_lists
from simple_spk.embeddings_file import read_embeddings
from simple_spk.hub import resolve
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
        help="from simple-spk embed, or of another toolkit: .npz, .safetensors, .ark or .scp",
    )
    parser.add_argument("--model", help="score as this model does: a folder, or a name on the Hub")
    parser.add_argument(
        "--similarity",
        choices=("generalized", "cosine"),
        help="without --model: which score (default generalized)",
    )
    parser.add_argument(
        "--angular-bias", type=float, help=f"b_theta of generalized (default {ANGULAR_BIAS})"
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
    plan = plan_scoring(options)
    asked = plan_report(plan.lists, options)
    embeddings = read_embeddings(options.embeddings)
    similarity, threshold = _similarity(options)
    seconds = None if options.manifest is None else read_durations(options.manifest)
    model = None if options.model is None else model_name(options)
    results = score_lists(plan, embeddings, similarity, threshold, seconds, options, model)
    report(results, asked, options)


def _similarity(options: Namespace) -> tuple[Similarity, float | None]:
    """The similarity that was asked for, and the threshold that a model has for it."""
    kind, angular_bias = options.similarity, options.angular_bias
    if options.model is not None:
        if kind is not None or angular_bias is not None:
            raise ValueError("--model has its own similarity: leave out either it or the other")
        model = load_model(resolve(options.model))
        return model.similarity, model.threshold
    if kind == "cosine":
        if angular_bias is not None:
            raise ValueError("--angular-bias is of the generalized similarity: leave it out")
        return CosineSimilarity(), None
    return GeneralizedInnerProduct(ANGULAR_BIAS if angular_bias is None else angular_bias), None
