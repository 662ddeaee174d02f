"""From trial lists and embeddings to error rates; torch is not imported.

``trial_evaluation`` says how recordings become embeddings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.manifest import read_speakers
from simple_spk.data.trials import Trials, speakers_of_recordings
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.distributed import rank
from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.evaluation.enrollment import (
    Enrollments,
    TemplateKind,
    durations_of_trials,
    embeddings_of_trials,
    measures_of_trials,
)
from simple_spk.evaluation.list_summary import EvaluatedTrials, check_classes, summarize
from simple_spk.evaluation.quality_measures import quality_measures
from simple_spk.evaluation.score_files import ScoredTrials, ScoreFormat, write_scores
from simple_spk.evaluation.score_norm import check_cohort_size, cohort_statistics, normalize
from simple_spk.evaluation.scoring import AnySimilarity, score_trials, similarity_in_words


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

    def scoring_in_words(self, similarity: AnySimilarity) -> str:
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
        similarity: AnySimilarity,
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


def evaluate_trials(
    lists: Sequence[Trials],
    source: EmbeddingSource,
    similarity: AnySimilarity,
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
