"""Calibration: scores as natural-log likelihood ratios, learned by logistic regression.

    llr = offset + slope * score + the sum of weight * quality measure

It is trained on one list and applied to others. The classes are weighted by the target prior,
whatever their numbers of trials: the ratios are best for applications with that share of targets.
The default 0.01 is that of the usual minDCF; 0.5 minimizes Cllr.

If the scores separate the classes without an error, any scale would fit them. Then one non-target
counts as if it had scored like the targets, and one target like the non-targets, so that ratios are
limited by the number of trials (as with Platt's smoothed labels, but for any prior).
"""

import json
import math
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simple_spk.evaluation.error_rates import checked_trials, require_all
from simple_spk.evaluation.quality_measures import (
    DURATION,
    SOUND_MEASURES,
    TYPICALITY,
    Quality,
    is_background,
    pack_background,
    typicality,
)
from simple_spk.evaluation.ratio_spread import Spread, checked_levels, fit_spread
from simple_spk.io.atomic_file import write_text
from simple_spk.io.input_file import read_file

VERSION = 3
FEWEST_FALSE_ACCEPTS = 10  # expected in a list: with fewer, a rate counts as not measured
RIDGE = 1e-9  # on weights of standardized features: bounds that of a feature that adds nothing
LARGEST_BYTES = 2_000_000  # of a file

Values = NDArray[np.float64]


class RateThreshold(NamedTuple):
    """The least accepted ratio at a false-accept rate; extrapolated if beyond the list."""

    log_likelihood_ratio: float
    extrapolated: bool


