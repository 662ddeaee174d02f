"""Both error rates of a verification system at every threshold, exact, from scores and labels.

Every measure in ``metrics`` is read from them. A hundred million trials need no whole curve:
``sort_trials`` sorts each class once, and gives the rates at any thresholds.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rates = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ErrorRates:
    """Both error rates at every threshold that matters: three arrays (m,), lowest threshold first.

    A trial is accepted when ``score >= threshold``. The thresholds are the distinct scores, rising,
    and then +inf: the first accepts every trial (miss 0, false alarm 1), the last rejects every
    trial (miss 1, false alarm 0), and no threshold in between gives other rates. Equal scores are
    one step. A part of the curve has the same form, with some of the thresholds left out.
    """

    thresholds: NDArray[np.floating[Any]]  # in the precision of the scores
    miss_rates: Rates  # share of the targets that score below the threshold
    false_alarm_rates: Rates  # share of the non-targets that score at or above it


class Ranks(NamedTuple):
    """The scores of one class, rising (k,), and the mass below each rank (k + 1,).

    Without weights the mass below a rank is the rank itself, and no array is kept for it.
    """

    scores: NDArray[np.floating[Any]]
    mass_below_rank: Rates | None = None

    @property
    def mass(self) -> float:
        """The mass of the whole class: its number of trials, or the sum of their weights."""
        return len(self.scores) if self.mass_below_rank is None else self.mass_below_rank[-1]

    def mass_below(
        self, thresholds: NDArray[Any], side: Literal["left", "right"] = "left"
    ) -> NDArray[Any]:
        """The mass (m,) that scores below each threshold (m,), or ("right") at or below it."""
        ranks = np.searchsorted(self.scores, thresholds, side)
        return ranks if self.mass_below_rank is None else self.mass_below_rank[ranks]

    def sum(self, values: NDArray[Any]) -> float:
        """The weighted sum of values (k,), which are in the order of ``scores``."""
        if self.mass_below_rank is None:
            return float(np.sum(values))
        return float(values @ np.diff(self.mass_below_rank))


class RankedTrials(NamedTuple):
    """A list of trials, each class sorted by score: all that any reading of the curve needs."""

    targets: Ranks
    nontargets: Ranks

    def rates_at(self, thresholds: NDArray[Any]) -> ErrorRates:
        """The error rates at rising ``thresholds`` (m,), which need not be scores."""
        misses = self.targets.mass_below(thresholds) / self.targets.mass
        rejections = self.nontargets.mass_below(thresholds)
        false_alarms = np.subtract(self.nontargets.mass, rejections, out=rejections)
        return ErrorRates(thresholds, misses, false_alarms / self.nontargets.mass)

    def thresholds_between(self, lowest: float, highest: float) -> NDArray[Any]:
        """The distinct scores between two bounds (scores or infinite), rising; +inf if a bound."""
        bounds = np.array([lowest, highest], dtype=self.targets.scores.dtype)
        inside = [bounds[1:]]  # one of the scores anyway, unless it is +inf
        for scores, _ in self:
            first = np.searchsorted(scores, bounds[0])
            inside.append(scores[first : np.searchsorted(scores, bounds[1], "right")])
        merged = np.concatenate(inside)
        merged.sort()
        return merged[np.append(True, merged[1:] != merged[:-1])]


def sort_trials(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None = None
) -> RankedTrials:
    """Both classes of ``scores`` (n,) sorted; arguments as in ``error_rates``.

    Bare values are sorted, class by class: a fraction of the time and memory of an argsort.
    """
    values, labels, masses = checked_trials(scores, is_target, weights)
    if masses is None:
        return RankedTrials(*(Ranks(_sorted_members(values, labels, c)) for c in (True, False)))
    ranks = []
    for members in (labels & (masses > 0), ~labels & (masses > 0)):
        order = np.argsort(values[members])
        below = np.append(0.0, np.cumsum(masses[members][order]))
        ranks.append(Ranks(values[members][order], below))
    return RankedTrials(*ranks)


def error_rates(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None = None
) -> ErrorRates:
    """Error rates at each distinct value of ``scores`` (n,), and at +inf.

    ``is_target`` (n,) holds booleans or 0 and 1; a trial of weight w counts as w equal trials, so
    one of weight 0 is not there.

    >>> rates = error_rates([0.1, 0.4, 0.4, 0.9], [False, False, True, True])
    >>> rates.thresholds.tolist()
    [0.1, 0.4, 0.9, inf]
    >>> rates.miss_rates.tolist(), rates.false_alarm_rates.tolist()
    ([0.0, 0.0, 0.5, 1.0], [1.0, 0.5, 0.0, 0.0])
    """
    trials = sort_trials(scores, is_target, weights)
    return trials.rates_at(trials.thresholds_between(-math.inf, math.inf))


def error_rates_at(
    scores: ArrayLike, is_target: ArrayLike, threshold: float
) -> tuple[float, float]:
    """Miss and false alarm rate of accepting from ``threshold`` upward, such as SimPLE's own -b.

    >>> error_rates_at([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1], threshold=0.5)
    (0.5, 0.0)
    """
    if math.isnan(threshold):
        raise ValueError("threshold must be a number, not nan")
    values, labels, _ = checked_trials(scores, is_target)
    # As an array: a bare number would be rounded to the precision of the scores.
    is_wrong = (values >= np.array([threshold])) != labels
    return float(np.mean(is_wrong[labels])), float(np.mean(is_wrong[~labels]))


def checked_trials(
    scores: ArrayLike, is_target: ArrayLike, weights: ArrayLike | None = None
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
    if not (np.isfinite(values.min()) and np.isfinite(values.max())):  # NaN would be both
        require_all(np.isfinite(values), values, "scores must be finite")
    if labels.dtype != np.bool_:
        require_all(
            (labels == 0) | (labels == 1), labels, "is_target must hold booleans, or 0 and 1"
        )
        labels = labels.astype(bool)
    counted = labels
    if masses is not None:
        require_all(np.isfinite(masses) & (masses >= 0), masses, "weights must be finite and >= 0")
        counted = labels[masses > 0]
    targets = int(np.count_nonzero(counted))
    if not 0 < targets < len(counted):
        raise ValueError(
            f"found {targets} targets and {len(counted) - targets} non-targets (trials of weight 0 "
            "left out); at least one of each is needed"
        )
    return values, labels, masses


def require_all(is_good: NDArray[np.bool_], values: NDArray[Any], rule: str) -> None:
    """Raise a ValueError with the first of the values (n,) that is not good, if there is one."""
    bad = len(is_good) - int(np.count_nonzero(is_good))
    if bad:
        first = int(np.argmin(is_good))
        raise ValueError(
            f"{rule}: {bad} of {len(values)} are not, the first at index {first}: {values[first]}"
        )


def _sorted_members(
    values: NDArray[Any], labels: NDArray[np.bool_], label: bool, block: int = 2**14
) -> NDArray[Any]:
    """The values (n,) that have a label, sorted; in blocks whose indexes stay in the cache."""
    members = np.empty(np.count_nonzero(labels == label), dtype=values.dtype)
    filled = 0
    for start in range(0, len(values), block):
        has_label = labels[start : start + block] == label
        count = int(np.count_nonzero(has_label))
        # Much faster than values[has_label], which stumbles over every change of label.
        members[filled : filled + count] = np.compress(has_label, values[start : start + block])
        filled += count
    members.sort()
    return members
