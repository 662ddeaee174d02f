"""Metrics of face recognition: accuracy over folds, TPR at FAR, and 1:N identification."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from simple_spk.evaluation.error_rates import error_rates, sort_trials
from simple_spk.evaluation.metrics import (
    around_equal_rates,
    at_target_scores,
    equal_error_rate,
    true_positive_rate_at,
)
from simple_spk.evaluation.scoring import AnySimilarity, as_array, queries_and_keys

PROBES_AT_ONCE = 512  # their scores against a few thousand templates take a few megabytes
# A search returns a list of candidates; a mate further down is not found (Klare et al., 2015).
CANDIDATES = 20
FPIRS = (0.01, 0.1)
TOPS = (1, 5)


def verification_rates(
    scores: ArrayLike, is_target: ArrayLike, false_accept_rates: Sequence[float]
) -> dict[str, Any]:
    """Exact EER, and true positive rates at false accept rates, in percent, as plain data.

    Both classes are sorted once, and only the required parts of the error curve are computed: 15
    million pairs need little more memory than their scores.

    >>> found = verification_rates([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1], [0.1, 0.5])
    >>> found["eer"], found["tpr_at_far"]
    (25.0, {'0.1': 50.0, '0.5': 100.0})
    """
    trials = sort_trials(scores, is_target)
    equal = equal_error_rate(around_equal_rates(trials))
    # Between the scores of two targets the TPR is constant: these are the only thresholds needed.
    rates = at_target_scores(trials)
    return {
        "eer": 100.0 * equal.rate,
        "eer_threshold": equal.threshold,
        "tpr_at_far": {
            str(limit): 100.0 * true_positive_rate_at(rates, limit) for limit in false_accept_rates
        },
        "pairs": int(trials.targets.mass + trials.nontargets.mass),
        "targets": int(trials.targets.mass),
    }


class FoldAccuracies(NamedTuple):
    """The results of k folds, in order of their number."""

    accuracies: NDArray[np.float64]  # (k,), share of correct decisions in each fold
    thresholds: NDArray[np.float64]  # (k,), chosen on the other folds


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
            f"found {len(numbers)} folds: thresholds are chosen on other folds, so two are needed"
        )
    accuracies, thresholds = np.empty(len(numbers)), np.empty(len(numbers))
    for place, number in enumerate(numbers):
        inside = fold_of_pair == number
        try:
            thresholds[place] = most_accurate_threshold(values[~inside], labels[~inside])
        except ValueError as error:
            raise ValueError(f"the folds other than fold {number}: {error}") from error
        decisions = values[inside] >= thresholds[place]
        accuracies[place] = np.mean(decisions == labels[inside])
    return FoldAccuracies(accuracies, thresholds)


def most_accurate_threshold(scores: ArrayLike, is_target: ArrayLike) -> float:
    """The threshold with the fewest errors on scores (n,); scores at or above it are accepted.

    All thresholds between two neighboring scores make the same errors here, but not on other pairs:
    the middle is returned. Of several best thresholds it is the lowest; it is infinite if accepting
    all pairs, or none, is best. Errors are counted exactly, and tied scores are never separated.
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
    return middle if middle > lower else upper  # no float lies between


@dataclass(frozen=True, eq=False)
class Searches:
    """The results of searches in one gallery; a probe's mate is the template of its subject."""

    mate_scores: NDArray[np.float32]  # (mated,)
    mate_ranks: NDArray[np.int64]  # (mated,), from 1; a tie counts against the mate
    best_scores: NDArray[np.float32]  # (probes without a mate,), against the whole gallery
    highest_other_scores: NDArray[np.float32]  # descending, of all pairs of different subjects


