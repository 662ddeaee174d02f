"""Measures of a verification system, computed exactly from its error rates.

Where there are a hundred million trials, ``around_equal_rates``, ``around_minimum_cost`` and
``at_target_scores`` are the short parts of the curve that give the same readings to the bit.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simple_spk.evaluation.error_rates import ErrorRates, RankedTrials, Rates, sort_trials

PRIORS = (0.01, 0.05)  # of targets: those whose detection costs the field quotes


class EqualErrorRate(NamedTuple):
    """The rate (a fraction, not percent) where misses equal false alarms, and its threshold."""

    rate: float
    threshold: float


class DetectionCost(NamedTuple):
    """A normalized detection cost, and the threshold it was paid at (+inf rejects every trial)."""

    cost: float
    threshold: float


def around_equal_rates(trials: RankedTrials) -> ErrorRates:
    """The part of the curve where the rates cross: it has the equal error rate of the whole.

    Rates at the square root of n thresholds tell between which two of them the others matter.
    """
    coarse = _coarse_curve(trials)
    after = int(np.argmax(coarse.miss_rates >= coarse.false_alarm_rates))
    lowest, highest = coarse.thresholds[after - 1 : after + 1]
    return trials.rates_at(trials.thresholds_between(lowest, highest))


def around_minimum_cost(
    trials: RankedTrials, target_prior: float, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
) -> ErrorRates:
    """The part of the curve that has the lowest detection cost of the whole, at the same threshold.

    Between two thresholds no cost is below that of the misses at the lower one and the false alarms
    at the higher one; intervals where even that is above a cost already found are left out.
    """
    costs_of = (target_prior, miss_cost, false_alarm_cost)
    coarse = _coarse_curve(trials)
    best = np.min(detection_cost(coarse, *costs_of))
    ideal = ErrorRates(coarse.thresholds[:-1], coarse.miss_rates[:-1], coarse.false_alarm_rates[1:])
    possible = np.flatnonzero(detection_cost(ideal, *costs_of) <= best)
    lowest, highest = coarse.thresholds[[possible[0], possible[-1] + 1]]
    return trials.rates_at(trials.thresholds_between(lowest, highest))


def at_target_scores(trials: RankedTrials) -> ErrorRates:
    """The part of the curve at the targets' scores and both ends: it has the hull of the whole.

    From a threshold that no target has, the next higher one misses no more and accepts less.
    """
    scores = trials.targets.scores
    ends = np.array([trials.nontargets.scores[0], np.inf], dtype=scores.dtype)
    is_new = np.append(True, scores[1:] != scores[:-1])
    first = ends[: int(ends[0] < scores[0])]
    return trials.rates_at(np.concatenate([first, scores[is_new], ends[1:]]))


def equal_error_rate(rates: ErrorRates) -> EqualErrorRate:
    """The rate where misses equal false alarms, and the threshold nearest to that balance.

    Often no threshold gives equal rates. The convention here: join neighboring operating points
    (false alarm, miss) by straight lines, and read the rate where that line has both equal. The
    threshold is that of the operating point, of the two around the crossing, whose rates differ
    less (the lower one if they differ alike): always one of the scores.

    >>> equal_error_rate(around_equal_rates(sort_trials([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1]))).rate
    0.25
    >>> equal_error_rate(around_equal_rates(sort_trials([0.7, 0.7, 0.7], [0, 1, 1])))
    EqualErrorRate(rate=0.5, threshold=0.7)
    """
    index, fraction, rate = _crossing(rates.miss_rates, rates.false_alarm_rates)
    nearest = index if fraction > 0.5 else index - 1
    return EqualErrorRate(rate, float(rates.thresholds[nearest]))


def convex_hull_equal_error_rate(rates: ErrorRates) -> float:
    """The equal error rate on the convex hull of the curve: the worst Bayes error over all priors.

    The hull is what the scores reach after their best rising calibration, so the result is never
    above ``equal_error_rate``, nor above 0.5.
    """
    return _crossing(*_convex_hull(rates))[2]


def detection_cost(
    rates: ErrorRates, target_prior: float, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
) -> Rates:
    """Normalized detection cost (m,) at every threshold of ``rates``.

    The expected cost ``miss_cost * prior * miss + false_alarm_cost * (1 - prior) * false_alarm``
    over that of the better of the two systems that never listen, reject-all and accept-all.
    """
    miss_factor, false_alarm_factor = _cost_factors(target_prior, miss_cost, false_alarm_cost)
    if miss_factor == 1.0:  # one of the factors is, which saves a second array as large
        return rates.false_alarm_rates * false_alarm_factor + rates.miss_rates
    return rates.miss_rates * miss_factor + rates.false_alarm_rates


def minimum_detection_cost(
    rates: ErrorRates,
    target_prior: float = 0.01,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
) -> DetectionCost:
    """The lowest normalized detection cost of all thresholds, at most 1, and the lowest of those.

    >>> trials = sort_trials([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1])
    >>> minimum_detection_cost(around_minimum_cost(trials, 0.01), 0.01)
    DetectionCost(cost=0.5, threshold=0.9)
    """
    costs = detection_cost(rates, target_prior, miss_cost, false_alarm_cost)
    best = int(np.argmin(costs))
    return DetectionCost(float(costs[best]), float(rates.thresholds[best]))


def bayes_threshold(
    target_prior: float, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
) -> float:
    """The natural-log likelihood ratio from which accepting costs less than rejecting."""
    miss_factor, false_alarm_factor = _cost_factors(target_prior, miss_cost, false_alarm_cost)
    return math.log(false_alarm_factor / miss_factor)


def actual_detection_cost(
    trials: RankedTrials, target_prior: float, miss_cost: float = 1.0, false_alarm_cost: float = 1.0
) -> float:
    """The normalized detection cost at the Bayes threshold, where scores are read as ratios."""
    costs = (target_prior, miss_cost, false_alarm_cost)
    return float(detection_cost(trials.rates_at(np.array([bayes_threshold(*costs)])), *costs)[0])


def log_likelihood_ratio_cost(trials: RankedTrials) -> float:
    """Cllr in bits of scores that are natural-log likelihood ratios: 0 is perfect, 1 is ignorance.

    >>> log_likelihood_ratio_cost(sort_trials([0.0, 0.0, 0.0], [0, 1, 1]))
    1.0
    """
    bits = 0.0  # the mean over both classes of the mean surprise in each
    for ranks, sign in zip(trials, (-1.0, 1.0), strict=True):
        surprises = np.divide(ranks.scores, sign * math.log(2.0), dtype=np.float64)
        bits += ranks.sum(np.logaddexp2(0.0, surprises, out=surprises)) / ranks.mass
    return bits / 2


def minimum_log_likelihood_ratio_cost(rates: ErrorRates) -> float:
    """Cllr in bits that remains after the best rising calibration of the scores; at most 1.

    That calibration (pool adjacent violators) gives all trials on one edge of the convex hull the
    same likelihood ratio, the slope of the edge; so the hull is all it takes.
    """
    miss_rates, false_alarm_rates = _convex_hull(rates)
    targets, nontargets = np.diff(miss_rates), -np.diff(false_alarm_rates)
    bits = 0.0
    for share in (targets, nontargets):
        some = share > 0  # 0 log 0 is 0: a class absent from an edge pays nothing there
        bits += float(share[some] @ np.log2((targets + nontargets)[some] / share[some]))
    return bits / 2


def true_positive_rate_at(rates: ErrorRates, false_positive_rate: float) -> float:
    """The largest share of targets that a threshold of at most this false positive rate accepts.

    >>> true_positive_rate_at(at_target_scores(sort_trials([0.1, 0.4, 0.9], [0, 1, 1])), 0.1)
    1.0
    """
    if not 0.0 <= false_positive_rate <= 1.0:
        raise ValueError(f"false_positive_rate must lie in [0, 1], not {false_positive_rate}")
    first = np.argmax(rates.false_alarm_rates <= false_positive_rate)
    return 1.0 - float(rates.miss_rates[first])


def area_under_curve(trials: RankedTrials) -> float:
    """The probability that a target scores above a non-target, where a tie counts half."""
    targets, nontargets = trials
    doubled = nontargets.mass_below(targets.scores)
    doubled = doubled + nontargets.mass_below(targets.scores, "right")
    return targets.sum(doubled) / targets.mass / nontargets.mass / 2


def summary(
    scores: ArrayLike,
    is_target: ArrayLike,
    weights: ArrayLike | None = None,
    priors: Sequence[float] = PRIORS,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
) -> dict[str, Any]:
    """The usual numbers as plain floats and integers, ready for JSON; EERs are in percent.

    ``min_dcf`` and ``act_dcf`` are keyed by prior ("0.01"). ``act_dcf`` and ``cllr`` read the
    scores as natural-log likelihood ratios, which they are only after calibration.

    >>> summary([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1])["eer"]
    25.0
    """
    trials = sort_trials(scores, is_target, weights)
    equal = equal_error_rate(around_equal_rates(trials))
    costs_of = {prior_name(prior): (prior, miss_cost, false_alarm_cost) for prior in priors}
    targets_part = at_target_scores(trials)
    return {
        "eer": 100.0 * equal.rate,
        "eer_threshold": equal.threshold,
        "eer_convex_hull": 100.0 * convex_hull_equal_error_rate(targets_part),
        "min_dcf": {
            name: minimum_detection_cost(around_minimum_cost(trials, *costs), *costs).cost
            for name, costs in costs_of.items()
        },
        "act_dcf": {
            name: actual_detection_cost(trials, *costs) for name, costs in costs_of.items()
        },
        "cllr": log_likelihood_ratio_cost(trials),
        "min_cllr": minimum_log_likelihood_ratio_cost(targets_part),
        "auc": area_under_curve(trials),
        "trials": int(np.size(is_target)),
        "targets": int(np.count_nonzero(is_target)),
    }


def prior_name(prior: float) -> str:
    """A prior as it is written in the keys of ``summary``: 0.01 is "0.01"; no two share one."""
    return repr(float(prior))


def _coarse_curve(trials: RankedTrials) -> ErrorRates:
    """The curve at some multiple of sqrt(n) thresholds, evenly spread over each class."""
    parts = [scores[:: math.isqrt(len(scores))] for scores, _ in trials]
    ends = np.array([np.inf], dtype=parts[0].dtype)
    return trials.rates_at(np.unique(np.concatenate([*parts, ends])))


def _cost_factors(
    target_prior: float, miss_cost: float, false_alarm_cost: float
) -> tuple[float, float]:
    """The normalized costs of rejecting all and of accepting all; the smaller one is exactly 1."""
    if not 0.0 < target_prior < 1.0:
        raise ValueError(f"target_prior must lie strictly between 0 and 1, not {target_prior}")
    for name, cost in (("miss_cost", miss_cost), ("false_alarm_cost", false_alarm_cost)):
        if not 0.0 < cost < math.inf:
            raise ValueError(f"{name} must be positive and finite, not {cost}")
    reject_all, accept_all = miss_cost * target_prior, false_alarm_cost * (1.0 - target_prior)
    cheaper = min(reject_all, accept_all)
    return reject_all / cheaper, accept_all / cheaper


def _crossing(miss_rates: Rates, false_alarm_rates: Rates) -> tuple[int, float, float]:
    """Where the polyline has equal rates: the point after, how far it is to it, and the rate."""
    index = int(np.argmax(miss_rates >= false_alarm_rates))  # never 0: that point accepts all
    before = float(false_alarm_rates[index - 1] - miss_rates[index - 1])
    after = float(miss_rates[index] - false_alarm_rates[index])
    fraction = before / (before + after)
    rate = (1.0 - fraction) * miss_rates[index - 1] + fraction * miss_rates[index]
    return index, fraction, float(rate)


def _convex_hull(rates: ErrorRates) -> tuple[Rates, Rates]:
    """Miss and false alarm rates (v,) at the corners of the lower convex hull, accept-all first.

    A point on or above the line between its neighbors is not a corner. Dropping all such points at
    once, again and again, clears most of the curve in a few passes. A curve that gives way one
    point per pass would make that quadratic, so a stack finishes what no longer shrinks fast.
    """
    miss, false_alarm = rates.miss_rates, rates.false_alarm_rates
    # Trials of weight zero repeat a point, and of two equal neighbors each would drop the other.
    keep = np.append(True, (miss[1:] != miss[:-1]) | (false_alarm[1:] != false_alarm[:-1]))
    size = math.inf
    while np.count_nonzero(keep) < 0.9 * size:
        miss, false_alarm = miss[keep], false_alarm[keep]
        size = len(miss)
        up, left = np.diff(miss), -np.diff(false_alarm)
        keep = np.ones(len(miss), dtype=bool)
        keep[1:-1] = up[:-1] * left[1:] < up[1:] * left[:-1]
    corners: list[tuple[float, float]] = []
    for y, x in zip(miss[keep].tolist(), false_alarm[keep].tolist(), strict=True):
        while len(corners) > 1:
            (y0, x0), (y1, x1) = corners[-2:]
            if (y1 - y0) * (x1 - x) < (y - y1) * (x0 - x1):
                break
            corners.pop()
        corners.append((y, x))
    miss, false_alarm = np.array(corners).T
    return miss, false_alarm
