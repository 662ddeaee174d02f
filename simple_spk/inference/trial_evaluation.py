"""From trial lists to error rates: the one pipeline of training, the commands and Python users.

    trial lists -> the recordings they name -> embeddings -> scores in list order
    -> templates, AS-norm, calibration -> metrics with intervals

The built-in model on one list:

    extractor, lists = Extractor.load(), [read_trials("trials.txt")]
    source = locate_recordings(lists, audio_folder="wav").source(extractor.embed)
    (result,) = evaluate_trials(lists, source, extractor.model.similarity)
    print(result.summary["eer"])
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import duration_seconds
from simple_spk.data.manifest import read_manifest, read_speakers
from simple_spk.data.tar_store import file_of
from simple_spk.data.trials import Trials, read_trials, speakers_of_recordings
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.distributed import rank
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.calibration import Calibration, quality_measures
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.evaluation.enrollment import (
    Enrollments,
    TemplateKind,
    durations_of_trials,
    embeddings_of_trials,
    measures_of_trials,
    recordings_needed,
)
from simple_spk.evaluation.list_summary import EvaluatedTrials, check_classes, summarize
from simple_spk.evaluation.score_files import ScoredTrials, ScoreFormat, write_scores
from simple_spk.evaluation.score_norm import check_cohort_size, cohort_statistics, normalize
from simple_spk.evaluation.scoring import score_trials, similarity_in_words
from simple_spk.inference.batch_embedding import (
    BATCH_SECONDS,
    Embed,
    ExtractionOptions,
    ask_all,
    embed_recordings,
)
from simple_spk.inference.speech_quality import quality_of_file
from simple_spk.models.similarity import Similarity

# What training logs of a summary: the keys of metrics.summary.
METRICS = (
    "eer",
    "eer_threshold",
    "eer_convex_hull",
    "min_dcf",
    "act_dcf",
    "cllr",
    "min_cllr",
    "auc",
    "trials",
    "targets",
)


@dataclass(frozen=True, eq=False)
class EvaluationOptions:
    """How embeddings become scores, and which metrics are computed of them."""

    enrollments: Enrollments | None = None  # the recordings of models that the enroll side names
    template: TemplateKind = "mean"  # how the embeddings of a model's recordings are averaged
    cohort: NDArray[np.float32] | None = None  # embeddings (c, dim) for AS-norm
    top_n: int | None = 300  # nearest members of the cohort; None: all of them (S-norm)
    calibration: Calibration | None = None  # turns scores into log likelihood ratios
    calibration_name: str = "the model itself"  # for reports
    metrics: MetricOptions = field(default_factory=MetricOptions)
    # Manifest or "recording speaker" lines, for intervals and clusters; else the list tells them.
    speakers: Path | None = None
    cluster_speakers: Path | None = None  # the same for clusters alone, without ``speakers``
    with_clusters: bool = False  # whether to cluster the recordings of each list
    model: str | None = None  # its name, for reports
    threshold: float | None = None  # the model's own, of plain scores: SimPLE's -b
    score_format: ScoreFormat = "wespeaker"
    progress: bool = False

    def __post_init__(self) -> None:
        if self.cohort is not None:
            check_cohort_size(len(self.cohort), self.top_n)
        if self.with_clusters and self.enrollments is not None:
            raise ValueError("clusters are of recordings, not of models: leave out --enrollments")

    def scoring_in_words(self, similarity: Similarity) -> str:
        """The similarity, normalization and calibration, for reports."""
        words = similarity_in_words(similarity)
        if self.cohort is not None:
            size = len(self.cohort)
            words += f", AS-norm with the top {self.top_n or size} of {size}"
        if self.calibration is not None:
            words += f", calibrated by {self.calibration_name}"
        return words

    def scores(
        self,
        trials: Trials,
        table: NDArray[np.float32],
        similarity: Similarity,
        seconds: Mapping[str, float] | None,
        sound: Mapping[str, NDArray[np.float64]] | None = None,
    ) -> NDArray[np.floating]:
        """The scores (n,) of a list whose names have embeddings (ids, dim), in list order."""
        scores: NDArray[np.floating] = score_trials(trials, table, similarity)
        if self.cohort is not None:
            statistics = cohort_statistics(
                table, self.cohort, similarity, self.top_n, progress=self.progress
            )
            scores = normalize(scores, trials.enroll, trials.test, statistics)
        if self.calibration is not None:
            durations = None
            if seconds is not None:
                durations = durations_of_trials(trials, seconds, self.enrollments)
            measures = None
            if sound is not None:
                measures = measures_of_trials(trials, sound, self.enrollments)
            quality = quality_measures(
                trials.enroll, trials.test, durations, table, measures, self.calibration.background
            )
            scores = self.calibration.apply(scores, quality)
        return scores


class EmbeddingSource(NamedTuple):
    """Where the embeddings of recordings come from, and what calibrations know about them."""

    embed: Callable[[], Embeddings]
    seconds_of_recording: Callable[[], Mapping[str, float]] | None = None
    sound_of_recording: Callable[[], Mapping[str, NDArray[np.float64]]] | None = None


class LocatedRecordings(NamedTuple):
    """Recordings that exist, and their durations (n,) if a manifest tells them."""

    ids: list[str]
    paths: list[Path]
    durations_seconds: NDArray[np.floating] | None = None

    def seconds_of_recording(self) -> dict[str, float]:
        """The duration of each recording, from the manifest or from the files."""
        durations: Any = self.durations_seconds
        if durations is None:
            durations = ask_all(duration_seconds, self.paths, "durations")
        return dict(zip(self.ids, map(float, durations), strict=True))

    def source(self, embed: Callable[[Sequence[Path]], NDArray[np.float32]]) -> EmbeddingSource:
        """The embeddings (n, dim) that ``embed`` makes of the files."""
        embedded = lambda: Embeddings(self.ids, embed(self.paths))  # noqa: E731
        return EmbeddingSource(embedded, self.seconds_of_recording, self.sound_of_recording)

    def sound_of_recording(
        self, sample_rate: int = SAMPLE_RATE, progress: bool = True
    ) -> dict[str, NDArray[np.float64]]:
        """The measures of the sound of each recording, from the files."""

        def measured(path: Path) -> NDArray[np.float64]:
            return quality_of_file(path, sample_rate).sound_measures()

        found = ask_all(measured, self.paths, "listen", progress)
        return dict(zip(self.ids, found, strict=True))


def evaluate_trials(
    lists: Sequence[Trials],
    source: EmbeddingSource,
    similarity: Similarity,
    options: EvaluationOptions | None = None,
    scores_files: Sequence[Path | None] = (),
) -> list[EvaluatedTrials]:
    """The scores and the summary of each list; scores are also written to the files named.

    All lists share one embedding of their recordings. Mistakes in the options are raised before.
    """
    options = options or EvaluationOptions()
    speakers: list[NDArray[np.int64] | None] = [None] * len(lists)
    if options.speakers is not None:
        speakers = [read_speakers(options.speakers, trials.ids) for trials in lists]
    file = options.cluster_speakers
    clustered: list[Any] = speakers
    if options.with_clusters and options.speakers is None:
        clustered = [
            speakers_of_recordings(trials) if file is None else read_speakers(file, trials.ids)
            for trials in lists
        ]
    for trials in lists:
        check_classes(trials)
    embeddings = source.embed()
    needs_durations = options.calibration is not None and options.calibration.needs_durations
    seconds = None
    if needs_durations and source.seconds_of_recording is not None:
        seconds = source.seconds_of_recording()
    sound = None
    needs_sound = options.calibration is not None and options.calibration.needs_sound
    if needs_sound and source.sound_of_recording is not None:
        sound = source.sound_of_recording()
    is_plain = options.cohort is None and options.calibration is None
    threshold, words = options.threshold if is_plain else None, options.scoring_in_words(similarity)
    results = []
    for index, trials in enumerate(lists):
        table = embeddings_of_trials(trials, embeddings, options.enrollments, options.template)
        scores = options.scores(trials, table, similarity, seconds, sound)
        scored = ScoredTrials(trials, scores, list_name(trials), options.model, words, threshold)
        scores_file = scores_files[index] if scores_files and rank() == 0 else None
        if scores_file is not None:
            write_scores(scores_file, trials, scores, options.score_format)
        found = summarize(scored, options.metrics, speakers[index], options.progress)
        if options.with_clusters:
            from simple_spk.evaluation.clustering import cluster_summary  # imports scipy

            found["clusters"] = cluster_summary(
                trials.ids, table, clustered[index], similarity, options.threshold
            )
        results.append(EvaluatedTrials(scored, speakers[index], found))
    return results


def locate_recordings(
    lists: Sequence[Trials],
    manifest: str | Path | None = None,
    audio_folder: str | Path | None = None,
    enrollments: Enrollments | None = None,
    progress: bool = True,
) -> LocatedRecordings:
    """The recordings that lists name, by the ID column of a manifest or as paths below a folder."""
    if (manifest is None) == (audio_folder is None):
        raise ValueError("give either a manifest or an audio_folder for the trials' recordings")
    names = recordings_needed(lists, enrollments)
    durations, missing, place = None, [], str(manifest)
    if manifest is not None:
        utterances = read_manifest(manifest)
        missing = [name for name in names if name not in utterances.row_of_id]
        rows = [utterances.row_of_id[name] for name in names if not missing]
        paths = [utterances.wav(row) for row in rows]
        durations = utterances.durations_seconds[rows]
    else:
        assert audio_folder is not None
        if not Path(audio_folder).is_dir():
            raise FileNotFoundError(f"no audio folder at {audio_folder}: correct the path")
        paths = [Path(audio_folder, name) for name in names]
    if not missing:
        exists = zip(names, paths, ask_all(_is_there, paths, "find", progress), strict=True)
        missing = [f"{name} at {path}" for name, path, is_file in exists if not is_file]
        place = "their places"
    if missing:
        count, first = f"{len(missing)} of {len(names)}", ", ".join(missing[:3])
        raise ValueError(
            f"{count} recordings of the trials are not in {place} (first: {first}): complete the "
            "data or correct the list"
        )
    return LocatedRecordings(names, paths, durations)


def _is_there(path: Path) -> bool:
    """Whether the file of a recording exists."""
    return file_of(path).is_file()


class VerificationEvaluation:
    """A trial list and its recordings, to evaluate a model on during training.

    The recordings are those of ``manifest`` (by its ID column), or lie in ``audio_folder``, below
    which the names of the list are paths, as in the VoxCeleb lists.
    """

    def __init__(
        self,
        trials: str | Path,
        manifest: str | Path | None = None,
        audio_folder: str | Path | None = None,
        sample_rate: int = SAMPLE_RATE,
        batch_seconds: float = BATCH_SECONDS,
        workers: int = 0,
        progress: bool = True,
        options: EvaluationOptions | None = None,
    ) -> None:
        self.trials = read_trials(trials)
        self.options = options or EvaluationOptions()
        self.recordings = locate_recordings(
            [self.trials], manifest, audio_folder, self.options.enrollments, progress
        )
        self.how = ExtractionOptions(
            sample_rate=sample_rate,
            batch_seconds=batch_seconds,
            workers=workers,
            progress=progress,
            durations_seconds=self.recordings.durations_seconds,
        )

    def __call__(
        self, embed: Embed, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """The metrics as plain data; the scores go to ``scores_file`` if one is given."""
        source = self.recordings.source(lambda paths: embed_recordings(paths, embed, self.how))
        (result,) = evaluate_trials([self.trials], source, similarity, self.options, [scores_file])
        return {name: result.summary[name] for name in METRICS if name in result.summary}
