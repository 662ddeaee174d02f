"""Verification accuracy over folds, each judged with the threshold that suits the others best."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simple_spk.evaluation.error_rates import sort_trials


class FoldAccuracies(NamedTuple):
    """What k folds came to, by their number, rising."""

    accuracies: NDArray[np.float64]  # (k,), shares of the pairs of a fold that are judged rightly
    thresholds: NDArray[np.float64]  # (k,), found on the other folds


def fold_accuracies(scores: ArrayLike, is_target: ArrayLike, folds: ArrayLike) -> FoldAccuracies:
    """The accuracy in each fold of scores (n,) with the best threshold of all the other folds.

    >>> found = fold_accuracies([1, 3, 2, 4], [0, 1, 0, 1], [1, 1, 2, 2])
    >>> found.accuracies.tolist(), found.thresholds.tolist()
    ([1.0, 0.5], [3.0, 2.0])
    """
    values = np.asarray(scores, dtype=np.float64)
    labels, fold_of_pair = np.asarray(is_target, dtype=bool), np.asarray(folds)
    numbers = np.unique(fold_of_pair)
    if len(numbers) < 2:
        raise ValueError(
            f"found {len(numbers)} folds: a threshold is found on the others, so two are needed"
        )
    accuracies, thresholds = np.empty(len(numbers)), np.empty(len(numbers))
    for place, number in enumerate(numbers):
        inside = fold_of_pair == number
        try:
            thresholds[place] = most_accurate_threshold(values[~inside], labels[~inside])
        except ValueError as error:
            raise ValueError(f"the folds other than fold {number}: {error}") from error
        judged = values[inside] >= thresholds[place]
        accuracies[place] = np.mean(judged == labels[inside])
    return FoldAccuracies(accuracies, thresholds)


def most_accurate_threshold(scores: ArrayLike, is_target: ArrayLike) -> float:
    """The threshold with the fewest errors on scores (n,), accepting from it upwards.

    Every threshold between two neighboring scores makes the same errors here, but not on other
    pairs: it lies half way between them, on neither side's edge. Of several best places it is the
    lowest; where accepting all, or none, is best, it is infinite. Errors are counted, so that
    nothing is rounded, and equal scores are never told apart.
    """
    trials = sort_trials(scores, is_target)
    steps = trials.thresholds_between(-math.inf, math.inf)
    misses = trials.targets.mass_below(steps)
    false_alarms = trials.nontargets.mass - trials.nontargets.mass_below(steps)
    best = int(np.argmin(misses + false_alarms))
    if best == 0:
        return -math.inf
    lower, upper = float(steps[best - 1]), float(steps[best])
    middle = lower + (upper - lower) / 2
    return middle if middle > lower else upper  # between neighboring floats there is no other
