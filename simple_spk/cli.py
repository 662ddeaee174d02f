"""The command simple-spk: everything that is not training."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from simple_spk.embeddings_file import read_embeddings, write_embeddings
from simple_spk.evaluation import (
    VerificationEvaluation,
    embeddings_of_trials,
    score_trials,
    trial_metrics,
)
from simple_spk.extractor import Extractor
from simple_spk.model_folder import load_model
from simple_spk.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity
from simple_spk.trials import read_trials, write_scores

AUDIO_SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3"}


def embed(options: argparse.Namespace) -> None:
    """Embeddings of audio files, or of all audio files below folders, as one .npz file."""
    ids, paths = [], []
    for source in map(Path, options.audio):
        found = [source]
        if source.is_dir():
            found = sorted(p for p in source.rglob("*") if p.suffix.lower() in AUDIO_SUFFIXES)
            if not found:
                raise ValueError(f"{source}: no audio files below this folder")
        base = source if source.is_dir() else source.parent
        ids += [path.relative_to(base).as_posix() for path in found]
        paths += found
    if len(set(ids)) < len(ids):
        raise ValueError("two recordings would get one id: embed their folders one at a time")
    extractor = Extractor.load(options.model, options.device)
    embeddings = extractor.embed(paths, workers=options.workers, progress=True)
    write_embeddings(options.output, ids, embeddings)
    print(f"{len(ids)} embeddings of dimension {embeddings.shape[1]} in {options.output}")


def verify(options: argparse.Namespace) -> None:
    """The score of two recordings, and the model's own decision."""
    verdict = Extractor.load(options.model, options.device).verify(options.enrol, options.test)
    if options.json:
        print(json.dumps(verdict._asdict()))
        return
    answer = {True: "same speaker", False: "different speakers", None: "no threshold in the model"}
    threshold = "" if verdict.threshold is None else f" (threshold {verdict.threshold:.3f})"
    print(f"{answer[verdict.accepted]}: score {verdict.score:.3f}{threshold}")


def score(options: argparse.Namespace) -> None:
    """Scores of a trial list from embeddings, and the error rates if the list has labels."""
    trials = read_trials(options.trials)
    embeddings = embeddings_of_trials(trials, read_embeddings(options.embeddings))
    similarity: Similarity = CosineSimilarity()
    if options.model is not None:
        similarity = load_model(options.model).similarity
    elif options.similarity == "generalized":
        similarity = GeneralizedInnerProduct(options.angular_bias)
    scores = score_trials(trials, embeddings, similarity)
    write_scores(options.output, trials, scores)
    _report(trial_metrics(trials, scores), options.json)


def evaluate(options: argparse.Namespace) -> None:
    """Error rates of a model on a trial list, straight from the audio files."""
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
    _report(metrics, options.json)


def _report(metrics: dict, json_file: Path | None) -> None:
    """Print error rates, and write them all as JSON where asked."""
    if json_file is not None:
        json_file.write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    if "eer" in metrics:
        costs = ", ".join(
            f"minDCF({prior}) {cost:.4f}" for prior, cost in metrics["min_dcf_by_prior"].items()
        )
        print(f"{metrics['trials']} trials: EER {metrics['eer']:.3f} %, {costs}")
    else:
        print(f"{metrics['trials']} trials scored; the list has no labels, so no error rates")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    main_parser = argparse.ArgumentParser(prog="simple-spk", description=__doc__)
    commands = main_parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    model = argparse.ArgumentParser(add_help=False)
    model.add_argument("--model", type=Path, required=True, help="model folder (RUN/model)")
    model.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, ...")
    json_output = argparse.ArgumentParser(add_help=False)
    json_output.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    loading = argparse.ArgumentParser(add_help=False)
    loading.add_argument("--workers", type=int, default=0, help="processes that read audio ahead")

    command = commands.add_parser("embed", help=embed.__doc__, parents=[model, loading])
    command.add_argument("audio", nargs="+", help="audio files, or folders of them")
    command.add_argument("-o", "--output", type=Path, required=True, help="the .npz to write")
    command.set_defaults(run=embed)

    command = commands.add_parser("verify", help=verify.__doc__, parents=[model])
    command.add_argument("enrol", help="a recording of a known speaker")
    command.add_argument("test", help="the recording in question")
    command.add_argument("--json", action="store_true", help="answer as JSON")
    command.set_defaults(run=verify)

    command = commands.add_parser("score", help=score.__doc__, parents=[json_output])
    command.add_argument("--trials", type=Path, required=True, help="trial list, may be .gz")
    command.add_argument(
        "--embeddings", type=Path, required=True, help=".npz from simple-spk embed"
    )
    command.add_argument("--model", type=Path, help="score as this model does (recommended)")
    command.add_argument(
        "--similarity",
        choices=("generalized", "cosine"),
        default="generalized",
        help="without --model: which score (default generalized)",
    )
    command.add_argument(
        "--angular-bias", type=float, default=0.3, help="b_theta of generalized (default 0.3)"
    )
    command.add_argument("-o", "--output", type=Path, required=True, help="score file to write")
    command.set_defaults(run=score)

    command = commands.add_parser(
        "evaluate", help=evaluate.__doc__, parents=[model, loading, json_output]
    )
    command.add_argument("--trials", type=Path, required=True, help="trial list, may be .gz")
    where = command.add_mutually_exclusive_group(required=True)
    where.add_argument("--audio-folder", type=Path, help="the list names paths below this folder")
    where.add_argument("--manifest", type=Path, help="the list names IDs of this manifest")
    command.add_argument("-o", "--output", type=Path, help="score file to write")
    command.set_defaults(run=evaluate)
    return main_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; on a user's mistake say what is wrong and return a non-zero exit code."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, OSError) as error:
        print(f"simple-spk: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