def search(
    probes: NDArray[np.float32],
    gallery: NDArray[np.float32],
    mates: NDArray[np.int64],
    similarity: AnySimilarity,
    others_kept: int = 0,
    block: int = PROBES_AT_ONCE,
    progress: bool = False,
    name: str = "search",
) -> Searches:
    """Search for probes (p, dim) in a gallery (g, dim); mates (p,) are its rows, -1 for no mate.

    The ``others_kept`` highest scores between different subjects are kept. Only the scores of one
    block of probes are in memory.
    """
    queries = as_array(queries_and_keys(probes, similarity)[0])
    keys = as_array(queries_and_keys(gallery, similarity)[1])
    is_mated = mates >= 0
    mate_scores = np.full(len(probes), -np.inf, dtype=np.float32)
    best_others = np.empty(len(probes), dtype=np.float32)
    ranks = np.zeros(len(probes), dtype=np.int64)
    highest = np.empty(0, dtype=np.float32)
    with tqdm(total=len(probes), desc=name, unit="probe", delay=1.0, disable=not progress) as bar:
        for start in range(0, len(probes), block):
            some = slice(start, start + block)
            scores = queries[some] @ keys.T
            rows = np.flatnonzero(is_mated[some])
            columns = mates[some][rows]
            mate_scores[some][rows] = scores[rows, columns]
            scores[rows, columns] = -np.inf
            ranks[some] = 1 + np.count_nonzero(scores >= mate_scores[some, None], axis=1)
            best_others[some] = scores.max(axis=1)
            if others_kept:
                highest = _highest(np.append(highest, scores), others_kept)
            bar.update(len(scores))
    highest = np.sort(highest[np.isfinite(highest)])[::-1]
    return Searches(mate_scores[is_mated], ranks[is_mated], best_others[~is_mated], highest)


def open_set_rates(
    searches: Searches, false_positive_rates: Sequence[float] = FPIRS
) -> dict[str, Any]:
    """Rates of identification in percent as plain data.

    ``top_k``: share of mated probes whose mate is among the first k. ``tpir_at_fpir``: share whose
    mate is among the candidates and at or above the threshold, which is the lowest at which the
    share of probes without a mate that match anybody (FPIR) is within the limit.
    """
    mated, unmated = len(searches.mate_scores), len(searches.best_scores)
    if not mated or not unmated:
        raise ValueError(
            f"found {mated} probes with a mate in the gallery and {unmated} without; some of each "
            "are needed: these galleries and probes do not belong together"
        )
    is_listed = searches.mate_ranks <= CANDIDATES
    found = searches.mate_scores[is_listed]
    tpir = dict.fromkeys(map(str, false_positive_rates), 0.0)
    if len(found):
        rates = error_rates(
            np.append(found, searches.best_scores), np.arange(len(found) + unmated) < len(found)
        )
        for limit in false_positive_rates:
            share = true_positive_rate_at(rates, limit) * len(found) / mated
            tpir[str(limit)] = 100.0 * share
    return {
        **_tops(searches),
        "tpir_at_fpir": tpir,
        "mated_probes": mated,
        "unmated_probes": unmated,
    }


def pooled_rates(searches: Searches) -> dict[str, Any]:
    """Rates in percent as the scripts of InsightFace and of the paper define them.

    Every probe has a mate. The threshold is the score that limit x probes pairs of different
    subjects reach, and mates must be above it. This is no FPIR, but published tables report it.
    """
    mated = len(searches.mate_scores)
    assert mated and not len(searches.best_scores), "every probe must have a mate"
    tpir = {}
    for limit in FPIRS:
        place = min(others_needed(mated, [limit]), len(searches.highest_other_scores)) - 1
        above = searches.mate_scores > searches.highest_other_scores[place]
        tpir[str(limit)] = 100.0 * float(np.mean(above))
    return {**_tops(searches), "tpir_at_fpir": tpir, "mated_probes": mated}


def others_needed(probes: int, false_positive_rates: Sequence[float] = FPIRS) -> int:
    """The number of highest scores between different subjects that ``pooled_rates`` needs."""
    return math.ceil(max(false_positive_rates) * probes)


def _tops(searches: Searches) -> dict[str, float]:
    return {f"top_{k}": 100.0 * float(np.mean(searches.mate_ranks <= k)) for k in TOPS}


def _highest(values: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """The ``count`` highest values, in any order."""
    return values if len(values) <= count else np.partition(values, -count)[-count:]
