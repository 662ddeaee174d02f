"""Error rates of a model on trial lists, computed from audio files.

Scores are plain similarities, unless a calibration is given.

To share the work among processes, or with --device cuda among GPUs:
torchrun --nproc_per_node=N --no-python simple-spk evaluate ...
"""

import dataclasses
import functools
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.options import (
    add_model,
    add_scoring,
    add_summary,
    add_workers,
    scoring_options,
    with_model,
)
from simple_spk.cli.outputs import check_outputs, inputs_of, score_files
from simple_spk.cli.summaries import show_summaries, summary_options
from simple_spk.data.trials import read_trials
from simple_spk.distributed import join_group, leave_group, own_device, rank
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.inference.batch_embedding import ExtractionOptions
from simple_spk.inference.embedding_store import embed_into_file
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.trial_evaluation import (
    EmbeddingSource,
    LocatedRecordings,
    evaluate_trials,
    locate_recordings,
)


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of evaluate."""
    add_model(parser)
    add_workers(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    what = "the lists name paths below this folder"
    where.add_argument("--audio-folder", type=Path, metavar="DIR", help=what)
    what = "the lists name IDs of this manifest"
    where.add_argument("--manifest", type=Path, metavar="CSV", help=what)
    parser.add_argument(
        "--save-embeddings",
        type=Path,
        metavar="FILE",
        help=".npz or .safetensors to save the embeddings in; those that it holds of this model "
        "and manifest (or folder) are not computed again, so that an interrupted run resumes",
    )
    parser.add_argument(
        "--clusters",
        action="store_true",
        help="also compare the least similarity within speakers with the greatest between them, "
        "and cluster the recordings of each list; speakers are those of --speakers, else of the "
        "manifest, else of the list",
    )
    add_scoring(parser)
    add_summary(parser, always_intervals=True)


def run(options: Namespace) -> None:
    """Embed the recordings of all lists once, score and report; processes share the embedding."""
    join_group()
    lists = [read_trials(path) for path in options.trials]
    outputs = score_files(options.output, lists)
    written = [*outputs, options.json, options.report, options.det, options.save_embeddings]
    check_outputs(written, inputs_of(options))
    summary = summary_options(lists, options)
    how = dataclasses.replace(
        scoring_options(options, summary),
        with_clusters=options.clusters,
        cluster_speakers=options.manifest,
    )
    recordings = locate_recordings(lists, options.manifest, options.audio_folder, how.enrollments)
    extractor = Extractor.load(options.model, own_device(options.device), options.precision)
    model = extractor.model
    if rank() == 0:  # only the first process scores, and it alone prints notes
        how = with_model(how, options, model)
    source = EmbeddingSource(
        functools.partial(_embed, extractor, recordings, options), recordings.seconds_of_recording
    )
    results = evaluate_trials(lists, source, model.similarity, how, outputs)
    show_summaries(results, summary)
    leave_group()


def _embed(extractor: Extractor, recordings: LocatedRecordings, options: Namespace) -> Embeddings:
    """The embeddings of the recordings, in the first process; the others end here."""
    if options.save_embeddings is None:
        how = ExtractionOptions(
            workers=options.workers,
            progress=True,
            durations_seconds=recordings.durations_seconds,
        )
        embeddings = Embeddings(recordings.ids, extractor.embed(recordings.paths, options=how))
    else:
        # The ids alone do not identify recordings: two manifests may use the same ones.
        where = (options.manifest or options.audio_folder).absolute()
        origin = f"{extractor.fingerprint} in {options.precision} from {where}"
        file, workers = options.save_embeddings, options.workers
        embeddings = embed_into_file(file, extractor, recordings, origin, workers)
    if rank() > 0:
        leave_group()
    return embeddings
