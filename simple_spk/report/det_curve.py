"""The DET curve on probit axes, thinned to what the eye can tell apart."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from simple_spk.evaluation.error_rates import ErrorRates
from simple_spk.evaluation.metrics import equal_error_rate

TICKS = (1e-5, 1e-4, 1e-3, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99)
LOWEST = (0.005, 0.002, 0.001, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5)  # where axes may begin
GRID_LINES = 400  # a drawing this fine looks the same as the curve itself
OFF_THE_PLOT = 1e-9  # stands in for a rate of zero, which lies infinitely far out


class DetLimits(NamedTuple):
    """The lowest and the highest rate that both axes show."""

    low: float
    high: float

    def contain(self, *rates: float) -> bool:
        """Whether all of these rates are shown."""
        return all(self.low <= rate <= self.high for rate in rates)

    @property
    def ticks(self) -> list[float]:
        """Rates to label, from ``low`` to ``high``."""
        return [tick for tick in TICKS if self.contain(tick)]


def det_limits(curves: Sequence[ErrorRates]) -> DetLimits:
    """Limits that show each curve's equal error rate and as much around it as its trials tell."""
    highest = max(equal_error_rate(curve).rate for curve in curves)
    high = next(tick for tick in TICKS if tick >= max(0.4, min(1.5 * highest, 0.95)))
    shown = [high]
    for curve in curves:
        sides = (curve.miss_rates, curve.false_alarm_rates)
        for rates, others in (sides, sides[::-1]):
            inside = rates[(rates > 0) & (others <= high)]
            shown += [float(inside.min())] if len(inside) else []
    return DetLimits(next((low for low in LOWEST if low <= min(shown)), LOWEST[-1]), high)


def det_curve(
    rates: ErrorRates, limits: DetLimits
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Probits (k,) of the false alarm and miss rates of a curve, at most a few points per pixel.

    Kept are the points before and after every line of a fine grid that the curve crosses, so what
    is left out lies between two neighbors within one cell. The ends may lie beyond the limits.
    """
    low, high = probit(limits).tolist()
    lines = ndtr(np.linspace(low, high, GRID_LINES + 1))
    after_rows = np.searchsorted(rates.miss_rates, lines)
    after_columns = np.searchsorted(-rates.false_alarm_rates, -lines)
    after = np.concatenate([after_rows, after_columns])
    kept = np.unique(np.concatenate([after - 1, after]).clip(0, len(rates.thresholds) - 1))
    return probit(rates.false_alarm_rates[kept]), probit(rates.miss_rates[kept])


def probit(rates: ArrayLike) -> NDArray[np.float64]:
    """Normal quantiles of rates; those of 0 and 1 are large instead of infinite."""
    return np.asarray(ndtri(np.clip(rates, OFF_THE_PLOT, 1.0 - OFF_THE_PLOT)))
