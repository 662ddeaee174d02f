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

    There is no score if a side has no sound at all, and neither ratio nor probability without a
    calibration.
    """

    score: float | None  # the model's similarity of the two sides
    log_likelihood_ratio: float | None  # natural logarithm, same over different speakers
    probability: float | None  # of the same speaker
    accepted: bool | None  # as the same speaker; None if the evidence does not suffice
    threshold: float | None  # the least log likelihood ratio (or else score) that is accepted
    reason: str  # the decision rule, or why there is no decision
    qualities: tuple[tuple[RecordingQuality, ...], tuple[RecordingQuality, ...]]

    @property
    def sureness(self) -> str:
        """The strength of the evidence in the words of forensic reports."""
        ratio = self.log_likelihood_ratio
        if self.score is None:
            return "no evidence"
        if ratio is None:
            return "unknown: the model is not calibrated"
        for least, words in SURENESS.items():
            if abs(ratio) >= math.log(least):
                return f"{words} for {'one speaker' if ratio > 0 else 'two speakers'}"
        return "no evidence either way"


class Candidate(NamedTuple):
    """An enrolled voice compared with a recording; the fields are those of a decision."""

    name: str
    score: float
    log_likelihood_ratio: float | None
    probability: float | None


class Identification(NamedTuple):
    """The enrolled speaker of a recording.

    name is None if it is nobody of those enrolled (accepted is False), or if the evidence does not
    suffice (accepted is None). The candidates are the likeliest voices, the likeliest first; the
    sum of the probabilities of all voices is below 1, the rest is that of other speakers. A
    recording without any sound has no candidates.
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
        least = f"{LEAST_SIGNAL_TO_NOISE_DB:.0f} dB is the least"
        return f"a signal-to-noise ratio of {clearest:.0f} dB, and {least}"
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


def posterior(
    log_likelihood_ratios: NDArray[np.float64], prior: float, voices: int, log_total: float
) -> NDArray[np.float64]:
    """The probabilities (k,) of k voices among all, one of which it is with probability ``prior``.

    The prior is shared evenly, so the same ratio gives a lower probability among more voices.
    ``log_total`` is the logarithm of the sum of the ratios of all voices. What is missing to 1 is
    the probability of somebody else.

    >>> posterior(np.array([0.0, 0.0]), 0.5, voices=2, log_total=math.log(2)).round(3).tolist()
    [0.25, 0.25]
    """
    share = log_odds(prior) - math.log(voices)
    return np.exp(log_likelihood_ratios + share - np.logaddexp(0.0, log_total + share))
