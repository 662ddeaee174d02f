"""Confidence intervals of error rates by resampling speakers, not trials.

Trials of one speaker are correlated: half a million of them have about as much information as
their speakers. Each replicate draws as many speakers as there are, with replacement. A target
trial of a speaker drawn m times weighs m, a non-target trial of speakers a and b weighs m[a] m[b],
as every copy of a meets every copy of b.

An interval is normal and corrected for bias, on the scale of square roots, where the error rates of
few speakers are less skewed: the estimate, minus the mean deviation of the replicates from it, plus
and minus their standard deviation times the normal quantile. The minimum cost over all thresholds
is optimistic, more so with few trials, so plain percentiles of the replicates often miss the true
value. ``tools/bench.py coverage`` measures the coverage by simulation. Intervals are too wide where
single trials matter more than speakers.
"""

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

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
Key = tuple[str, ...]  # where a measure stands in the result: ("eer",), ("min_dcf", "0.01"), ...
Costs = tuple[float, float, float]  # target prior, cost of a miss, cost of a false alarm


@dataclass(frozen=True, eq=False)
class _Class:
    """The trials of one class, by rising score."""

    first_speakers: NDArray[np.int32]  # (k,)
    second_speakers: NDArray[np.int32] | None  # (k,); None for targets, whose speakers are one
    bits: Values  # (k,), what a trial adds to Cllr
    ranks: NDArray[np.int64]  # (m,), how many trials score below each turn of the curve
    bayes_ranks: NDArray[np.int64]  # (p,), and below each prior's Bayes threshold

    def replicate(self, multiplicities: Values) -> tuple[Values, Values, float] | None:
        """Shares of the class below each turn (m,) and Bayes threshold (p,), and its mean bits.

        None if no trial of the class is left.
        """
        weights = multiplicities[self.first_speakers]
        if self.second_speakers is not None:
            weights *= multiplicities[self.second_speakers]
        below = np.zeros(len(weights) + 1)
        np.cumsum(weights, out=below[1:])
        mass = below[-1]
        if mass == 0.0:
            return None
        bits = float(weights @ self.bits) / mass
        return below[self.ranks] / mass, below[self.bayes_ranks] / mass, bits


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
        self.thresholds = rates.thresholds[_turns(rates)]
        self.costs = costs
        self.targets = self._class(scores, is_target, speakers[:1])
        self.nontargets = self._class(scores, ~is_target, speakers)
        self.keys: list[Key] = [("eer",), ("cllr",), ("min_cllr",)]
        for kind in ("min_dcf", "act_dcf"):
            self.keys += [(kind, prior_name(prior)) for prior, *_ in costs]

    def _class(
        self,
        scores: NDArray[np.floating[Any]],
        members: NDArray[np.bool_],
        speakers: NDArray[np.int32],
    ) -> _Class:
        """One class of the list; two rows of speakers (2, n) make it that of the non-targets."""
        order = np.flatnonzero(members)
        order = order[np.argsort(scores[order], kind="stable")]
        ordered = scores[order]
        sign = 1.0 if len(speakers) == 2 else -1.0
        bayes = np.array([bayes_threshold(*costs) for costs in self.costs])
        return _Class(
            first_speakers=speakers[0, order],
            second_speakers=speakers[1, order] if len(speakers) == 2 else None,
            bits=np.logaddexp(0.0, sign * ordered.astype(np.float64)) / np.log(2.0),
            ranks=np.searchsorted(ordered, self.thresholds),
            bayes_ranks=np.searchsorted(ordered, bayes),
        )

    def measures(self, multiplicities: Values) -> Values:
        """All measures (k,), as ``keys`` names them, for one draw; NaN if a class is gone."""
        targets = self.targets.replicate(multiplicities)
        nontargets = self.nontargets.replicate(multiplicities)
        if targets is None or nontargets is None:
            return np.full(len(self.keys), np.nan)
        rates = ErrorRates(self.thresholds, targets[0], 1.0 - nontargets[0])
        at_bayes = ErrorRates(np.empty(len(self.costs)), targets[1], 1.0 - nontargets[1])
        minimal = [minimum_detection_cost(rates, *costs).cost for costs in self.costs]
        actual = [detection_cost(at_bayes, *c)[i] for i, c in enumerate(self.costs)]
        equal = 100.0 * equal_error_rate(rates).rate
        cllr = (targets[2] + nontargets[2]) / 2
        least_cllr = minimum_log_likelihood_ratio_cost(rates)
        return np.array([equal, cllr, least_cllr, *minimal, *actual])


def _turns(rates: ErrorRates) -> NDArray[np.bool_]:
    """Which points (m,) the curve needs: not those amid a stretch where only one class moves.

    Other weights of the same trials never bend the curve elsewhere.
    """
    is_amid = np.zeros(len(rates.thresholds), dtype=bool)
    for rate in (rates.miss_rates, rates.false_alarm_rates):
        is_amid[1:-1] |= (rate[:-2] == rate[1:-1]) & (rate[1:-1] == rate[2:])
    return ~is_amid


