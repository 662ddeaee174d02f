"""Calibration: scores as natural-log likelihood ratios, learnt by logistic regression.

    llr = offset + weight * score + the sum of weight * quality measure

trained on one list and applied to others. Decisions are then a matter of arithmetic (accept from
``metrics.bayes_threshold`` upwards), and ``act_dcf`` and ``cllr`` say how good they are.

Both classes together weigh as the target prior says, whatever their numbers of trials. That prior
says where the ratios shall be best: at the decisions of an application where so many trials are of
targets. The default 0.01 is that of the usual minDCF; 0.5 minimises Cllr.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from simple_spk.whole_file import whole_file

VERSION = 1
RIDGE = 1e-9  # on weights of standardised features: bounds them where the classes are separable
DURATION = "log_duration"  # what the quality measures of durations are called after

Quality = Mapping[str, NDArray[np.floating]]  # measures (n,) of the n trials, by name


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

    @property
    def needs_durations(self) -> bool:
        """Whether one of the quality measures is of durations."""
        return any(name.endswith(DURATION) for name in self.quality_weights)

    def apply(self, scores: ArrayLike, quality: Quality | None = None) -> NDArray[np.float64]:
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
            ratios += weight * _measure(name, given[name], len(ratios))
        return ratios

    def save(self, path: str | Path) -> None:
        """Write a JSON file; it appears under its name only once it is complete."""
        content = {"calibration_version": VERSION} | asdict(self)
        text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
        with whole_file(path) as partial:
            partial.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Calibration":
        """Read a file of ``save``; whatever is not one is a ValueError."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"no calibration file at {path}: correct the path")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON ({error}); expected {_ORIGIN}") from error
        if not isinstance(content, dict) or content.get("calibration_version") != VERSION:
            raise ValueError(
                f"{path} is no calibration of version {VERSION}; expected {_ORIGIN} of this version"
            )
        del content["calibration_version"]
        problem = _problem(content)
        if problem:
            raise ValueError(f"{path}: {problem}; expected {_ORIGIN}: train it again")
        return cls(**content)


_ORIGIN = "a file of simple-spk calibrate"


def train_calibration(
    scores: ArrayLike,
    is_target: ArrayLike,
    quality: Quality | None = None,
    target_prior: float = 0.01,
    trained_on: str = "",
) -> Calibration:
    """The calibration of scores (n,) whose labels (n,) are known.

    Minimises the cross-entropy of the labels at ``target_prior``, a convex function, by Newton's
    method with exact derivatives; features are standardised inside, so their units do not matter.
    """
    if not 0.0 < target_prior < 1.0:
        raise ValueError(f"target_prior must lie strictly between 0 and 1, not {target_prior}")
    labels = np.asarray(is_target).astype(bool)
    targets = int(np.count_nonzero(labels))
    if labels.ndim != 1 or not 0 < targets < len(labels):
        raise ValueError(
            f"found {targets} targets and {labels.size - targets} non-targets of shape "
            f"{labels.shape}; at least one of each in one dimension is needed to calibrate"
        )
    named = {"score": np.asarray(scores)} | dict(quality or {})
    columns = [_measure(name, values, len(labels)) for name, values in named.items()]
    means, deviations = np.array([[x.mean(), x.std()] for x in columns]).T
    # Rounding alone gives a constant feature some deviation; scaled up, that would be a feature.
    deviations[deviations <= 1e-12 * np.abs(means)] = np.inf
    features = np.stack([*((np.stack(columns, 1) - means) / deviations).T, np.ones(len(labels))])
    masses = np.where(labels, target_prior / targets, (1 - target_prior) / (len(labels) - targets))
    weights = _minimum(features, labels, masses, math.log(target_prior / (1 - target_prior)))
    slopes = weights[:-1] / deviations
    return Calibration(
        score_weight=float(slopes[0]),
        offset=float(weights[-1] - slopes @ means),
        quality_weights=dict(zip(list(named)[1:], slopes[1:].tolist(), strict=True)),
        target_prior=target_prior,
        trained_on=trained_on,
        trials=len(labels),
        targets=targets,
    )


