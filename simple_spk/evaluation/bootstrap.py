"""Confidence intervals of error rates by resampling speakers, not trials.

Trials of one speaker are correlated. Each replicate draws as many speakers as there are, with
replacement. A target trial of a speaker drawn m times weighs m, a non-target trial of speakers a
and b weighs m[a] m[b], as every copy of a meets every copy of b.

An interval is normal and corrected for bias, on the scale of square roots, where the error rates of
few speakers are less skewed. The minimum cost over all thresholds is optimistic, more so with few
trials, so plain percentiles of the replicates often miss the true value (``tools/bench.py
coverage`` measures it). Intervals are too wide where single trials matter more than speakers.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from simple_spk.distributed import usable_cores
from simple_spk.evaluation.error_rates import ErrorRates, error_rates
from simple_spk.evaluation.metrics import (
    PRIORS,
    bayes_threshold,
    detection_cost,
    equal_error_rate,
    minimum_detection_cost,
    minimum_log_likelihood_ratio_cost,
    prior_name,
)

REPLICATES = 1000  # draws of speakers for an interval
Values = NDArray[np.float64]
Counts = NDArray[np.int64]
Costs = tuple[float, float, float]  # target prior, cost of a miss, cost of a false alarm


@dataclass(frozen=True)
class MetricOptions:
    """Priors and costs of the detection costs, and the draws of the intervals (0: none)."""

    priors: Sequence[float] = PRIORS
    miss_cost: float = 1.0
    false_alarm_cost: float = 1.0
    replicates: int = 0
    seed: int = 0
    level: float = 0.95

    def __post_init__(self) -> None:
        for prior in self.priors:
            bayes_threshold(prior, self.miss_cost, self.false_alarm_cost)  # raises if impossible
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1, not {self.level}")
        if self.replicates and self.replicates < 2:
            raise ValueError(f"replicates must be at least 2, not {self.replicates}; 1000 is usual")
        if self.replicates and self.seed < 0:
            raise ValueError(f"seed must be at least 0, not {self.seed}")

    @property
    def costs(self) -> dict[str, Any]:
        """The priors and costs by the argument names of ``metrics.summary``."""
        names = ("priors", "miss_cost", "false_alarm_cost")
        return {name: getattr(self, name) for name in names}


USUAL = MetricOptions(replicates=REPLICATES)


class _Class:
    """The trials of one class by rising score; those of targets have one row of speakers."""

    def __init__(
        self,
        scores: NDArray[np.floating[Any]],  # (k,)
        speakers: NDArray[np.int32],  # (1 or 2, k)
        thresholds: NDArray[np.floating[Any]],  # (m,)
        bayes_thresholds: Values,  # (p,)
    ) -> None:
        order = np.argsort(scores, kind="stable")
        scores = scores[order]
        self.speakers = np.take(speakers, order, axis=1).astype(np.intp)  # else at every draw
        sign = 1.0 if len(speakers) == 2 else -1.0
        # What a trial adds to Cllr (k,), and how many trials score below each threshold.
        self.bits = np.logaddexp(0.0, sign * scores.astype(np.float64)) / np.log(2.0)
        self.ranks = np.searchsorted(scores, thresholds)
        self.bayes_ranks = np.searchsorted(scores, bayes_thresholds)

    def replicate(self, multiplicities: Counts) -> tuple[Counts, float] | None:
        """How many copies lie below each rank (k + 1,), and the mean bits; None without copies.

        Integers: numpy's running sum of floats takes seven times as long.
        """
        weights = np.take(multiplicities, self.speakers[0])
        for others in self.speakers[1:]:
            weights *= np.take(multiplicities, others)
        below = np.zeros(len(weights) + 1, dtype=np.int64)
        np.cumsum(weights, out=below[1:])
        if below[-1] == 0:
            return None
        return below, float(weights.astype(np.float64) @ self.bits) / below[-1]


class _Resampled:
    """Scores of a list, sorted once, whose measures can be had for any draw of speakers."""

    def __init__(
        self,
        scores: NDArray[np.floating[Any]],
        is_target: NDArray[np.bool_],
        speakers: NDArray[np.int32],  # (2, n)
        costs: Sequence[Costs],
    ) -> None:
        rates = error_rates(scores, is_target)
        # Amid a stretch where only one class moves, no weights of these trials bend the curve.
        is_amid = np.zeros(len(rates.thresholds), dtype=bool)
        for rate in (rates.miss_rates, rates.false_alarm_rates):
            is_amid[1:-1] |= (rate[:-2] == rate[1:-1]) & (rate[1:-1] == rate[2:])
        self.thresholds = rates.thresholds[~is_amid]
        self.costs = costs
        # Least costs and hulls are at corners, past which a target is missed and before which a
        # non-target is rejected, or at the ends: about half of the thresholds.
        misses_more = np.diff(rates.miss_rates[~is_amid], append=np.inf) > 0
        accepts_less = np.diff(rates.false_alarm_rates[~is_amid], prepend=np.inf) < 0
        misses_more[0] = accepts_less[-1] = True
        is_corner = misses_more & accepts_less
        at = (self.thresholds, np.array([bayes_threshold(*one) for one in costs]))
        self.targets = _Class(scores[is_target], speakers[:1, is_target], *at)
        self.nontargets = _Class(scores[~is_target], speakers[:, ~is_target], *at)
        self.corner_ranks = [one.ranks[is_corner] for one in (self.targets, self.nontargets)]

    def measures(self, multiplicities: Counts) -> Values:
        """EER, Cllr, its minimum, minimum and actual costs (3 + 2p,); NaN if a class is gone."""
        targets = self.targets.replicate(multiplicities)
        nontargets = self.nontargets.replicate(multiplicities)
        if targets is None or nontargets is None:
            return np.full(3 + 2 * len(self.costs), np.nan)
        (below, bits), (others_below, other_bits) = targets, nontargets

        def at(ranks: Counts, other_ranks: Counts) -> ErrorRates:
            rejected = np.take(others_below, other_ranks) / others_below[-1]
            misses = np.take(below, ranks) / below[-1]
            return ErrorRates(np.empty(len(misses)), misses, 1.0 - rejected)

        def around(threshold: int) -> ErrorRates:
            two = slice(threshold - 1, threshold + 1)
            return at(self.targets.ranks[two], self.nontargets.ranks[two])

        def has_crossed(threshold: int) -> bool:
            rates = around(threshold)
            return bool(rates.miss_rates[-1] >= rates.false_alarm_rates[-1])

        after = bisect_left(range(len(self.thresholds)), True, lo=1, key=has_crossed)
        equal = 100.0 * equal_error_rate(around(after)).rate
        rates = at(*self.corner_ranks)
        minimal = [minimum_detection_cost(rates, *costs).cost for costs in self.costs]
        at_bayes = at(self.targets.bayes_ranks, self.nontargets.bayes_ranks)
        actual = [detection_cost(at_bayes, *c)[i] for i, c in enumerate(self.costs)]
        least_cllr = minimum_log_likelihood_ratio_cost(rates)
        return np.array([equal, (bits + other_bits) / 2, least_cllr, *minimal, *actual])


def _by_name(values: Sequence[Any], priors: Sequence[float]) -> dict[str, Any]:
    """Values in the order of ``_Resampled.measures``, under the keys of ``metrics.summary``."""
    names = [prior_name(prior) for prior in priors]
    minimal, actual = values[3 : 3 + len(names)], values[3 + len(names) :]
    return {
        **dict(zip(("eer", "cllr", "min_cllr"), values, strict=False)),
        "min_dcf": dict(zip(names, minimal, strict=True)),
        "act_dcf": dict(zip(names, actual, strict=True)),
    }


def intervals(
    scores: ArrayLike,
    is_target: ArrayLike,
    enroll_speaker: ArrayLike,
    test_speaker: ArrayLike,
    options: MetricOptions = USUAL,
    progress: bool = False,
) -> dict[str, Any]:
    """Confidence intervals [low, high] of the measures of ``metrics.summary``, under its keys.

    ``scores``, ``is_target`` and the integers that name each trial's speakers are (n,). Beside the
    measures the result holds ``level``, ``seed``, ``speakers``, ``replicates`` and
    ``unusable_replicates``, in which a class had no trial left, so that they do not count.
    """
    sides = (enroll_speaker, test_speaker)
    estimates, drawn, facts = _draw([scores], is_target, sides, options, progress)
    centers, _, reach = _normal(np.sqrt(estimates[0]), np.sqrt(drawn[:, 0]), options.level)
    ends = np.maximum(0.0, [centers - reach, centers + reach]) ** 2
    # A minimum over all thresholds or calibrations is at most 1, the cost without information.
    some = slice(2, 3 + len(options.priors))
    ends[:, some] = np.minimum(ends[:, some], 1.0)
    return _by_name(ends.T.tolist(), options.priors) | facts


def compare(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    is_target: ArrayLike,
    enroll_speaker: ArrayLike,
    test_speaker: ArrayLike,
    options: MetricOptions = USUAL,
    progress: bool = False,
) -> dict[str, Any]:
    """Two systems on one list: what b has more than a, measured on the same draws of speakers.

    Under the keys of ``metrics.summary`` stand ``a``, ``b``, ``difference`` (b - a), the normal
    ``interval`` of the difference, and ``p_value``, two-sided: how likely so large a one would be
    if there were none (1 for systems that agree in every draw).
    """
    both, sides = [scores_a, scores_b], (enroll_speaker, test_speaker)
    (of_a, of_b), drawn, facts = _draw(both, is_target, sides, options, progress)
    found = _normal(of_b - of_a, drawn[:, 1] - drawn[:, 0], options.level)
    compared = [
        {
            "a": a,
            "b": b,
            "difference": b - a,
            "interval": [center - reach, center + reach],
            "p_value": math.erfc(abs(center) / deviation / math.sqrt(2)) if deviation else 1.0,
        }
        for a, b, center, deviation, reach in np.stack([of_a, of_b, *found], 1).tolist()
    ]
    return _by_name(compared, options.priors) | facts


def _draw(
    systems: Sequence[ArrayLike],
    is_target: ArrayLike,
    sides: tuple[ArrayLike, ArrayLike],
    options: MetricOptions,
    progress: bool,
) -> tuple[Values, Values, dict[str, float]]:
    """Measures (systems, k), those of each usable draw (draws, systems, k), and what they rest on.

    A replicate has its own random numbers, so the number of threads changes nothing.
    """
    labels, speakers, count = _checked_speakers(is_target, *sides)
    replicates, seed = options.replicates, options.seed
    if not replicates:
        raise ValueError("replicates must be at least 2, not 0")
    costs = [(prior, options.miss_cost, options.false_alarm_cost) for prior in options.priors]
    resampled = [_Resampled(np.asarray(scores), labels, speakers, costs) for scores in systems]

    def measures(multiplicities: Counts) -> Values:
        return np.stack([one.measures(multiplicities) for one in resampled])

    def replicate(number: int) -> Values:
        chosen = np.random.default_rng([seed, number]).integers(count, size=count)
        return measures(np.bincount(chosen, minlength=count))

    with ThreadPoolExecutor(usable_cores()) as threads:  # numpy leaves them the processor
        found = threads.map(replicate, range(replicates))
        drawn = np.stack(list(tqdm(found, "resampling speakers", replicates, disable=not progress)))
    usable = drawn[~np.isnan(drawn[:, 0, 0])]
    unusable = replicates - len(usable)
    if unusable > len(usable):
        raise ValueError(
            f"{unusable} of {replicates} draws of speakers left no target or no non-target trial: "
            "the list has too few speakers for an interval"
        )
    facts = {
        "level": options.level,
        "replicates": replicates,
        "unusable_replicates": unusable,
        "seed": seed,
        "speakers": count,
    }
    return measures(np.ones(count, dtype=np.int64)), usable, facts


def _checked_speakers(
    is_target: ArrayLike, enroll_speaker: ArrayLike, test_speaker: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.int32], int]:
    """Labels (n,), speakers (2, n) numbered from 0, and how many there are; or a ValueError."""
    labels = np.asarray(is_target).astype(bool)
    named = [np.asarray(enroll_speaker), np.asarray(test_speaker)]
    for side, speakers in zip(("enroll_speaker", "test_speaker"), named, strict=True):
        if speakers.shape != labels.shape or speakers.dtype.kind not in "iu":
            raise ValueError(
                f"{side} has shape {speakers.shape} and type {speakers.dtype}; expected integers "
                f"of shape {labels.shape}, one per trial"
            )
    wrong = np.flatnonzero((named[0] == named[1]) != labels)
    if len(wrong):
        first = wrong[0]
        kind = "target" if labels[first] else "non-target"
        raise ValueError(
            f"{len(wrong)} of {len(labels)} labels contradict the speakers, first the {kind} trial "
            f"at index {first} of speakers {named[0][first]} and {named[1][first]}: correct either"
        )
    distinct, numbers = np.unique(np.stack(named), return_inverse=True)
    return labels, numbers.reshape(2, -1).astype(np.int32), len(distinct)


def _normal(estimates: Values, drawn: Values, level: float) -> tuple[Values, Values, Values]:
    """Estimates (k,) less the bias of drawn ones (draws, k), deviations, and half the intervals."""
    bias, deviations = drawn.mean(axis=0) - estimates, drawn.std(axis=0, ddof=1)
    return estimates - bias, deviations, NormalDist().inv_cdf((1.0 + level) / 2) * deviations
