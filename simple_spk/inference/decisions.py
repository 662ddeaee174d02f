"""Decisions about speakers: same or different, and who, with a probability and a reason."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.speech_quality import RecordingQuality

# Below these limits no decision is made; both are of the recordings of a side together.
LEAST_SPEECH_SECONDS = 0.5
LEAST_SIGNAL_TO_NOISE_DB = 0.0
# Limits of warnings.
LITTLE_SPEECH_SECONDS = 2.0
LITTLE_SIGNAL_TO_NOISE_DB = 10.0
MUCH_CLIPPING_SHARE = 0.01
# Words of forensic reports for likelihood ratios of at least these values.
SURENESS = {
    1e4: "very strong evidence",
    1e3: "strong evidence",
    1e2: "fairly strong evidence",
    1e1: "moderate evidence",
    2.0: "weak evidence",
}


class Decision(NamedTuple):
    """Whether the recordings of two sides have the same speaker.

    Arguments:
        score: the model's similarity of the two sides; None if one of them has no sound at all.
        log_likelihood_ratio: natural logarithm, same speaker over different speakers; None if the
            model is not calibrated.
        probability: of the same speaker; None if the model is not calibrated.
        accepted: whether they count as the same speaker; None if the evidence does not suffice.
        threshold: the least log likelihood ratio (or else score) that is accepted.
        reason: the decision rule, or why there is no decision, in words.
        qualities: of the recordings of either side; none if there is no score.
    """

    score: float | None
    log_likelihood_ratio: float | None
    probability: float | None
    accepted: bool | None
    threshold: float | None
    reason: str
    qualities: tuple[tuple[RecordingQuality, ...], tuple[RecordingQuality, ...]]

    @property
    def sureness(self) -> str:
        """The strength of the evidence in the words of forensic reports."""
        return "no evidence" if self.score is None else in_words(self.log_likelihood_ratio)


class Candidate(NamedTuple):
    """An enrolled voice compared with a recording; the fields are those of a decision."""

    name: str
    score: float
    log_likelihood_ratio: float | None
    probability: float | None


class Identification(NamedTuple):
    """The enrolled speaker of a recording.

    name is None if it is nobody of those enrolled (accepted is False), or if the evidence does not
    suffice (accepted is None). All enrolled voices are candidates, the likeliest first; the sum of
    their probabilities is below 1, the rest is that of other speakers. A recording without any
    sound has no candidates.
    """

    name: str | None
    accepted: bool | None
    candidates: tuple[Candidate, ...]
    threshold: float | None
    reason: str
    qualities: tuple[RecordingQuality, ...]


def lack_of_evidence(qualities: Sequence[RecordingQuality]) -> str | None:
    """Why recordings together do not suffice for a decision; None if they do."""
    speech = sum(quality.speech_seconds for quality in qualities)
    if speech < LEAST_SPEECH_SECONDS:
        return f"{speech:.1f} s of speech, and {LEAST_SPEECH_SECONDS} s are the least"
    clearest = max(quality.signal_to_noise_db for quality in qualities)
    if clearest < LEAST_SIGNAL_TO_NOISE_DB:
        return (
            f"a signal-to-noise ratio of {clearest:.0f} dB, and {LEAST_SIGNAL_TO_NOISE_DB:.0f} dB "
            "is the least"
        )
    return None


def warnings(quality: RecordingQuality) -> list[str]:
    """What makes a decision about a recording less reliable, in a word or two each."""
    found = {
        "little speech": quality.speech_seconds < LITTLE_SPEECH_SECONDS,
        "noisy": quality.signal_to_noise_db < LITTLE_SIGNAL_TO_NOISE_DB,
        "clipped": quality.clipped_share > MUCH_CLIPPING_SHARE,
    }
    return [word for word, is_so in found.items() if is_so]


def log_odds(prior: float) -> float:
    """The natural-log odds of a probability strictly between 0 and 1."""
    if not 0.0 < prior < 1.0:
        raise ValueError(f"a prior lies strictly between 0 and 1, not {prior}")
    return math.log(prior) - math.log1p(-prior)


def posterior(log_likelihood_ratios: NDArray[np.float64], prior: float) -> NDArray[np.float64]:
    """The probabilities (n,) of n voices, one of which it is with probability ``prior``.

    The prior is shared evenly, so the same ratio gives a lower probability among more voices. What
    is missing to 1 is the probability of somebody else.

    >>> posterior(np.array([0.0, 0.0]), 0.5).round(3).tolist()
    [0.25, 0.25]
    """
    weights = log_likelihood_ratios + log_odds(prior) - math.log(len(log_likelihood_ratios))
    highest = max(0.0, float(weights.max()))
    shares = np.exp(weights - highest)
    return shares / (shares.sum() + math.exp(-highest))


def in_words(log_likelihood_ratio: float | None) -> str:
    """A log likelihood ratio in the words of forensic reports.

    >>> in_words(7.0), in_words(-1.0), in_words(0.1)
    ('strong evidence for one speaker', 'weak evidence for two speakers', 'no evidence either way')
    """
    if log_likelihood_ratio is None:
        return "unknown: the model is not calibrated"
    for least, words in SURENESS.items():
        if abs(log_likelihood_ratio) >= math.log(least):
            return f"{words} for {'one speaker' if log_likelihood_ratio > 0 else 'two speakers'}"
    return "no evidence either way"
