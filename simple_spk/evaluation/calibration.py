"""Calibration: scores as natural-log likelihood ratios, learned by logistic regression.

    llr = offset + weight * score + the sum of weight * quality measure

trained on one list and applied to others. The classes are weighted by the target prior, whatever
their numbers of trials: the ratios are best for applications with that share of targets. The
default 0.01 is that of the usual minDCF; 0.5 minimizes Cllr.

If the scores separate the classes without an error, any scale would fit them. Then one non-target
counts as if it had scored like the targets, and one target like the non-targets, so that ratios are
limited by the number of trials (as with Platt's smoothed labels, but for any prior).
"""

import itertools
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simple_spk.evaluation.error_rates import checked_trials, require_all
from simple_spk.io.atomic_file import write_text
from simple_spk.io.input_file import read_file

VERSION = 2
# False-accept rates whose thresholds are learned, as far as ten false accepts or more are expected.
RATES = (0.5, 0.3, 0.1, 0.03, 0.01, 0.003, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
FEWEST_FALSE_ACCEPTS = 10
RIDGE = 1e-9  # on weights of standardized features: bounds that of a feature that adds nothing
LARGEST_BYTES = 100_000  # of a file
DURATION = "log_duration"  # suffix of the names of the quality measures of durations

Values = NDArray[np.float64]
Quality = Mapping[str, NDArray[np.floating]]  # measures (n,) of the n trials, by name


class RateThreshold(NamedTuple):
    """The least accepted ratio at a false-accept rate; extrapolated if the list was too short."""

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
    # False-accept rates, falling, each with the ratio to accept from, measured on the non-targets.
    false_accept_thresholds: tuple[tuple[float, float], ...] = ()
    # Least and greatest value of each measure; one outside is clipped: nothing is known about it.
    quality_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def needs_durations(self) -> bool:
        """Whether one of the quality measures is of durations."""
        return any(name.endswith(DURATION) for name in self.quality_weights)

    def apply(self, scores: ArrayLike, quality: Quality | None = None) -> Values:
        """Natural-log likelihood ratios (n,) of scores (n,) and the quality measures they need."""
        given = quality or {}
        absent = sorted(set(self.quality_weights) - set(given))
        if absent:
            raise ValueError(
                f"this calibration needs the quality measures {', '.join(absent)}: give what they "
                "are made of, or train one without them"
            )
        ratios = self.offset + self.score_weight * np.asarray(scores, dtype=np.float64)
        for name, weight in self.quality_weights.items():
            low, high = self.quality_ranges.get(name, (-np.inf, np.inf))
            ratios += weight * _measure(name, given[name], len(ratios)).clip(low, high)
        if not np.isfinite(ratios).all():
            raise ValueError("this calibration gives ratios that are not finite: train it again")
        return ratios

    def threshold_at(self, false_accept_rate: float, voices: int = 1) -> RateThreshold:
        """The ratio from which acceptance is wrong for at most that share of non-targets.

        Several voices share the rate. Between measured rates the ratio is interpolated over their
        logarithms. Below the lowest one, at most exp(-t) of non-targets have a calibrated ratio of
        t or more, and the share falls as fast from the last measured point on: the stricter counts.
        """
        if not 0.0 < false_accept_rate < 1.0:
            raise ValueError(f"a FAR lies strictly between 0 and 1, not {false_accept_rate}")
        false_accept_rate /= voices
        wanted = -math.log(false_accept_rate)
        if not self.false_accept_thresholds:
            return RateThreshold(wanted, True)
        last_rate, last_ratio = self.false_accept_thresholds[-1]
        if false_accept_rate < last_rate:
            return RateThreshold(max(wanted, last_ratio + wanted + math.log(last_rate)), True)
        rates, ratios = np.array(self.false_accept_thresholds).T
        return RateThreshold(float(np.interp(wanted, -np.log(rates), ratios)), False)

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, for JSON and YAML."""
        lists_for_tuples = json.loads(json.dumps(asdict(self)))
        return {"calibration_version": VERSION, **lists_for_tuples}

    @classmethod
    def from_plain(cls, content: object) -> "Calibration":
        """The calibration that plain data of ``plain`` describe; anything else is a ValueError."""
        if not isinstance(content, dict) or content.get("calibration_version") != VERSION:
            raise ValueError(f"no calibration of version {VERSION}")
        content = {name: value for name, value in content.items() if name != "calibration_version"}
        if problem := _problem(content):
            raise ValueError(problem)
        pairs, ranges = content["false_accept_thresholds"], content["quality_ranges"]
        content["false_accept_thresholds"] = tuple((float(r), float(t)) for r, t in pairs)
        content["quality_ranges"] = {name: (float(a), float(b)) for name, (a, b) in ranges.items()}
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
        try:  # text that is no UTF-8 or no JSON is a ValueError too
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
) -> Calibration:
    """The calibration of scores (n,) whose labels (n,) are known.

    Minimizes the cross-entropy of the labels at ``target_prior``, a convex function, by Newton's
    method with exact derivatives; features are standardized inside, so their units do not matter.
    """
    if not 0.0 < target_prior < 1.0:
        raise ValueError(f"target_prior must lie strictly between 0 and 1, not {target_prior}")
    values, labels, _ = checked_trials(scores, is_target)
    targets = int(np.count_nonzero(labels))
    named = {"score": values} | dict(quality or {})
    columns = [_measure(name, values, len(labels)) for name, values in named.items()]
    means, deviations = np.array([[x.mean(), x.std()] for x in columns]).T
    # Rounding alone gives a constant feature some deviation; scaled up, that would be a feature.
    deviations[deviations <= 1e-12 * np.abs(means)] = np.inf
    features = np.stack([*((np.stack(columns, 1) - means) / deviations).T, np.ones(len(labels))])
    nontargets = len(labels) - targets
    as_target = np.where(labels, target_prior / targets, 0.0)
    as_nontarget = np.where(labels, 0.0, (1.0 - target_prior) / nontargets)
    weights = _minimum(features, as_target, as_nontarget, target_prior)
    fitted = weights @ features
    if fitted[labels].min() >= fitted[~labels].max() and fitted.min() < fitted.max():
        as_target[~labels] = target_prior / ((targets + 2) * nontargets)
        as_nontarget[labels] = (1.0 - target_prior) / ((nontargets + 2) * targets)
        weights = _minimum(features, as_target, as_nontarget, target_prior)
    slopes = weights[:-1] / deviations
    trained = Calibration(
        score_weight=float(slopes[0]),
        offset=float(weights[-1] - slopes @ means),
        quality_weights=dict(zip(list(named)[1:], slopes[1:].tolist(), strict=True)),
        target_prior=target_prior,
        trained_on=trained_on,
        trials=len(labels),
        targets=targets,
        quality_ranges={
            name: (float(values.min()), float(values.max()))
            for name, values in list(zip(named, columns, strict=True))[1:]
        },
    )
    falling = np.sort(trained.apply(columns[0], quality)[~labels])[::-1]
    # Just above the first one that must not be accepted: right with any number of ties.
    thresholds = tuple(
        (rate, float(np.nextafter(falling[int(rate * nontargets)], np.inf)))
        for rate in RATES
        if int(rate * nontargets) >= FEWEST_FALSE_ACCEPTS
    )
    return replace(trained, false_accept_thresholds=thresholds)


def quality_measures(
    enroll: NDArray[np.integer],
    test: NDArray[np.integer],
    durations_seconds: NDArray[np.floating] | None = None,
    embeddings: NDArray[np.floating] | None = None,
) -> dict[str, Values]:
    """Quality measures (n,) of trials whose sides (n,) are rows of what is known of recordings.

    Of ``durations_seconds`` (recordings,) the logarithm, of ``embeddings`` (recordings, dim) the
    length, which grows with the confidence of a SimPLE encoder; of both the lesser and the greater
    of the two sides, so that enrollment and test can change places.
    """
    lengths = None
    if embeddings is not None:
        lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1)
    of_recordings = recording_measures(durations_seconds, lengths)
    first, second = ({n: v[side] for n, v in of_recordings.items()} for side in (enroll, test))
    return pair_measures(first, second)


def recording_measures(
    durations_seconds: NDArray[np.floating] | None = None,
    embedding_lengths: NDArray[np.floating] | None = None,
) -> dict[str, Values]:
    """The measures (n,) of n recordings or voices, of which those of trials are made."""
    found: dict[str, Values] = {}
    if durations_seconds is not None:
        require_all(durations_seconds > 0, durations_seconds, "durations must be positive")
        found[DURATION] = np.log(durations_seconds.astype(np.float64))
    if embedding_lengths is not None:
        found["length"] = embedding_lengths.astype(np.float64)
    return found


def pair_measures(enroll: Quality, test: Quality) -> dict[str, Values]:
    """Quality measures (n,) of trials from those of their sides, (n,) or one for all (1,)."""
    found = {}
    for name, values in enroll.items():
        found[f"least_{name}"] = np.minimum(values, test[name])
        found[f"greatest_{name}"] = np.maximum(values, test[name])
    return found


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
        return f"found the fields {', '.join(content)} instead of {', '.join(fields)}"
    quality, ranges = content["quality_weights"], content["quality_ranges"]
    if not isinstance(quality, dict):
        return "quality_weights is not a mapping"
    numbers = {name: content[name] for name in ("score_weight", "offset", "target_prior")} | quality
    for name, value in numbers.items():
        if not isinstance(name, str) or not _is_finite_number(value):
            return f"{name} is {value!r} and not a finite number"
    if not 0.0 < content["target_prior"] < 1.0:
        return f"target_prior is {content['target_prior']} and not between 0 and 1"
    for name, kind in (("trained_on", str), ("trials", int), ("targets", int)):
        if type(content[name]) is not kind:
            return f"{name} is {content[name]!r}"
    if not isinstance(ranges, dict) or not set(ranges) <= set(quality):
        return "quality_ranges is not a mapping of the quality measures"
    for name, ends in ranges.items():
        if not _is_pair(ends) or ends[0] > ends[1]:
            return f"quality_ranges: {name} is {ends!r}, not from a number to a greater one"
    pairs = content["false_accept_thresholds"]
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        return "false_accept_thresholds is not a list of pairs of numbers"
    if not all(0.0 < rate < 1.0 for rate, _ in pairs):
        return "false_accept_thresholds has a rate that is not between 0 and 1"
    if any(b[0] >= a[0] or b[1] < a[1] for a, b in itertools.pairwise(pairs)):
        return "false_accept_thresholds: rates must fall, and their thresholds not"
    return None


def _is_pair(value: Any) -> bool:
    """Whether plain data is a list of two finite numbers."""
    return isinstance(value, list) and len(value) == 2 and all(map(_is_finite_number, value))


def _is_finite_number(value: Any) -> bool:
    """Whether plain data is a number that a float can hold; True and False are none."""
    # The comparison is false of NaN, and right for integers of any size.
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
