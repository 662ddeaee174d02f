"""Answers to "who speaks?", with a probability, or with the reason why nobody can tell."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.speech_quality import RecordingQuality

# With less than this, an answer would be a guess; both hold for the recordings of a side together.
LEAST_SPEECH_SECONDS = 0.5
LEAST_SIGNAL_TO_NOISE_DB = 0.0
# Worth a warning.
LITTLE_SPEECH_SECONDS = 2.0
LITTLE_SIGNAL_TO_NOISE_DB = 10.0
MUCH_CLIPPING_SHARE = 0.01
# Likelihood ratios from which evidence is called so, as forensic reports do.
SURENESS = (
    *((1e4, "very strong evidence"), (1e3, "strong evidence"), (1e2, "fairly strong evidence")),
    *((1e1, "moderate evidence"), (2.0, "weak evidence")),
)


class Verdict(NamedTuple):
    """The answer to: do the recordings of two sides have one speaker?

    Arguments:
        score: the model's similarity of the two sides; None if one of them holds nothing at all.
        log_likelihood_ratio: natural logarithm of how much likelier that score is if they have one
            speaker; None if the model is not calibrated.
        probability: that they have one speaker; None if the model is not calibrated.
        accepted: whether to take them for one speaker; None if nobody can tell, or nobody should.
        threshold: what was accepted from: a log likelihood ratio, or else a score.
        reason: for what is accepted, in words.
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
        """How much the score says, in the words of forensic reports."""
        return "no evidence" if self.score is None else in_words(self.log_likelihood_ratio)


class Candidate(NamedTuple):
    """An enrolled voice beside a recording; the fields are those of a verdict."""

    name: str
    score: float
    log_likelihood_ratio: float | None
    probability: float | None


class Identification(NamedTuple):
    """The answer to: whose voice is this?

    name is who it is, or None: nobody of those enrolled (accepted is False), or nobody can tell
    (accepted is None). All voices that are enrolled are candidates, the likeliest first; their
    probabilities leave room for somebody else. A recording that holds nothing has no candidates.
    """

    name: str | None
    accepted: bool | None
    candidates: tuple[Candidate, ...]
    threshold: float | None
    reason: str
    qualities: tuple[RecordingQuality, ...]


def lack_of_evidence(qualities: Sequence[RecordingQuality]) -> str | None:
    """Why recordings together cannot tell a voice, with what was measured; None if they can."""
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
    """What makes an answer about a recording less reliable, in a word or two each."""
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

    The prior is shared evenly; what is missing to 1 is the probability of somebody else. So the
    same ratio convinces less the more voices there are.

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
    for least, words in SURENESS:
        if abs(log_likelihood_ratio) >= math.log(least):
            return f"{words} for {'one speaker' if log_likelihood_ratio > 0 else 'two speakers'}"
    return "no evidence either way"
