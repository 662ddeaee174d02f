"""Scores of a trial list from embeddings, and the error rates if the list has labels."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.commands.options import add_json, add_trials
from simple_spk.commands.report import report
from simple_spk.embeddings_file import read_embeddings
from simple_spk.evaluation import embeddings_of_trials, score_trials, trial_metrics
from simple_spk.model_folder import load_model
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.trials import read_trials, write_scores


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of score."""
    add_trials(parser)
    parser.add_argument("--embeddings", type=Path, required=True, help=".npz from simple-spk embed")
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
    parser.add_argument("-o", "--output", type=Path, required=True, help="score file to write")
    add_json(parser)


def run(options: Namespace) -> None:
    """Score, write and report."""
    trials = read_trials(options.trials)
    embeddings = embeddings_of_trials(trials, read_embeddings(options.embeddings))
    similarity: Similarity = CosineSimilarity()
    if options.model is not None:
        similarity = load_model(options.model).similarity
    elif options.similarity == "generalized":
        similarity = GeneralizedInnerProduct(options.angular_bias)
    scores = score_trials(trials, embeddings, similarity)
    write_scores(options.output, trials, scores)
    report(trial_metrics(trials, scores), options.json)
