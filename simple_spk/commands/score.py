"""Scores of trial lists from embeddings, and the error rates of those that have labels."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.commands.options import REPLICATES, add_figures, add_scoring, add_trials
from simple_spk.commands.report import report
from simple_spk.commands.scored_lists import score_lists
from simple_spk.embeddings_file import read_embeddings
from simple_spk.manifest import read_manifest
from simple_spk.model_folder import load_model
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.templates import read_enrolments
from simple_spk.trials import read_trials


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of score."""
    add_trials(parser)
    parser.add_argument(
        "--embeddings",
        type=Path,
        required=True,
        help="from simple-spk embed, or of another toolkit: .npz, .safetensors, .ark or .scp",
    )
    parser.add_argument("--model", type=Path, help="score as this model does (recommended)")
    parser.add_argument(
        "--similarity",
        choices=("generalized", "cosine"),
        default="generalized",
        help="without --model: which score (default generalized)",
    )
    parser.add_argument(
        "--angular-bias", type=float, default=0.3, help="b_theta of generalized (default 0.3)"
    )
    parser.add_argument(
        "--manifest", type=Path, metavar="CSV", help="durations, if the calibration looks at them"
    )
    add_scoring(parser)
    add_figures(parser, always_intervals=False)


def run(options: Namespace) -> None:
    """Score, write and report."""
    lists = [read_trials(path) for path in options.trials]
    enrolments = None if options.enrolments is None else read_enrolments(options.enrolments)
    embeddings = read_embeddings(options.embeddings)
    similarity: Similarity = CosineSimilarity()
    threshold = None
    if options.model is not None:
        model = load_model(options.model)
        similarity, threshold = model.similarity, model.threshold
    elif options.similarity == "generalized":
        similarity = GeneralizedInnerProduct(options.angular_bias)
    seconds = None
    if options.manifest is not None:
        manifest = read_manifest(options.manifest)
        durations = manifest.durations_seconds.tolist()
        seconds = {name: durations[row] for name, row in manifest.row_of_id.items()}
    results = score_lists(lists, embeddings, enrolments, similarity, threshold, seconds, options)
    if options.replicates is None:  # scoring is quick, resampling takes longer
        options.replicates = REPLICATES if options.json or options.report else 0
    report(results, options)
