"""All figures of a scored list as plain data: error rates, intervals, and what they are of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simple_spk import __version__
from simple_spk.bootstrap import intervals
from simple_spk.known_lists import wrong_list_hint
from simple_spk.metrics import error_rates_at, summary
from simple_spk.scored_trials import ScoredTrials
from simple_spk.trials import speakers_of_recordings


@dataclass(frozen=True)
class FigureSettings:
    """What costs are of, and how intervals are drawn (none without replicates)."""

    priors: Sequence[float] = (0.01, 0.05)
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0
    replicates: int = 0
    seed: int = 0


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
        "list": scored.name,
        "list_file": None if trials.path is None else str(trials.path),
        "list_sha256": trials.sha256,
        "hint": wrong_list_hint(trials),
        "model": scored.model,
        "similarity": scored.similarity,
        "software": f"simple_spk {__version__}",
        "trials": len(trials),
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
        "target_share": found["targets"] / found["trials"],
        **costs,
        **found,
        "at_eer_threshold": _rates(scored, trials.is_target, found["eer_threshold"]),
        "own_threshold": _rates(scored, trials.is_target, scored.threshold),
        "intervals": None,
        "intervals_missing": None,
    }
    if settings.replicates:
        # A list can have error rates without telling its speakers apart; say so, and go on.
        try:
            if speakers is None:
                speakers = speakers_of_recordings(trials)
            result["intervals"] = intervals(
                scored.scores,
                trials.is_target,
                speakers[trials.enrol],
                speakers[trials.test],
                settings.replicates,
                seed=settings.seed,
                progress=progress,
                **costs,
            )
        except ValueError as error:
            result["intervals_missing"] = str(error)
    return result


def _rates(
    scored: ScoredTrials, is_target: NDArray[np.bool_], threshold: float | None
) -> dict[str, float] | None:
    """The rates of accepting from a threshold upwards; None without one."""
    if threshold is None:
        return None
    miss, false_alarm = error_rates_at(scored.scores, is_target, threshold)
    return {"threshold": threshold, "miss_rate": miss, "false_alarm_rate": false_alarm}