@dataclass(frozen=True)
class Calibration:
    """Weights of a score and of quality measures, and what they were trained on."""

    score_weight: float
    offset: float
    quality_weights: dict[str, float]
    target_prior: float
    trained_on: str
    trials: int
    targets: int
    # Least and greatest value of each measure; one outside is clipped: nothing is known about it.
    quality_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    quality_means: dict[str, float] = field(default_factory=dict)
    # Embeddings of other speakers for the measure of typicality, as ``pack_background`` writes
    # them, or none. Strangers with typical voices and channels have higher scores.
    background: str = ""
    # The ratios of both classes; unknown in old files.
    nontarget_spread: Spread | None = None
    target_spread: Spread | None = None

    @property
    def needs_durations(self) -> bool:
        """Whether one of the quality measures is of durations."""
        return any(name.endswith(DURATION) for name in self.quality_weights)

    @property
    def needs_sound(self) -> bool:
        """Whether one of the quality measures is of the sound of recordings."""
        return any(name.endswith(SOUND_MEASURES) for name in self.quality_weights)

    def apply(self, scores: ArrayLike, quality: Quality | None = None) -> Values:
        """Natural-log likelihood ratios (n,) of scores (n,) and the quality measures they need."""
        values = np.asarray(scores, dtype=np.float64)
        measures = self._measures(self.quality_weights, quality, len(values))
        ratios = self.offset + self.score_weight * values
        for name, weight in self.quality_weights.items():
            ratios += weight * measures[name]
        if not np.isfinite(ratios).all():
            raise ValueError("this calibration gives ratios that are not finite: train it again")
        return ratios

    def _measures(
        self, names: Collection[str], quality: Quality | None, count: int
    ) -> dict[str, Values]:
        """Measures (count,) by name, within their ranges."""
        given = quality or {}
        absent = sorted(set(names) - set(given))
        if absent:
            raise ValueError(
                f"this calibration needs the quality measures {', '.join(absent)}: give what they "
                "are made of, or train one without them"
            )
        found = {}
        for name in names:
            low, high = self.quality_ranges.get(name, (-np.inf, np.inf))
            found[name] = _measure(name, given[name], count).clip(low, high)
        return found

    def background_measures(self, embeddings: NDArray[np.floating]) -> dict[str, Values]:
        """The typicality (n,) of embeddings (n, dim) by its name; nothing without a background."""
        return {TYPICALITY: typicality(embeddings, self.background)} if self.background else {}

    def threshold_at(
        self, false_accept_rate: float, voices: int = 1, quality: Quality | None = None
    ) -> RateThreshold:
        """The ratio from which acceptance is wrong for at most that share of non-targets with the
        same quality measures (1,), or with mean ones.

        Several voices share the rate, that of a stranger being accepted as any of them.
        """
        if quality is None:
            quality = {name: np.array([mean]) for name, mean in self.quality_means.items()}
        ratio = float(self.thresholds_at(false_accept_rate / voices, quality, 1)[0])
        return RateThreshold(ratio, self.is_beyond_list(false_accept_rate / voices))

    def is_beyond_list(self, false_accept_rate: float) -> bool:
        """Whether the list of the calibration is too short to measure a false-accept rate."""
        count = 0 if self.nontarget_spread is None else self.nontarget_spread.count
        return false_accept_rate * count < FEWEST_FALSE_ACCEPTS

    def thresholds_at(
        self, false_accept_rate: float, quality: Quality | None, count: int
    ) -> Values:
        """The ratios (count,) that this share of non-targets with measures (count,) reaches.

        Without a spread of non-targets: at most exp(-t) of them have a calibrated ratio of t or
        more.
        """
        if not 0.0 < false_accept_rate < 1.0:
            raise ValueError(f"a FAR lies strictly between 0 and 1, not {false_accept_rate}")
        spread = self.nontarget_spread
        if spread is None:
            return np.full(count, -math.log(false_accept_rate))
        measures = self._measures(spread.measures, quality, count)
        return np.broadcast_to(spread.at(false_accept_rate, measures), count)

    def miss_rates(self, thresholds: ArrayLike, quality: Quality | None = None) -> Values | None:
        """The expected shares (n,) of targets below ratios (n,); None if they are not known."""
        above = self._shares_above(self.target_spread, thresholds, quality)
        return None if above is None else 1.0 - above

    def false_accept_rates(
        self, thresholds: ArrayLike, quality: Quality | None = None
    ) -> Values | None:
        """The expected shares (n,) of non-targets from ratios (n,) on; None if not known."""
        return self._shares_above(self.nontarget_spread, thresholds, quality)

    def _shares_above(
        self, spread: Spread | None, ratios: ArrayLike, quality: Quality | None
    ) -> Values | None:
        """The shares (n,) of a class above ratios (n,), with measures (n,) or mean ones."""
        if spread is None:
            return None
        limits = np.asarray(ratios, dtype=np.float64)
        if quality is None:
            quality = {n: np.full(len(limits), mean) for n, mean in self.quality_means.items()}
        return spread.above(limits, self._measures(spread.measures, quality, len(limits)))

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, for JSON and YAML."""
        lists_for_tuples = json.loads(json.dumps(asdict(self)))
        return {"calibration_version": VERSION, **lists_for_tuples}

    @classmethod
    def from_plain(cls, content: object) -> "Calibration":
        """The calibration that plain data of ``plain`` describe; anything else is a ValueError."""
        if not isinstance(content, dict) or content.get("calibration_version") not in (2, VERSION):
            raise ValueError(f"no calibration of version {VERSION}")
        content = dict(content)
        levels = content.pop("false_accept_thresholds", None)
        if content.pop("calibration_version") == 2:
            new: dict[str, Any] = {"quality_means": {}, "background": []}
            content |= new | {"nontarget_spread": None, "target_spread": None}
        if problem := _problem(content):
            raise ValueError(problem)
        if isinstance(content["background"], list):  # of an old file: the mean of the speakers
            content["background"] = pack_background(np.array(content["background"], ndmin=2))
        ranges = content["quality_ranges"]
        content["quality_ranges"] = {name: (float(a), float(b)) for name, (a, b) in ranges.items()}
        for name in ("nontarget_spread", "target_spread"):
            if content[name] is not None:
                try:
                    # Where no quality is given, means stand for it.
                    content[name] = Spread.from_plain(content[name], set(content["quality_means"]))
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
        if levels is not None:
            try:
                table = checked_levels(levels)
            except ValueError as error:
                raise ValueError(f"false_accept_thresholds: {error}") from error
            if table:
                count = max(1, content["trials"] - content["targets"])
                content["nontarget_spread"] = Spread({}, {}, table, count)
        return cls(**content)

    def save(self, path: str | Path) -> None:
        """Write a JSON file; it appears under its name only once it is complete."""
        text = json.dumps(self.plain(), indent=2, allow_nan=False, ensure_ascii=False)
        write_text(path, text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Read a file of ``save``; whatever is not one is a ValueError."""
        path = Path(path)
        content = read_file(path, "calibration file", LARGEST_BYTES)
        try:  # text that is not UTF-8 or not JSON is a ValueError, too
            return cls.from_plain(json.loads(content.decode()))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{path}: {error}; expected a file of simple-spk calibrate: train it again"
            ) from error


