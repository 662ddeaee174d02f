"""Scores of trial lists from embeddings, and the error rates of those that have labels."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.figures import plan_report, report
from simple_spk.cli.options import (
    add_figures,
    add_scoring,
    add_similarity,
    add_trials,
    model_name,
    named_similarity,
)
from simple_spk.cli.scored_lists import plan_scoring, score_lists, with_own_calibration
from simple_spk.evaluation.bootstrap import REPLICATES
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.enrollment import read_durations
from simple_spk.inference.model import Model, embedding_fingerprint
from simple_spk.inference.model_folder import load_model, resolve
from simple_spk.models.similarity import Similarity


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
    add_similarity(parser, "without --model: ")
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
        if not (embeddings.origin or "").startswith(embedding_fingerprint(model)):
            print(
                f"simple-spk: note on {options.embeddings}: nothing in it says that "
                f"{model_name(options)} as it is now made them",
                file=sys.stderr,
            )
        plan = with_own_calibration(plan, model, options)
    seconds = None if options.manifest is None else read_durations(options.manifest)
    name = None if model is None else model_name(options)
    results = score_lists(plan, embeddings, similarity, threshold, seconds, options, name)
    report(results, asked, options)


def _similarity(options: Namespace) -> tuple[Similarity, float | None, Model | None]:
    """The similarity that was asked for; the threshold for it and the model, if it is a model's."""
    if options.model is None:
        return named_similarity(options), None, None
    if options.similarity is not None or options.angular_bias is not None:
        raise ValueError("--model has its own similarity: leave out either it or the other")
    model = load_model(resolve(options.model))
    return model.similarity, model.threshold, model
