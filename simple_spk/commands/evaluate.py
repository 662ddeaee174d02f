"""Error rates of a model on a trial list, straight from the audio files."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.commands.options import add_json, add_model, add_trials, add_workers
from simple_spk.commands.report import report
from simple_spk.evaluation import VerificationEvaluation
from simple_spk.extractor import Extractor


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of evaluate."""
    add_model(parser)
    add_workers(parser)
    add_trials(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--audio-folder", type=Path, help="the list names paths below this folder")
    where.add_argument("--manifest", type=Path, help="the list names IDs of this manifest")
    parser.add_argument("-o", "--output", type=Path, help="score file to write")
    add_json(parser)


def run(options: Namespace) -> None:
    """Embed, score and report."""
    evaluation = VerificationEvaluation(
        options.trials,
        manifest=options.manifest,
        audio_folder=options.audio_folder,
        workers=options.workers,
    )
    extractor = Extractor.load(options.model, options.device)
    evaluation.sample_rate = extractor.sample_rate
    metrics = evaluation(
        extractor.embed_waveforms, extractor.model.similarity, scores_file=options.output
    )
    report(metrics, options.json)