def quality_measures(
    enrol: NDArray[np.integer],
    test: NDArray[np.integer],
    durations_seconds: NDArray[np.floating] | None = None,
    embeddings: NDArray[np.floating] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Quality measures (n,) of trials whose sides (n,) are rows of what is known of recordings.

    Of ``durations_seconds`` (recordings,) the logarithm, of ``embeddings`` (recordings, dim) the
    length, which grows with the confidence of a SimPLE encoder; of both the lesser and the greater
    of the two sides, so that enrolment and test can change places.
    """
    of_recordings: dict[str, NDArray[np.float64]] = {}
    if durations_seconds is not None:
        if not np.all(durations_seconds > 0):
            shortest = int(np.argmin(durations_seconds))
            raise ValueError(
                f"durations must be positive, but that of recording {shortest} is "
                f"{durations_seconds[shortest]} s: correct it"
            )
        of_recordings[DURATION] = np.log(durations_seconds.astype(np.float64))
    if embeddings is not None:
        of_recordings["length"] = np.linalg.norm(embeddings.astype(np.float64), axis=1)
    found = {}
    for name, values in of_recordings.items():
        found[f"least_{name}"] = np.minimum(values[enrol], values[test])
        found[f"greatest_{name}"] = np.maximum(values[enrol], values[test])
    return found


def _minimum(
    features: NDArray[np.float64],
    labels: NDArray[np.bool_],
    masses: NDArray[np.float64],
    prior_log_odds: float,
) -> NDArray[np.float64]:
    """The weights (k,) of features (k, n), the last of which is 1, with the least cross-entropy."""
    signs = np.where(labels, 1.0, -1.0)
    ridge = np.append(np.full(len(features) - 1, RIDGE), 0.0)

    def cost(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = signs * (weights @ features + prior_log_odds)
        gradient = features @ (-signs * masses * expit(-margins)) + ridge * weights
        return float(masses @ np.logaddexp(0.0, -margins) + ridge @ weights**2 / 2), gradient

    def curvature(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        certainty = expit(weights @ features + prior_log_odds)
        return (features * (masses * certainty * (1 - certainty))) @ features.T + np.diag(ridge)

    start = np.zeros(len(features))
    found = minimize(
        cost, start, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-12}
    )
    # Its own verdict is of no use: at the minimum, rounding may keep it from improving further.
    if not np.max(np.abs(found.jac)) < 1e-6:
        raise ValueError(f"the calibration did not converge ({found.message}): check the scores")
    return found.x


def _measure(name: str, values: NDArray[Any], count: int) -> NDArray[np.float64]:
    """A feature (count,) as float64, or a ValueError that says what is wrong with it."""
    if values.shape != (count,):
        raise ValueError(f"{name} has shape {values.shape}; expected ({count},), one per trial")
    values = values.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"{len(bad)} of {count} values of {name} are not finite, the first at index {bad[0]}: "
            f"{values[bad[0]]}; every trial needs a finite one"
        )
    return values


def _problem(content: dict[str, Any]) -> str | None:
    """What is wrong with the fields of a calibration file, if anything is."""
    fields = Calibration.__dataclass_fields__
    if set(content) != set(fields):
        return f"found the fields {', '.join(content)} instead of {', '.join(fields)}"
    quality = content["quality_weights"]
    if not isinstance(quality, dict):
        return "quality_weights is not a mapping"
    numbers = {name: content[name] for name in ("score_weight", "offset", "target_prior")} | quality
    for name, value in numbers.items():
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            return f"{name} is {value!r} and not a finite number"
    if not 0.0 < content["target_prior"] < 1.0:
        return f"target_prior is {content['target_prior']} and not between 0 and 1"
    for name, kind in (("trained_on", str), ("trials", int), ("targets", int)):
        if not isinstance(content[name], kind):
            return f"{name} is {content[name]!r}"
    return None