def train_calibration(
    scores: ArrayLike,
    is_target: ArrayLike,
    quality: Quality | None = None,
    target_prior: float = 0.01,
    trained_on: str = "",
    background: NDArray[np.floating] | None = None,
) -> Calibration:
    """The calibration of scores (n,) whose labels (n,) are known.

    Minimizes the cross-entropy of the labels at ``target_prior``, a convex function, by Newton's
    method with exact derivatives; features are standardized inside, so their units do not matter.
    ``background`` (m, dim) is that of the measure of typicality, if there is one.
    """
    if not 0.0 < target_prior < 1.0:
        raise ValueError(f"target_prior must lie strictly between 0 and 1, not {target_prior}")
    values, labels, _ = checked_trials(scores, is_target)
    named = {"score": values} | dict(quality or {})
    columns = [_measure(name, values, len(labels)) for name, values in named.items()]
    means, deviations = np.array([[x.mean(), x.std()] for x in columns]).T
    # Rounding alone gives a constant feature some deviation; scaled up, that would be a feature.
    deviations[deviations <= 1e-12 * np.abs(means)] = np.inf
    standard = (np.stack(columns, 1) - means) / deviations
    features = np.concatenate([standard.T, np.ones((1, len(labels)))])
    weights = _fitted_weights(features, labels, target_prior)
    slopes = weights[: len(named)] / deviations
    measure_names = list(named)[1:]
    trained = Calibration(
        score_weight=float(slopes[0]),
        offset=float(weights[-1] - slopes @ means),
        quality_weights=dict(zip(measure_names, slopes[1:].tolist(), strict=True)),
        target_prior=target_prior,
        trained_on=trained_on,
        trials=len(labels),
        targets=int(np.count_nonzero(labels)),
        quality_ranges={
            name: (float(values.min()), float(values.max()))
            for name, values in zip(measure_names, columns[1:], strict=True)
        },
        quality_means=dict(zip(measure_names, means[1:].tolist(), strict=True)),
        background="" if background is None else pack_background(background),
    )
    ratios = trained.apply(columns[0], quality)
    measures = dict(zip(measure_names, columns[1:], strict=True))
    spreads = [
        fit_spread(ratios[of_class], {name: x[of_class] for name, x in measures.items()})
        for of_class in (~labels, labels)
    ]
    return replace(trained, nontarget_spread=spreads[0], target_spread=spreads[1])


def _fitted_weights(features: Values, labels: NDArray[np.bool_], target_prior: float) -> Values:
    """The weights (k,) of features (k, n) for trials with labels (n,)."""
    targets = int(np.count_nonzero(labels))
    nontargets = len(labels) - targets
    as_target = np.where(labels, target_prior / targets, 0.0)
    as_nontarget = np.where(labels, 0.0, (1.0 - target_prior) / nontargets)
    weights = _minimum(features, as_target, as_nontarget, target_prior)
    fitted = weights @ features
    if fitted[labels].min() >= fitted[~labels].max() and fitted.min() < fitted.max():
        # The scores separate the classes: a trial of each counts as one of the other.
        as_target[~labels] = target_prior / ((targets + 2) * nontargets)
        as_nontarget[labels] = (1.0 - target_prior) / ((nontargets + 2) * targets)
        weights = _minimum(features, as_target, as_nontarget, target_prior)
    return weights


