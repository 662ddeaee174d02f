"""Error rates of a model on trial lists, computed from audio files.

Scores are plain similarities, unless a calibration is given.
--save-embeddings does not compute embeddings again that the file has of the same model and
manifest (or folder). --clusters compares the least similarity within speakers with the greatest
between them; speakers are those of --speakers, else of the manifest, else of the list.

To share the work among processes, or with --device cuda among GPUs:
torchrun --nproc_per_node=N --no-python simple-spk evaluate ...
"""

import dataclasses
from argparse import ArgumentParser, Namespace

from simple_spk.cli.options import add_model, add_summary, add_value, load_extractor
from simple_spk.cli.outputs import check_outputs, inputs_of, score_files
from simple_spk.cli.scoring import add_scoring, scoring_options, with_model
from simple_spk.cli.summaries import show_summaries, summary_options
from simple_spk.data.trials import read_trials
from simple_spk.distributed import join_group, leave_group, own_device, rank
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.inference.trial_scoring import EmbeddingSource, evaluate_trials


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of evaluate."""
    add_model(parser, with_workers=True)
    where = parser.add_mutually_exclusive_group(required=True)
    add_value(where, "--audio-folder FOLDER", "the lists name paths below this folder")
    add_value(where, "--manifest CSV", "the lists name IDs of this manifest")
    what = "save the embeddings (.npz or .safetensors); an interrupted run resumes from the file"
    add_value(parser, "--save-embeddings FILE", what)
    what = "also compare similarities within and between speakers, and cluster the recordings"
    parser.add_argument("--clusters", action="store_true", help=what)
    add_scoring(parser)
    add_summary(parser)


def run(options: Namespace) -> None:
    """Embed the recordings of all lists once, score and report; processes share the embedding."""
    from simple_spk.inference.embedding_store import embed_into_file
    from simple_spk.inference.trial_evaluation import locate_recordings

    join_group()
    lists = [read_trials(path) for path in options.trials]
    outputs = score_files(options.output, lists)
    written = [*outputs, options.json, options.report, options.det, options.save_embeddings]
    check_outputs(written, inputs_of(options))
    summary = summary_options(lists, options)
    how = dataclasses.replace(
        scoring_options(options, summary.metrics),
        with_clusters=options.clusters,
        cluster_speakers=options.manifest,
    )
    recordings = locate_recordings(lists, options.manifest, options.audio_folder, how.enrollments)
    extractor = load_extractor(options, own_device(options.device))
    if rank() == 0:  # only the first process scores, and it alone prints notes
        how = with_model(how, options, extractor.model)

    def embed() -> Embeddings:
        """The embeddings, in the first process; the others end here."""
        file, workers = options.save_embeddings, options.workers
        if file is None:
            matrix = extractor.embed(
                recordings.paths,
                workers=workers,
                progress=True,
                durations_seconds=recordings.durations_seconds,
            )
            embeddings = Embeddings(recordings.ids, matrix)
        else:
            # The ids alone do not identify recordings: two manifests may use the same ones.
            where = (options.manifest or options.audio_folder).absolute()
            origin = f"{extractor.fingerprint} in {options.precision} from {where}"
            embeddings = embed_into_file(file, extractor, recordings, origin, workers)
        if rank() > 0:
            leave_group()
        return embeddings

    source = EmbeddingSource(
        embed,
        recordings.seconds_of_recording,
        lambda: recordings.sound_of_recording(extractor.sample_rate),
    )
    results = evaluate_trials(lists, source, extractor.model.similarity, how, outputs)
    show_summaries(results, summary)
    leave_group()
