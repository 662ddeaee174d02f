"""Error rates of pairs as face recognition reports them: EER, and TPR at low FAR."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from simple_spk.evaluation.error_rates import sort_trials
from simple_spk.evaluation.metrics import (
    around_equal_rates,
    at_target_scores,
    equal_error_rate,
    true_positive_rate_at,
)


def verification_rates(
    scores: ArrayLike, is_target: ArrayLike, false_accept_rates: Sequence[float]
) -> dict[str, Any]:
    """Exact EER, and true positive rates at false accept rates, in percent, as plain data.

    Both classes are sorted once, and only the parts of the curve that are read are made: 15 million
    pairs need little more memory than their scores.

    >>> found = verification_rates([0.1, 0.4, 0.4, 0.9], [0, 0, 1, 1], [0.1, 0.5])
    >>> found["eer"], found["tpr_at_far"]
    (25.0, {'0.1': 50.0, '0.5': 100.0})
    """
    trials = sort_trials(scores, is_target)
    equal = equal_error_rate(around_equal_rates(trials))
    # Between the scores of two targets the TPR does not change: theirs are thresholds enough.
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
