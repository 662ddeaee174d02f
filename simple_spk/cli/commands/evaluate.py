"""Error rates of a model on trial lists, straight from the audio files.

Scores are plain similarities, unless a calibration is asked for.

To share the work among processes, or with --device cuda among GPUs:
torchrun --nproc_per_node=N --no-python simple-spk evaluate ...
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.cli.figures import ReportPlan, plan_report, report
from simple_spk.cli.options import (
    add_figures,
    add_model,
    add_scoring,
    add_trials,
    add_workers,
    model_name,
)
from simple_spk.cli.scored_lists import (
    ScoringPlan,
    plan_scoring,
    score_lists,
    with_own_calibration,
)
from simple_spk.data.manifest import read_speakers
from simple_spk.data.trials import speakers_of_recordings
from simple_spk.distributed import gather_objects, join_group, leave_group, own_device, rank
from simple_spk.evaluation.embedding_files import Embeddings, read_embeddings, write_embeddings
from simple_spk.evaluation.enrollment import recordings_needed
from simple_spk.inference.batch_embedding import recording_seconds
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.trial_evaluation import Located, locate

RECORDINGS_BETWEEN_SAVES = 8192


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of evaluate."""
    add_model(parser)
    add_workers(parser)
    add_trials(parser)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--audio-folder", type=Path, metavar="DIR", help="the lists name paths below this folder"
    )
    where.add_argument(
        "--manifest", type=Path, metavar="CSV", help="the lists name IDs of this manifest"
    )
    parser.add_argument(
        "--save-embeddings",
        type=Path,
        metavar="FILE",
        help=".npz or .safetensors to keep the embeddings in; those of this model and manifest (or "
        "folder) that are already there are not computed again, so that an interrupted run goes on",
    )
    parser.add_argument(
        "--clusters",
        action="store_true",
        help="also compare the least similarity within speakers with the greatest between them, "
        "and cluster the recordings of each list; the speakers are those of --speakers, else of "
        "the manifest, else the list tells",
    )
    add_scoring(parser)
    add_figures(parser, always_intervals=True)


def run(options: Namespace) -> None:
    """Embed what all lists need once, score and report; processes share the embedding."""
    join_group()
    plan = plan_scoring(options, options.save_embeddings)
    asked = plan_report(plan.lists, options)
    speakers = _speakers_to_cluster(plan, asked, options) if options.clusters else None
    names = recordings_needed(plan.lists, plan.enrollments)
    places = locate(names, options.manifest, options.audio_folder)
    extractor = Extractor.load(options.model, own_device(options.device), options.precision)
    model = extractor.model
    if rank() == 0:
        plan = with_own_calibration(plan, model, options)
    embeddings = _embed(extractor, names, places, options)
    if rank() > 0:
        leave_group()
    seconds = None
    if plan.calibration is not None and plan.calibration.needs_durations:
        durations = places.durations_seconds
        if durations is None:
            durations = recording_seconds(places.paths)
        seconds = dict(zip(names, durations.tolist(), strict=True))
    results = score_lists(
        plan, embeddings, model.similarity, model.threshold, seconds, options, model_name(options)
    )
    clusters = None
    if speakers is not None:
        from simple_spk.evaluation.clustering import (
            cluster_figures,  # takes a second, and is asked for rarely
        )

        clusters = [
            cluster_figures(
                *(trials.ids, embeddings.of(trials.ids), of_list),
                *(model.similarity, model.threshold),
            )
            for trials, of_list in zip(plan.lists, speakers, strict=True)
        ]
    report(results, asked, options, clusters)
    leave_group()


def _speakers_to_cluster(
    plan: ScoringPlan, asked: ReportPlan, options: Namespace
) -> list[NDArray[np.int64]]:
    """The speakers (ids,) of each list's recordings, from the best source that there is."""
    if plan.enrollments is not None:
        raise ValueError("--clusters are of recordings: they cannot be had with --enrollments")
    speakers = []
    for trials, told in zip(plan.lists, asked.speakers, strict=True):
        if told is None and options.manifest is not None:
            told = read_speakers(options.manifest, trials.ids)
        speakers.append(speakers_of_recordings(trials) if told is None else told)
    return speakers


def _embed(
    extractor: Extractor, names: Sequence[str], places: Located, options: Namespace
) -> Embeddings:
    """The embeddings of recordings: those kept from before, and the others, kept from now on."""
    file = options.save_embeddings
    if file is not None and file.suffix in (".ark", ".scp"):
        raise ValueError(f"{file} could not say which model it is of: name an .npz or .safetensors")
    origin = None
    if file is not None:  # IDs alone do not say it: two manifests may use the same
        where = (options.manifest or options.audio_folder).absolute()
        origin = f"{extractor.fingerprint} in {options.precision} from {where}"
    kept = Embeddings([], np.empty((0, 0), dtype=np.float32))
    if file is not None and file.exists():
        kept = read_embeddings(file)
        if kept.origin != origin:
            raise ValueError(
                f"{file} holds embeddings that were not made of these recordings by "
                f"{model_name(options)} as it is now, or not in {options.precision}: remove it, or "
                "name another file"
            )
    gather_objects(None)  # nobody writes before all have read
    absent = set(kept.missing(names))
    rows = np.flatnonzero([name in absent for name in names])
    between_saves = len(rows) if file is None else RECORDINGS_BETWEEN_SAVES
    for start in range(0, len(rows), between_saves or 1):
        some = rows[start : start + between_saves]
        seconds = places.durations_seconds
        made = extractor.embed(
            [places.paths[row] for row in some],
            workers=options.workers,
            progress=True,
            durations_seconds=None if seconds is None else seconds[some],
        )
        matrix = np.concatenate([kept.matrix, made]) if len(kept) else made
        kept = Embeddings([*kept.ids, *(names[row] for row in some)], matrix, file, origin)
        if file is not None and rank() == 0:
            write_embeddings(file, kept.ids, kept.matrix, origin)
    return kept
