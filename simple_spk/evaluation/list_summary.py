"""The summary of a scored trial list as plain data: its identity, metrics and intervals."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk import __version__
from simple_spk.data.trials import Trials, speakers_by_name, speakers_of_recordings
from simple_spk.data.voxceleb_lists import fingerprint, wrong_list_hint
from simple_spk.evaluation.bootstrap import MetricOptions, intervals
from simple_spk.evaluation.error_rates import error_rates_at
from simple_spk.evaluation.metrics import summary
from simple_spk.evaluation.score_files import ScoredTrials

SPEAKERS_GUESSED = (
    "the names do not tell the speakers, so intervals take recordings that target trials connect "
    "as one speaker; if these do not connect all recordings of a speaker, intervals are too "
    "narrow: give the speakers in a file (--speakers)"
)
NOTES = ("hint", "intervals_missing", "intervals_note")  # keys whose values are messages


class EvaluatedTrials(NamedTuple):
    """A list with its scores and its metrics."""

    scored: ScoredTrials
    speakers: NDArray[np.int64] | None  # (ids,), of its recordings, if a file tells them
    summary: dict[str, Any]  # of ``summarize``, ready for JSON


def check_classes(trials: Trials) -> None:
    """Raise if a labeled list has no target or no non-target trial."""
    if trials.is_target is None:
        return
    targets = int(np.count_nonzero(trials.is_target))
    if not 0 < targets < len(trials):
        raise ValueError(
            f"{trials.path}: found {targets} targets and {len(trials) - targets} non-targets; "
            "error rates need at least one of each: complete the list, or drop its labels"
        )


def summarize(
    scored: ScoredTrials,
    options: MetricOptions,
    speakers: NDArray[np.int64] | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The summary of a list, ready for JSON; without labels, only its identity and size.

    ``speakers`` (ids,) are resampled for the intervals; by default the list tells them.
    """
    trials = scored.trials
    identity = list_identity(trials, scored.name) | {
        "hint": wrong_list_hint(trials),
        "model": scored.model,
        "similarity": scored.similarity,
    }
    if trials.is_target is None:
        return identity
    try:
        metrics = summary(scored.scores, trials.is_target, **options.costs)
    except ValueError as error:
        raise ValueError(f"{scored.name}: {error}") from error
    result = {
        **identity,
        **options.costs,
        **metrics,
        "at_eer_threshold": _rates(scored, trials.is_target, metrics["eer_threshold"]),
        "own_threshold": _rates(scored, trials.is_target, scored.threshold),
        **dict.fromkeys(("intervals", "intervals_missing", "intervals_note")),
    }
    if options.replicates:
        # Error rates are valid without speakers; a list without them gets a note, not an error.
        try:
            if speakers is None:
                speakers = speakers_by_name(trials)
            if speakers is None:
                result["intervals_note"] = SPEAKERS_GUESSED
                speakers = speakers_of_recordings(trials)
            sides = (speakers[trials.enroll], speakers[trials.test])
            result["intervals"] = intervals(
                scored.scores, trials.is_target, *sides, options, progress
            )
        except ValueError as error:
            result["intervals_missing"] = str(error)
    return result


def list_identity(trials: Trials, name: str) -> dict[str, Any]:
    """The name, hashes and size of a list, and the software version, as plain data.

    Files of one list differ in ``list_sha256`` by format and order, and score files with their own
    labels have none; ``list_fingerprint`` is the same for all.
    """
    number, labels = fingerprint(trials), trials.is_target
    return {
        "list": name,
        "list_file": None if trials.path is None else str(trials.path),
        "list_sha256": trials.sha256,
        "list_fingerprint": None if number is None else f"{number:016x}",
        "trials": len(trials),
        "target_share": None if labels is None else np.count_nonzero(labels) / len(labels),
        "software": f"simple_spk {__version__}",
    }


def _rates(
    scored: ScoredTrials, is_target: NDArray[np.bool_], threshold: float | None
) -> dict[str, float] | None:
    """The error rates at a threshold; None without one."""
    if threshold is None:
        return None
    miss, false_alarm = error_rates_at(scored.scores, is_target, threshold)
    return {"threshold": threshold, "miss_rate": miss, "false_alarm_rate": false_alarm}
