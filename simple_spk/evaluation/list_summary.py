"""All figures of a scored list as plain data: error rates, intervals, and what they are of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simple_spk import __version__
from simple_spk.data.trials import Trials, speakers_by_name, speakers_of_recordings
from simple_spk.data.voxceleb_lists import fingerprint, wrong_list_hint
from simple_spk.evaluation.bootstrap import check_draws, intervals
from simple_spk.evaluation.error_rates import error_rates_at
from simple_spk.evaluation.metrics import PRIORS, bayes_threshold, summary
from simple_spk.evaluation.score_files import ScoredTrials

SPEAKERS_GUESSED = (
    "names do not tell the speakers, so intervals take recordings that target trials join for one "
    "speaker; if these do not join all recordings of a speaker, intervals are too narrow: give the "
    "speakers in a file (--speakers)"
)
NOTES = ("hint", "intervals_missing", "intervals_note")  # keys of what to tell people in words


@dataclass(frozen=True)
class FigureSettings:
    """What costs are of, and how intervals are drawn (none without replicates)."""

    priors: Sequence[float] = PRIORS
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0
    replicates: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for prior in self.priors:
            bayes_threshold(prior, self.miss_cost, self.false_alarm_cost)  # raises if there is none
        if self.replicates:
            check_draws(self.replicates, seed=self.seed)


def figures_of(
    scored: ScoredTrials,
    settings: FigureSettings,
    speakers: NDArray[np.int64] | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The figures of a list, ready for JSON; without labels, only what it is and its size.

    ``speakers`` (ids,) are the speakers of its recordings, to draw for the intervals; without
    them, the list itself tells.
    """
    trials = scored.trials
    identity = {
        **identity_of(trials, scored.name),
        "hint": wrong_list_hint(trials),
        "model": scored.model,
        "similarity": scored.similarity,
    }
    if trials.is_target is None:
        return identity
    costs: dict[str, Any] = {
        "priors": tuple(settings.priors),
        "miss_cost": settings.miss_cost,
        "false_alarm_cost": settings.false_alarm_cost,
    }
    try:
        found = summary(scored.scores, trials.is_target, **costs)
    except ValueError as error:
        raise ValueError(f"{scored.name}: {error}") from error
    result = {
        **identity,
        **costs,
        **found,
        "at_eer_threshold": _rates(scored, trials.is_target, found["eer_threshold"]),
        "own_threshold": _rates(scored, trials.is_target, scored.threshold),
        "intervals": None,
        "intervals_missing": None,
        "intervals_note": None,
    }
    if settings.replicates:
        # A list can have error rates without telling its speakers apart; say so, and go on.
        try:
            if speakers is None:
                speakers = speakers_by_name(trials)
            if speakers is None:
                result["intervals_note"] = SPEAKERS_GUESSED
                speakers = speakers_of_recordings(trials)
            result["intervals"] = intervals(
                scored.scores,
                trials.is_target,
                speakers[trials.enroll],
                speakers[trials.test],
                settings.replicates,
                seed=settings.seed,
                progress=progress,
                **costs,
            )
        except ValueError as error:
            result["intervals_missing"] = str(error)
    return result


def identity_of(trials: Trials, name: str) -> dict[str, Any]:
    """Which list figures are of, and which software made them, as plain data.

    Files of one list differ in ``list_sha256`` by format and order, and score files that bring
    their own labels have none, but all have one ``list_fingerprint``.
    """
    number, targets = fingerprint(trials), trials.is_target
    share = None if targets is None else np.count_nonzero(targets) / len(targets)
    return {
        "list": name,
        "list_file": None if trials.path is None else str(trials.path),
        "list_sha256": trials.sha256,
        "list_fingerprint": None if number is None else f"{number:016x}",
        "trials": len(trials),
        "target_share": share,
        "software": f"simple_spk {__version__}",
    }


def _rates(
    scored: ScoredTrials, is_target: NDArray[np.bool_], threshold: float | None
) -> dict[str, float] | None:
    """The rates of accepting from a threshold upwards; None without one."""
    if threshold is None:
        return None
    miss, false_alarm = error_rates_at(scored.scores, is_target, threshold)
    return {"threshold": threshold, "miss_rate": miss, "false_alarm_rate": false_alarm}
