"""What a report shows of one list: its charts, its conditions, its worst trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.bootstrap import MetricOptions
from simple_spk.evaluation.list_summary import NOTES
from simple_spk.evaluation.metrics import bayes_threshold, prior_name
from simple_spk.evaluation.score_files import ScoredTrials
from simple_spk.report.breakdown import Breakdown, Condition, ConditionColumn
from simple_spk.report.charts import (
    Chart,
    Curve,
    calibration_chart,
    curve_of,
    histogram_chart,
)

WORST_TRIALS = 20


@dataclass(frozen=True, eq=False)
class ReportedList:
    """A scored list with labels, and its metrics: the page computes none itself.

    ``summary`` is that of ``metrics.summary``, perhaps with more of ``list_summary.summarize``;
    ``intervals`` are those of ``bootstrap.intervals``.
    """

    scored: ScoredTrials
    summary: Mapping[str, Any]
    intervals: Mapping[str, Any] | None = None
    breakdown: Breakdown | None = None


class Section(NamedTuple):
    """Everything that the page shows of one list."""

    reported: ReportedList
    curve: Curve
    histogram: Chart
    calibration: Chart
    unreached: list[str]  # actual costs with a threshold that no score reaches, or all exceed
    notes: list[str]
    worst: Mapping[str, list[tuple[float, str, str]]]  # score, enrollment, test; by what they are


def list_section(number: int, reported: ReportedList, costs: MetricOptions) -> Section:
    """The section of one list, which must have labels."""
    scored = reported.scored
    scores, is_target = scored.scores, scored.trials.is_target
    curve = curve_of(scored, costs)
    assert is_target is not None  # else curve_of raises
    bayes = [
        (
            bayes_threshold(prior, costs.miss_cost, costs.false_alarm_cost),
            f"actDCF({prior_name(prior)})",
        )
        for prior in costs.priors
    ]
    return Section(
        reported,
        curve,
        histogram_chart(f"scores-{number}", scores, is_target, curve.points),
        calibration_chart(f"calibration-{number}", scores, is_target, bayes),
        [name for score, name in bayes if not scores.min() <= score <= scores.max()],
        [note for note in map(reported.summary.get, NOTES) if note],
        {
            "Targets with the lowest scores": _lowest(scored, is_target, 1),
            "Non-targets with the highest scores": _lowest(scored, ~is_target, -1),
        },
    )


def strip(condition: Condition, column: ConditionColumn, whole_eer: float) -> list[float]:
    """Interval start, rate, interval end and whole list's rate, in percent of a column's scale."""
    ranges = [_eer_range(one) for one in column.conditions]
    scale = 1.1 * max(whole_eer, *(high for _, high in ranges))
    if condition.eer is None or scale == 0.0:
        return []
    low, high = _eer_range(condition)
    return [100 * max(rate, 0.0) / scale for rate in (low, condition.eer, high, whole_eer)]


def _eer_range(condition: Condition) -> Sequence[float]:
    """The interval of a condition's equal error rate, or that rate twice; 0 if it has none."""
    return (condition.intervals or {}).get("eer") or (condition.eer or 0.0,) * 2


def _lowest(
    scored: ScoredTrials, members: NDArray[np.bool_], sign: int
) -> list[tuple[float, str, str]]:
    """Of the trials of one class, the WORST_TRIALS of lowest sign * score; ties by list order."""
    trials, indexes = scored.trials, np.flatnonzero(members)
    keys = sign * scored.scores[indexes]
    few = min(WORST_TRIALS, len(keys))
    candidates = np.flatnonzero(keys <= np.partition(keys, few - 1)[few - 1])
    worst = indexes[candidates[np.argsort(keys[candidates], kind="stable")][:few]]
    return [
        (float(scored.scores[i]), trials.ids[trials.enroll[i]], trials.ids[trials.test[i]])
        for i in worst.tolist()
    ]
