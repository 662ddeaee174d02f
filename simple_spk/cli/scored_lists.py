"""From embeddings to scored lists and their files, for the commands that score."""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.cli.outputs import check_outputs, inputs_of
from simple_spk.data.manifest import read_speakers
from simple_spk.data.trials import Trials, read_trials
from simple_spk.data.voxceleb_lists import list_name
from simple_spk.evaluation.calibration import Calibration, quality_measures
from simple_spk.evaluation.embedding_files import Embeddings, read_embeddings
from simple_spk.evaluation.enrollment import (
    Enrollments,
    durations_of_trials,
    embeddings_of_trials,
    read_enrollments,
)
from simple_spk.evaluation.score_files import ScoredTrials, write_scores
from simple_spk.evaluation.score_norm import (
    check_cohort_size,
    cohort_statistics,
    normalize,
    speaker_cohort,
)
from simple_spk.evaluation.scoring import score_trials, similarity_in_words
from simple_spk.inference.model import Model
from simple_spk.models.similarity import Similarity


class ScoringPlan(NamedTuple):
    """What scoring needs beside embeddings, read and checked before these are made."""

    lists: list[Trials]
    outputs: list[Path | None]  # score files, one per list
    enrollments: Enrollments | None
    cohort: NDArray[np.float32] | None  # (c, dim)
    calibration: Calibration | None


def plan_scoring(options: Namespace, *other_outputs: Path | None) -> ScoringPlan:
    """Read what the options name, and see that all outputs can be written."""
    if options.cohort_speakers is not None and options.cohort is None:
        raise ValueError("--cohort-speakers tells who is in a cohort: give the --cohort, too")
    if options.own_calibration and options.cohort is not None:
        raise ValueError(
            "--own-calibration is of plain scores, which a --cohort changes: leave one of them out"
        )
    lists = [read_trials(path) for path in options.trials]
    outputs = score_files(options.output, lists)
    check_outputs(
        [*outputs, options.json, options.report, options.det, *other_outputs], inputs_of(options)
    )
    return ScoringPlan(
        lists,
        outputs,
        None if options.enrollments is None else read_enrollments(options.enrollments),
        _cohort(options),
        None if options.calibration is None else Calibration.load(options.calibration),
    )


def with_own_calibration(plan: ScoringPlan, model: Model, options: Namespace) -> ScoringPlan:
    """The plan with the calibration of the model, if that was asked for; a note if it lies idle."""
    if options.own_calibration:
        if model.calibration is None:
            raise ValueError("--own-calibration: the model has none: leave it out, or calibrate it")
        return plan._replace(calibration=model.calibration)
    if model.calibration is not None and plan.calibration is None:
        print(
            "simple-spk: note: scores are plain similarities; --own-calibration makes them the log "
            "likelihood ratios that verify decides by",
            file=sys.stderr,
        )
    return plan


def score_lists(
    plan: ScoringPlan,
    embeddings: Embeddings,
    similarity: Similarity,
    threshold: float | None,
    seconds_of_recording: Mapping[str, float] | None,
    options: Namespace,
    model: str | None,
) -> list[ScoredTrials]:
    """The lists with their scores, normalized and calibrated as asked, also in their files."""
    cohort, calibration = plan.cohort, plan.calibration
    how = similarity_in_words(similarity)
    if cohort is not None:
        how += f", AS-norm with the top {options.top_n or len(cohort)} of {len(cohort)}"
    if calibration is not None:
        how += f", calibrated by {options.calibration or 'the model itself'}"
    is_plain = cohort is None and calibration is None
    results = []
    for trials, output in zip(plan.lists, plan.outputs, strict=True):
        table = embeddings_of_trials(trials, embeddings, plan.enrollments, options.template)
        scores: NDArray[np.floating] = score_trials(trials, table, similarity)
        if cohort is not None:
            statistics = cohort_statistics(
                table, cohort, similarity, options.top_n or None, progress=True
            )
            scores = normalize(scores, trials.enroll, trials.test, statistics)
        if calibration is not None:
            seconds = None
            if seconds_of_recording is not None:
                seconds = durations_of_trials(trials, seconds_of_recording, plan.enrollments)
            quality = quality_measures(trials.enroll, trials.test, seconds, table)
            scores = calibration.apply(scores, quality)
        if output is not None:
            write_scores(output, trials, scores, options.format)
        own = threshold if is_plain else None  # -b is a threshold of plain scores
        results.append(ScoredTrials(trials, scores, list_name(trials), model, how, own))
    return results


def score_files(output: Path | None, lists: Sequence[Trials]) -> list[Path | None]:
    """Where the scores of each list go: to ``output``, or with several lists, into that folder."""
    if output is None or len(lists) == 1:
        return [output] * len(lists)
    names = [trials.path.name.removesuffix(".gz") for trials in lists if trials.path is not None]
    if len(set(names)) < len(names):
        raise ValueError(f"two lists of one name would share a file in {output}: rename one")
    return [output / name for name in names]


def _cohort(options: Namespace) -> NDArray[np.float32] | None:
    """The embeddings (c, dim) to normalize scores with, one per speaker if speakers are given."""
    if options.cohort is None:
        return None
    members = read_embeddings(options.cohort)
    cohort = members.matrix
    if options.cohort_speakers is not None:
        cohort = speaker_cohort(cohort, read_speakers(options.cohort_speakers, members.ids))
    check_cohort_size(len(cohort), options.top_n or None)
    return cohort
