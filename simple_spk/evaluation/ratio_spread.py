"""How the log likelihood ratios of a class spread under given quality, also beyond a list.

    ratio = center(quality) + deviation(quality) * z

The center and the logarithm of the deviation are linear in the quality measures; what share of a
class has a z above a value is the same for all. It is that of the list and, among the highest z, of
the generalized Pareto distribution fitted to them: by extreme-value theory, tails have its form.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Values = NDArray[np.float64]
CONSTANT = "constant"  # the name of the weight that belongs to no measure
# Shares of a class above the values that are stored.
SHARES: tuple[float, ...] = (0.999, 0.997, 0.99, 0.97, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
SHARES += (0.1, 0.05, 0.03, 0.02)
SHARES += tuple(float(f"{digit}e-{power}") for power in range(2, 10) for digit in (1, 0.3))
TAIL_SHARE = 0.01  # of the values, to which the tail is fitted; more of them if they are few
FEWEST_IN_TAIL = 100
LARGEST_TAIL_SHARE = 0.2
# Of shapes: about -0.15 is that of normal ratios; 0 falls like exp(-z), as ratios may at most.
# Below, a tail would end soon after the last of few speakers: thresholds would promise too much.
SHAPES = (-0.15, 0.0)
RIDGE = 1e-3  # relative to the variance of a standardized measure


@dataclass(frozen=True)
class Spread:
    """The distribution of the ratios of one class."""

    center_weights: dict[str, float]
    log_deviation_weights: dict[str, float]
    levels: tuple[tuple[float, float], ...]  # shares of z above, falling, and z, rising
    count: int  # of ratios that it was fitted to

    @property
    def measures(self) -> set[str]:
        """The names of the quality measures that it depends on."""
        return ({*self.center_weights} | {*self.log_deviation_weights}) - {CONSTANT}

    def at(self, share: float, quality: Mapping[str, Values] | None = None) -> Values:
        """The ratios (n,) that this share of the class exceeds, by measures (n,)."""
        axis = -_log_odds(np.array([share for share, _ in self.levels]))
        z = _interpolated(-_log_odds(np.array([share])), axis, self._z())
        center, deviation = self._line(quality or {})
        return center + deviation * z

    def above(self, ratios: ArrayLike, quality: Mapping[str, Values] | None = None) -> Values:
        """The shares (n,) of the class above ratios (n,), by measures (n,)."""
        center, deviation = self._line(quality or {})
        z = (np.asarray(ratios, dtype=np.float64) - center) / deviation
        axis = -_log_odds(np.array([share for share, _ in self.levels]))
        return 1.0 / (1.0 + np.exp(_interpolated(z, self._z(), axis).clip(-700.0, 700.0)))

    def _z(self) -> Values:
        """The z of the levels, strictly rising."""
        z = np.array([value for _, value in self.levels])
        return z + 1e-9 * np.arange(len(z))

    def _line(self, quality: Mapping[str, Values]) -> tuple[Values, Values]:
        """Center and deviation (n,) by measures (n,)."""
        center, deviation = (
            sum((w * quality[name] for name, w in weights.items() if name != CONSTANT), np.zeros(1))
            + weights.get(CONSTANT, 0.0)
            for weights in (self.center_weights, self.log_deviation_weights)
        )
        return center, np.exp(deviation.clip(-50.0, 50.0))  # damaged ones would be infinite

    @classmethod
    def from_plain(cls, content: Any, measures: set[str]) -> "Spread":
        """The spread of plain data of dataclasses.asdict; anything else is a ValueError."""
        if not isinstance(content, dict) or set(content) != set(cls.__dataclass_fields__):
            raise ValueError(f"a spread has the fields {', '.join(cls.__dataclass_fields__)}")
        for field in ("center_weights", "log_deviation_weights"):
            weights = content[field]
            if not isinstance(weights, dict) or not set(weights) <= {CONSTANT, *measures}:
                raise ValueError(f"{field} are not weights of the quality measures")
            if not all(type(w) in (int, float) and abs(w) < 1e6 for w in weights.values()):
                raise ValueError(f"{field} are not numbers")
        if type(content["count"]) is not int or not 0 < content["count"] < 2**53:
            raise ValueError(f"count is {content['count']!r}")
        if not (levels := checked_levels(content["levels"])):
            raise ValueError("it has no levels")
        return cls(**(content | {"levels": levels}))


def checked_levels(levels: Any) -> tuple[tuple[float, float], ...]:
    """Levels of a spread from plain data; a ValueError says what is wrong with them."""
    is_list = isinstance(levels, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(number) in (int, float) and abs(number) < 1e30 for number in pair)
        for pair in levels
    )
    if not is_list:
        raise ValueError("not a list of pairs of numbers")
    if not all(0.0 < share < 1.0 for share, _ in levels):
        raise ValueError("has a rate that is not between 0 and 1")
    if any(b[0] >= a[0] or b[1] < a[1] for a, b in itertools.pairwise(levels)):
        raise ValueError("rates must fall, and their thresholds not")
    return tuple((float(share), float(z)) for share, z in levels)


def fit_spread(ratios: Values, quality: Mapping[str, Values]) -> Spread:
    """The spread of the ratios (n,) of one class with measures (n,)."""
    names = [CONSTANT, *quality]
    means = np.array([0.0, *(values.mean() for values in quality.values())])
    deviations = np.array([1.0, *(values.std() for values in quality.values())])
    deviations[deviations <= 1e-12 * np.abs(means)] = np.inf
    columns = [np.ones(len(ratios)), *quality.values()]
    features = (np.stack(columns, 1) - means) / deviations

    def as_weights(found: Values) -> dict[str, float]:
        slopes = found / deviations
        slopes[0] = found[0] - slopes[1:] @ means[1:]
        return dict(zip(names, slopes.tolist(), strict=True))

    center = _least_squares(features, ratios)
    rest = ratios - features @ center
    # Thresholds are about high ratios: only those above the center tell how far they spread.
    is_high = rest > 0.0
    log_deviation = np.zeros(len(names))
    if is_high.any():
        log_deviation = _log_mean_excess(features[is_high], rest[is_high])
    z = np.sort(rest / np.exp(features @ log_deviation))
    levels = tuple(zip(SHARES, _levels(z).tolist(), strict=True))
    return Spread(as_weights(center), as_weights(log_deviation), levels, len(ratios))


def _least_squares(features: Values, values: Values) -> Values:
    """The weights (k,) of features (n, k), the first of which is 1, nearest to values (n,)."""
    ridge = np.diag([0.0, *[RIDGE * len(values)] * (features.shape[1] - 1)])
    found = np.linalg.solve(features.T @ features + ridge, features.T @ values)
    return found.astype(np.float64)


def _log_mean_excess(features: Values, excesses: Values) -> Values:
    """The weights (k,) of features (n, k) for the logarithm of the mean of excesses (n,) above 0.

    Newton's method for the likelihood of exponential excesses, a convex function.
    """
    scale = float(excesses.mean())
    weights = np.zeros(features.shape[1])
    ridge = np.array([0.0, *[RIDGE * len(excesses)] * (features.shape[1] - 1)])
    for _ in range(50):
        relative = excesses / scale * np.exp(-(features @ weights).clip(-20.0, 20.0))
        slope = features.T @ (1.0 - relative) + ridge * weights
        bend = (features * relative[:, None]).T @ features + np.diag(ridge + 1e-9)
        step = np.linalg.solve(bend, slope)
        weights -= step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    weights[0] += math.log(scale)
    return weights


def _levels(z: Values) -> Values:
    """The values at SHARES of sorted z (n,): measured, and from the tail on fitted."""
    share = min(max(TAIL_SHARE, FEWEST_IN_TAIL / len(z)), LARGEST_TAIL_SHARE)
    start = float(np.quantile(z, 1.0 - share))
    scale, shape = _tail(z[z > start] - start)
    shares = np.array(SHARES)
    found = np.quantile(z, 1.0 - shares)
    beyond = np.minimum(shares / share, 1.0)
    reach = -np.log(beyond) if shape == 0.0 else (beyond**-shape - 1.0) / shape
    return np.maximum.accumulate(np.where(shares < share, start + scale * reach, found))


def _tail(excesses: Values) -> tuple[float, float]:
    """Scale and shape of the generalized Pareto distribution of excesses (n,) above 0."""
    from scipy.optimize import minimize_scalar  # imported here: only training needs it

    if len(excesses) < 10 or excesses.std() == 0.0:
        return (float(excesses.mean()) if len(excesses) else 1.0), 0.0
    mean, greatest = float(excesses.mean()), float(excesses.max())

    def fitted(shape: float) -> tuple[float, float]:
        """The cost of the best scale with a shape, and the scale."""
        if shape == 0.0:
            return 1.0 + math.log(mean), mean

        def cost(log_scale: float) -> float:
            inside = 1.0 + shape * excesses / math.exp(log_scale)
            return log_scale + (1.0 + 1.0 / shape) * float(np.log(inside).mean())

        least = math.log(-shape * greatest * 1.0001)  # the end lies beyond the greatest
        limits = (max(least, math.log(mean) - 2.0), max(least, math.log(mean)) + 3.0)
        found = minimize_scalar(cost, bounds=limits, method="bounded")
        return float(found.fun), math.exp(float(found.x))

    shape = min(np.linspace(*SHAPES, 16).tolist(), key=lambda shape: fitted(shape)[0])
    return fitted(shape)[1], shape


def _interpolated(x: Values, knots: Values, values: Values) -> Values:
    """Values (n,) at x (n,) on lines between rising knots; the last lines go on beyond them."""
    if len(knots) == 1:
        return values[0] + (x - knots[0])
    found = np.interp(x, knots, values)
    for end, next_to_it, is_beyond in ((0, 1, x < knots[0]), (-1, -2, x > knots[-1])):
        slope = (values[end] - values[next_to_it]) / (knots[end] - knots[next_to_it])
        found = np.where(is_beyond, values[end] + slope * (x - knots[end]), found)
    return found


def _log_odds(shares: Values) -> Values:
    """The natural-log odds of shares (n,)."""
    return np.log(shares) - np.log1p(-shares)
