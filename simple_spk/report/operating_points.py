"""The thresholds a practitioner asks about, and what each costs in misses and false alarms."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simple_spk.evaluation.error_rates import ErrorRates
from simple_spk.evaluation.metrics import equal_error_rate, minimum_detection_cost, prior_name

OWN_THRESHOLD = "own threshold"  # the name of the point that the model itself chose


class OperatingPoint(NamedTuple):
    """One decision threshold by name, and the shares of targets and non-targets it gets wrong."""

    name: str
    threshold: float  # +inf rejects every trial
    miss_rate: float
    false_alarm_rate: float


def operating_points(
    rates: ErrorRates,
    priors: Sequence[float],
    miss_cost: float = 1.0,
    false_alarm_cost: float = 1.0,
    own_threshold: float | None = None,
) -> list[OperatingPoint]:
    """The points of equal error rate, of least cost at each prior, and of the own threshold.

    Rates are those that the threshold really gives; only ``equal_error_rate`` interpolates.
    """
    named = {"EER": equal_error_rate(rates).threshold}
    for prior in priors:
        cost = minimum_detection_cost(rates, prior, miss_cost, false_alarm_cost)
        named[f"minDCF({prior_name(prior)})"] = cost.threshold
    if own_threshold is not None and math.isfinite(own_threshold):
        named[OWN_THRESHOLD] = own_threshold
    return [_at(rates, name, threshold) for name, threshold in named.items()]


def _at(rates: ErrorRates, name: str, threshold: float) -> OperatingPoint:
    """The operating point of one threshold."""
    # As float64: a bare Python float would be rounded to the precision of the scores.
    index = int(np.searchsorted(rates.thresholds, np.float64(threshold)))
    return OperatingPoint(
        name, threshold, float(rates.miss_rates[index]), float(rates.false_alarm_rates[index])
    )