def _minimum(
    features: Values, as_target: Values, as_nontarget: Values, target_prior: float
) -> Values:
    """The weights (k,) of features (k, n), the last of which is 1, with the least cross-entropy.

    A trial counts as a target with one mass (n,), and as a non-target with another.
    """
    # Imported here: applying a calibration does not need it.
    from scipy.optimize import minimize
    from scipy.special import expit

    prior_log_odds = math.log(target_prior / (1.0 - target_prior))
    ridge = np.append(np.full(len(features) - 1, RIDGE), 0.0)

    def cost(weights: Values) -> tuple[float, Values]:
        log_odds = weights @ features + prior_log_odds
        value = as_target @ np.logaddexp(0.0, -log_odds)
        value += as_nontarget @ np.logaddexp(0.0, log_odds)
        slopes = as_nontarget * expit(log_odds) - as_target * expit(-log_odds)
        return float(value + ridge @ weights**2 / 2), features @ slopes + ridge * weights

    def curvature(weights: Values) -> Values:
        certainty = expit(weights @ features + prior_log_odds)
        bends = (as_target + as_nontarget) * certainty * (1 - certainty)
        return (features * bends) @ features.T + np.diag(ridge)

    settings = {"method": "trust-exact", "options": {"gtol": 1e-12}}
    found = minimize(cost, np.zeros(len(features)), jac=True, hess=curvature, **settings)
    # ``found.success`` is of no use: at the minimum, rounding may prevent further improvement.
    if not np.max(np.abs(found.jac)) < 1e-6:
        raise ValueError(f"the calibration did not converge ({found.message}): check the scores")
    return found.x


def _measure(name: str, values: NDArray[Any], count: int) -> Values:
    """A feature (count,) as float64, or a ValueError that says what is wrong with it."""
    if values.shape != (count,):
        raise ValueError(f"{name} has shape {values.shape}; expected ({count},), one per trial")
    values = values.astype(np.float64)
    require_all(np.isfinite(values), values, f"every {name} must be finite")
    return values


def _problem(content: dict[str, Any]) -> str | None:
    """What is wrong with the fields of a calibration file, if anything is."""
    fields = Calibration.__dataclass_fields__
    if set(content) != set(fields):
        return f"found the fields {', '.join(map(str, content))} instead of {', '.join(fields)}"
    quality, ranges = content["quality_weights"], content["quality_ranges"]
    if not isinstance(quality, dict):
        return "quality_weights is not a mapping"
    means, background = content["quality_means"], content["background"]
    if not isinstance(means, dict) or not set(means) <= set(quality):
        return "quality_means is not a mapping of the quality measures"
    if isinstance(background, list):
        if not all(map(_is_finite_number, background)):
            return "background is not a list of finite numbers"
    elif not isinstance(background, str) or not is_background(background):
        return "background is not base64 of finite 16-bit numbers"
    for name, value in means.items():
        if not _is_finite_number(value):
            return f"quality_means: {name} is {value!r} and not a finite number"
    numbers = {name: content[name] for name in ("score_weight", "offset", "target_prior")} | quality
    for name, value in numbers.items():
        if not isinstance(name, str) or not _is_finite_number(value):
            return f"{name} is {value!r} and not a finite number"
    if not 0.0 < content["target_prior"] < 1.0:
        return f"target_prior is {content['target_prior']} and not between 0 and 1"
    if not isinstance(content["trained_on"], str):
        return f"trained_on is {content['trained_on']!r}"
    for name in ("trials", "targets"):
        if type(content[name]) is not int or not 0 <= content[name] < 2**53:
            return f"{name} is {content[name]!r}"
    if not isinstance(ranges, dict) or not set(ranges) <= set(quality):
        return "quality_ranges is not a mapping of the quality measures"
    for name, ends in ranges.items():
        if not _is_pair(ends) or ends[0] > ends[1]:
            return f"quality_ranges: {name} is {ends!r}, not from a number to a greater one"
    return None


def _is_pair(value: Any) -> bool:
    """Whether plain data is a list of two finite numbers."""
    return isinstance(value, list) and len(value) == 2 and all(map(_is_finite_number, value))


def _is_finite_number(value: Any) -> bool:
    """Whether plain data is a number that a float can hold; True and False are none."""
    # The comparison is false of NaN, and right for integers of any size.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
