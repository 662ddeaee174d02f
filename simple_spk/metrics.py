"""Error measures of a verification system, exact, from its scores and the true labels.

Everything rests on ``error_rates``: one sweep of the threshold over all distinct scores. The other
measures are short readings of that curve, so they never disagree on what a tie or a weight means.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rates = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ErrorRates:
    """Both error rates at every threshold that matters: three arrays (m,), lowest threshold first.

    A trial is accepted when ``score >= threshold``. The thresholds are the distinct scores, rising,
    and then +inf: the first accepts every trial (miss 0, false alarm 1), the last rejects every
    trial (miss 1, false alarm 0), and no threshold in between gives other rates. Along the arrays
    misses never fall and false alarms never rise. Equal scores are one step, never an order.
    """

    thresholds: NDArray[np.floating[Any]]  # in the precision of the scores
    miss_rates: Rates  # share of the targets that score below the threshold
    false_alarm_rates: Rates  # share of the non-targets that score at or above it


class EqualErrorRate(NamedTuple):
    """The rate (a fraction, not percent) where misses equal false alarms, and its threshold."""

    rate: float
    threshold: float


class DetectionCost(NamedTuple):
    """A normalised detection cost, and the threshold it was paid at (+inf rejects every trial)."""

    cost: float
    threshold: float


def error_rates(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None = None
) -> ErrorRates:
    """Error rates at each distinct value of ``scores`` (n,), and at +inf.

    ``is_target`` (n,) holds booleans or 0 and 1; a trial of weight w counts as w equal trials.

    >>> rates = error_rates([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    >>> rates.thresholds.tolist()
    [0.1, 0.4, 0.9, inf]
    >>> rates.miss_rates.tolist(), rates.false_alarm_rates.tolist()
    ([0.0, 0.0, 0.5, 1.0], [1.0, 0.5, 0.0, 0.0])
    """
    values, labels, masses = _checked(scores, is_target, weights)
    # Sorting bare values, all and per class, takes a fraction of the time and memory of an argsort.
    ordered = np.append(np.sort(values), values.dtype.type(np.inf))
    thresholds = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    del ordered  # among many millions of trials, memory is what runs out first
    misses, targets = _mass_below(thresholds, values, labels, masses)
    miss_rates = misses / targets
    del misses
    rejections, nontargets = _mass_below(thresholds, values, ~labels, masses)
    false_alarms = np.subtract(nontargets, rejections, out=rejections)
    return ErrorRates(thresholds, miss_rates, false_alarms / nontargets)


def equal_error_rate(rates: ErrorRates) -> EqualErrorRate:
    """The rate where misses equal false alarms, and the threshold nearest to that balance.

    Often no threshold gives equal rates. The convention here: join neighbouring operating points
    (false alarm, miss) by straight lines, and read the rate where that line has both equal. Scores
    that are all equal thus give 0.5, which is what they are worth. The threshold is that of the
    operating point, of the two around the crossing, whose rates differ less (the lower one if they
    differ alike): always one of the scores, so it follows them under any rising transform.

    >>> equal_error_rate(error_rates([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1])).rate
    0.25
    >>> equal_error_rate(error_rates([0.7, 0.7, 0.7], [0, 1, 1]))
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
    """Normalised detection cost (m,) at every threshold of ``rates``.

    The expected cost ``miss_cost * prior * miss + false_alarm_cost * (1 - prior) * false_alarm``
    over that of the better of the two systems that never listen, reject-all and accept-all.
    """
    miss_factor, false_alarm_factor = _cost_factors(target_prior, miss_cost, false_alarm_cost)
    if miss_factor == 1.0:  # one of the factors is, which saves a second array as large
        costs = rates.false_alarm_rates * false_alarm_factor
        costs += rates.miss_rates
    else:
        costs = rates.miss_rates * miss_factor
        costs += rates.false_alarm_rates
    return costs


def minimum_detection_cost(
    rates: ErrorRates,
    target_prior: float = 0.01,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
) -> DetectionCost:
    """The lowest normalised detection cost of all thresholds, at most 1, and the lowest of those.

    >>> rates = error_rates([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1])
    >>> minimum_detection_cost(rates, target_prior=0.01)
    DetectionCost(cost=0.5, threshold=0.9)
    """
    costs = detection_cost(rates, target_prior, miss_cost, false_alarm_cost)
    best = int(np.argmin(costs))
    return DetectionCost(float(costs[best]), float(rates.thresholds[best]))


def actual_detection_cost(
    scores: ArrayLike,
    is_target: ArrayLike,
    target_prior: float,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
    weights: ArrayLike | None = None,
) -> DetectionCost:
    """The normalised detection cost of ``scores`` (n,) at the Bayes threshold, and that threshold.

    The scores are read as natural-log likelihood ratios, target over non-target: accepting is the
    cheaper bet from ``log(false_alarm_cost * (1 - prior) / (miss_cost * prior))`` upwards.
    """
    miss_factor, false_alarm_factor = _cost_factors(target_prior, miss_cost, false_alarm_cost)
    threshold = math.log(false_alarm_factor / miss_factor)
    rates = error_rates(scores, is_target, weights)
    costs = detection_cost(rates, target_prior, miss_cost, false_alarm_cost)
    # As float64: a bare Python float would be rounded to the precision of the scores.
    at = np.searchsorted(rates.thresholds, np.float64(threshold))
    return DetectionCost(float(costs[at]), threshold)


def log_likelihood_ratio_cost(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Cllr in bits of ``scores`` (n,), natural-log likelihood ratios: 0 is perfect, 1 is ignorance.

    >>> log_likelihood_ratio_cost([0.0, 0.0, 0.0], [0, 1, 1])
    1.0
    """
    values, labels, masses = _checked(scores, is_target, weights)
    bits = np.logaddexp2(0.0, np.where(labels, -1.0, 1.0) * values / math.log(2.0))
    per_class = [
        np.average(bits[members], weights=None if masses is None else masses[members])
        for members in (labels, ~labels)
    ]
    return float(sum(per_class) / 2)


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

    Not interpolated: some threshold does reach it.

    >>> true_positive_rate_at(error_rates([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1]), 0.1)
    0.5
    """
    if not 0.0 <= false_positive_rate <= 1.0:
        raise ValueError(f"false_positive_rate must lie in [0, 1], not {false_positive_rate}")
    first = np.argmax(rates.false_alarm_rates <= false_positive_rate)
    return 1.0 - float(rates.miss_rates[first])


def area_under_curve(rates: ErrorRates) -> float:
    """The probability that a target scores above a non-target, where a tie counts half."""
    steps = rates.false_alarm_rates[:-1] - rates.false_alarm_rates[1:]
    return 1.0 - float(steps @ (rates.miss_rates[:-1] + rates.miss_rates[1:])) / 2


def summary(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None = None
) -> dict[str, Any]:
    """The usual numbers as plain floats and integers, ready for JSON; ``eer`` is in percent.

    >>> summary([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1])["eer"]
    25.0
    """
    rates = error_rates(scores, is_target, weights)
    equal = equal_error_rate(rates)
    costs = {str(prior): minimum_detection_cost(rates, prior).cost for prior in (0.01, 0.05)}
    return {
        "eer": 100.0 * equal.rate,
        "eer_threshold": equal.threshold,
        "min_dcf": costs["0.01"],
        "min_dcf_by_prior": costs,
        "trials": int(np.size(is_target)),
        "targets": int(np.count_nonzero(is_target)),
    }


def _checked(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None
) -> tuple[NDArray[np.floating[Any]], NDArray[np.bool_], Rates | None]:
    """Scores, labels and weights as arrays (n,), or a ValueError that says what is wrong."""
    values, labels = np.asarray(scores), np.asarray(is_target)
    masses = None if weights is None else np.asarray(weights, dtype=np.float64)
    for name, array in (("is_target", labels), ("weights", masses)):
        if array is not None and (values.ndim != 1 or array.shape != values.shape):
            raise ValueError(
                f"scores have shape {values.shape} and {name} {array.shape}; "
                "both must be one-dimensional and of the same length"
            )
    if len(values) == 0:
        raise ValueError("there are no scores; at least one target and one non-target are needed")
    if values.dtype.kind != "f":
        values = values.astype(np.float64)
    _require(np.isfinite(values), values, "scores must be finite")
    if labels.dtype != np.bool_:
        _require((labels == 0) | (labels == 1), labels, "is_target must hold booleans, or 0 and 1")
        labels = labels.astype(bool)
    counted = labels
    if masses is not None:
        _require(np.isfinite(masses) & (masses >= 0), masses, "weights must be finite and >= 0")
        counted = labels[masses > 0]
    targets = int(np.count_nonzero(counted))
    if not 0 < targets < len(counted):
        raise ValueError(
            f"found {targets} targets and {len(counted) - targets} non-targets (trials of weight 0 "
            "left out); at least one of each is needed"
        )
    return values, labels, masses


def _require(is_good: NDArray[np.bool_], values: NDArray[Any], rule: str) -> None:
    """Nothing if ``is_good`` (n,) holds throughout; else a ValueError with the first offender."""
    bad = len(is_good) - int(np.count_nonzero(is_good))
    if bad:
        first = int(np.argmin(is_good))
        raise ValueError(
            f"{rule}: {bad} of {len(values)} are not, the first at index {first}: {values[first]}"
        )


def _mass_below(
    thresholds: NDArray[Any], values: NDArray[Any], members: NDArray[np.bool_], masses: Rates | None
) -> tuple[NDArray[Any], Any]:
    """The mass (m,) of the members that score below each threshold (m,), and that of all members.

    Without weights it is an integer count, so that equal rates come out as equal floats.
    """
    values = values[members]
    if masses is None:
        values.sort()
        return np.searchsorted(values, thresholds), len(values)
    order = np.argsort(values)
    below = np.append(0.0, np.cumsum(masses[members][order]))
    return below[np.searchsorted(values[order], thresholds)], below[-1]


def _cost_factors(
    target_prior: float, miss_cost: float, false_alarm_cost: float
) -> tuple[float, float]:
    """The normalised costs of rejecting all and of accepting all; the smaller one is exactly 1."""
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

    A point on or above the line between its neighbours is no corner. Dropping all such points at
    once, again and again, clears most of the curve in a few passes. A curve that gives way one
    point per pass would make that quadratic, so a stack finishes what no longer shrinks fast.
    """
    miss, false_alarm = rates.miss_rates, rates.false_alarm_rates
    # Trials of weight zero repeat a point, and of two equal neighbours each would drop the other.
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
    hull = np.array(corners)
    return hull[:, 0], hull[:, 1]
