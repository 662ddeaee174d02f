"""Scores of trial lists from embeddings, and the error rates of labeled lists."""

from argparse import ArgumentParser, Namespace

from simple_spk.cli.messages import warn
from simple_spk.cli.options import add_summary, add_value
from simple_spk.cli.outputs import check_outputs, inputs_of, score_files
from simple_spk.cli.scoring import (
    add_scoring,
    add_similarity,
    named_similarity,
    scoring_options,
    with_model,
)
from simple_spk.cli.summaries import show_summaries, summary_options
from simple_spk.data.trials import read_trials
from simple_spk.evaluation.bootstrap import REPLICATES
from simple_spk.evaluation.embedding_files import read_embeddings
from simple_spk.evaluation.enrollment import read_durations, recordings_needed
from simple_spk.evaluation.scoring import AnySimilarity
from simple_spk.inference.trial_scoring import EmbeddingSource, evaluate_trials


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of score."""
    what = (
        "from simple-spk embed, or of another toolkit: .npz, .safetensors, .ark, .scp, .parquet or "
        "a folder of Parquet parts, of which only the recordings of the trials are kept in memory"
    )
    add_value(parser, "--embeddings FILE|FOLDER", what, required=True)
    what = "score as this model does: model folder, or owner/name on the Hugging Face Hub"
    add_value(parser, "--model MODEL", what, str)
    add_similarity(parser, "without --model: ")
    add_value(parser, "--manifest CSV", "durations, for calibrations that use them")
    add_scoring(parser)
    add_summary(parser, when=" with --json or --report, else 0")


def run(options: Namespace) -> None:
    """Score, write and report."""
    if options.replicates is None:  # scoring is quick, resampling takes longer
        options.replicates = REPLICATES if options.json or options.report else 0
    if options.own_calibration and options.model is None:
        raise ValueError("--own-calibration is that of a model: name the --model, or leave it out")
    lists = [read_trials(path) for path in options.trials]
    outputs = score_files(options.output, lists)
    check_outputs([*outputs, options.json, options.report, options.det], inputs_of(options))
    summary = summary_options(lists, options)
    how = scoring_options(options, summary.metrics)
    embeddings = read_embeddings(options.embeddings, recordings_needed(lists, how.enrollments))
    if options.model is None:
        similarity: AnySimilarity = named_similarity(options)
    else:
        from simple_spk.inference.model import embedding_fingerprint  # with torch
        from simple_spk.inference.model_folder import load_model, resolve

        if options.similarity is not None or options.angular_bias is not None:
            raise ValueError("--model has its own similarity: leave out either it or the other")
        model = load_model(resolve(options.model))
        similarity = model.similarity
        if not (embeddings.origin or "").startswith(embedding_fingerprint(model)):
            reason = f"nothing in it says that {options.model} as it is now made them"
            warn(f"note on {options.embeddings}: {reason}")
        how = with_model(how, options, model)
    seconds = None if options.manifest is None else read_durations(options.manifest)
    source = EmbeddingSource(lambda: embeddings, None if seconds is None else lambda: seconds)
    results = evaluate_trials(lists, source, similarity, how, outputs)
    show_summaries(results, summary)