def intervals(
    scores: ArrayLike,
    is_target: ArrayLike,
    enroll_speaker: ArrayLike,
    test_speaker: ArrayLike,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
    priors: Sequence[float] = PRIORS,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
    progress: bool = False,
) -> dict[str, Any]:
    """Confidence intervals [low, high] of the measures of ``metrics.summary``, under its keys.

    ``scores``, ``is_target`` and the integers that name each trial's speakers are (n,). Beside the
    measures (``eer`` in percent, ``min_dcf`` and ``act_dcf`` by prior, ``cllr``, ``min_cllr``) the
    result holds ``level``, ``seed``, ``speakers``, ``replicates`` and ``unusable_replicates``, in
    which a class had no trial left, so that they do not count. Equal arguments give equal results.
    """
    costs = [(prior, miss_cost, false_alarm_cost) for prior in priors]
    labels, speakers, count = _checked_speakers(is_target, enroll_speaker, test_speaker)
    check_draws(replicates, level, seed)
    trials = _Resampled(np.asarray(scores), labels, speakers, costs)
    estimates = trials.measures(np.ones(count))
    drawn = np.stack(list(_draws([trials], count, replicates, seed, progress)))[:, 0]
    usable, unusable = _usable(drawn)
    centers, deviations = _centers_and_deviations(np.sqrt(estimates), np.sqrt(usable))
    reach = _normal_quantile(level) * deviations
    # A minimum over all thresholds or calibrations is at most 1, the cost without information.
    most = np.array([1.0 if key[0].startswith("min_") else np.inf for key in trials.keys])
    ends = (centers - reach, centers + reach)
    lows, highs = (np.minimum(np.maximum(0.0, end) ** 2, most) for end in ends)
    result: dict[str, Any] = {}
    for key, low, high in zip(trials.keys, lows, highs, strict=True):
        _put(result, key, [float(low), float(high)])
    return result | _facts(replicates, unusable, level, seed, count)


def compare(
    scores_a: ArrayLike,
    scores_b: ArrayLike,
    is_target: ArrayLike,
    enroll_speaker: ArrayLike,
    test_speaker: ArrayLike,
    replicates: int = REPLICATES,
    level: float = 0.95,
    seed: int = 0,
    priors: Sequence[float] = PRIORS,
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
    progress: bool = False,
) -> dict[str, Any]:
    """Two systems on one list: what b has more than a, measured on the same draws of speakers.

    Under the keys of ``metrics.summary`` stand ``a``, ``b``, ``difference`` (b - a), the normal
    ``interval`` of the difference, and ``p_value``, two-sided: how likely so large a one would be
    if there were none (1 for systems that agree in every draw).
    """
    costs = [(prior, miss_cost, false_alarm_cost) for prior in priors]
    labels, speakers, count = _checked_speakers(is_target, enroll_speaker, test_speaker)
    check_draws(replicates, level, seed)
    systems = [_Resampled(np.asarray(s), labels, speakers, costs) for s in (scores_a, scores_b)]
    of_a, of_b = (system.measures(np.ones(count)) for system in systems)
    drawn = np.stack(list(_draws(systems, count, replicates, seed, progress)))
    usable, unusable = _usable(drawn[:, 1] - drawn[:, 0])
    centers, deviations = _centers_and_deviations(of_b - of_a, usable)
    reach = _normal_quantile(level) * deviations
    result: dict[str, Any] = {}
    for index, key in enumerate(systems[0].keys):
        center, deviation = float(centers[index]), float(deviations[index])
        found = {
            "a": float(of_a[index]),
            "b": float(of_b[index]),
            "difference": float(of_b[index] - of_a[index]),
            "interval": [center - float(reach[index]), center + float(reach[index])],
            "p_value": math.erfc(abs(center) / deviation / math.sqrt(2)) if deviation else 1.0,
        }
        _put(result, key, found)
    return result | _facts(replicates, unusable, level, seed, count)


def _draws(
    systems: Sequence[_Resampled], speakers: int, replicates: int, seed: int, progress: bool
) -> Iterator[Values]:
    """The measures (systems, k) of each replicate, on threads, as numpy leaves them the processor.

    A replicate has its own random numbers, so that the number of threads changes nothing.
    """

    def measures(replicate: int) -> Values:
        drawn = np.random.default_rng([seed, replicate]).integers(speakers, size=speakers)
        multiplicities = np.bincount(drawn, minlength=speakers).astype(np.float64)
        return np.stack([system.measures(multiplicities) for system in systems])

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(measures, range(replicates))
        yield from tqdm(found, "resampling speakers", replicates, disable=not progress)


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


def check_draws(replicates: int, level: float = 0.95, seed: int = 0) -> None:
    """Raise if intervals cannot be had from so many replicates at this level with this seed."""
    if replicates < 2:
        raise ValueError(f"replicates must be at least 2, not {replicates}; 1000 are usual")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie strictly between 0 and 1, not {level}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, not {seed}")


def _usable(drawn: Values) -> tuple[Values, int]:
    """The rows of drawn measures (replicates, k) in which no class was gone, and how many were."""
    is_usable = ~np.isnan(drawn[:, 0])
    usable = drawn[is_usable]
    if 2 * len(usable) < len(drawn):
        raise ValueError(
            f"{len(drawn) - len(usable)} of {len(drawn)} draws of speakers left no target or no "
            "non-target trial: the list has too few speakers for an interval"
        )
    return usable, len(drawn) - len(usable)


def _centers_and_deviations(estimates: Values, drawn: Values) -> tuple[Values, Values]:
    """Estimates (k,) less the bias of drawn ones (replicates, k), and these' deviations (k,)."""
    bias = drawn.mean(axis=0) - estimates
    return estimates - bias, drawn.std(axis=0, ddof=1)


def _normal_quantile(level: float) -> float:
    """How many deviations to both sides of its mean hold this share of a normal distribution."""
    return NormalDist().inv_cdf((1.0 + level) / 2)


def _put(result: dict[str, Any], key: Key, value: Any) -> None:
    """Store a value under one key, or under a key within a key."""
    *outer, last = key
    for name in outer:
        result = result.setdefault(name, {})
    result[last] = value


def _facts(
    replicates: int, unusable: int, level: float, seed: int, speakers: int
) -> dict[str, float | int]:
    """What the intervals rest on."""
    return {
        "level": level,
        "replicates": replicates,
        "unusable_replicates": unusable,
        "seed": seed,
        "speakers": speakers,
    }
