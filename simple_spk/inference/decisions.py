"""Decisions about speakers: same or different, and who, with a probability and a reason."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

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
LITTLE_DETECTED_SHARE = 0.3  # of what is louder than the pauses
LEAST_WIDE_BAND_RATE = 11025  # hertz: below, the sample rate itself cuts the band
TONE_SHARE = 0.95  # of the power in one narrow band
SEVERAL_SPEAKERS_RATIO = -math.log(10.0)  # natural-log likelihood ratio of two parts
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
    miss_rate: float | None = None  # expected share of genuine pairs below the threshold

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

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        qualities = [[plain_quality(one) for one in side] for side in self.qualities]
        return self._asdict() | {"sureness": self.sureness, "qualities": qualities}


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
    miss_rate: float | None = None  # expected share of genuine recordings below the threshold

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        candidates = [candidate._asdict() for candidate in self.candidates]
        qualities = [plain_quality(quality) for quality in self.qualities]
        return self._asdict() | {"candidates": candidates, "qualities": qualities}


def lack_of_evidence(qualities: Sequence[RecordingQuality]) -> str | None:
    """Why recordings together do not suffice for a decision; None if they do."""
    speech = sum(heard_seconds(quality) for quality in qualities)
    if speech < LEAST_SPEECH_SECONDS:
        return f"{speech:.1f} s of speech, and {LEAST_SPEECH_SECONDS} s are the least"
    clearest = max(quality.signal_to_noise_db for quality in qualities)
    if clearest < LEAST_SIGNAL_TO_NOISE_DB:
        least = f"{LEAST_SIGNAL_TO_NOISE_DB:.0f} dB is the least"
        return f"a signal-to-noise ratio of {clearest:.0f} dB, and {least}"
    return None


def quality_warnings(quality: RecordingQuality) -> list[str]:
    """What makes a decision about a recording less reliable, in a word or two each."""
    rate = quality.sample_rate
    sampled = f" (a file of {rate / 1000:g} kHz)" if rate and _has_low_rate(quality) else ""
    found = {
        "channels of opposite phase, which cancel each other": quality.channels_cancel,
        "little speech": heard_seconds(quality) < LITTLE_SPEECH_SECONDS,
        "noisy": quality.signal_to_noise_db < LITTLE_SIGNAL_TO_NOISE_DB,
        f"telephone band{sampled}": _has_telephone_band(quality),
        "a tone, not speech": quality.tone_share > TONE_SHARE,
        "music or noise, hardly any speech": heard_seconds(quality)
        < LITTLE_DETECTED_SHARE * quality.speech_seconds,
        "clipped": quality.clipped_share > MUCH_CLIPPING_SHARE,
        "perhaps more than one speaker": quality.part_ratio is not None
        and quality.part_ratio < SEVERAL_SPEAKERS_RATIO,
        f"wrong extension: {quality.misnamed}": quality.misnamed is not None,
    }
    return [word for word, is_so in found.items() if is_so]


def _has_low_rate(quality: RecordingQuality) -> bool:
    """Whether the sample rate of the file itself cuts the band."""
    return quality.sample_rate is not None and quality.sample_rate < LEAST_WIDE_BAND_RATE


def _has_telephone_band(quality: RecordingQuality) -> bool:
    """By the spectrum or by the rate: resampled noise reaches beyond the band of its file."""
    return quality.is_narrow or _has_low_rate(quality)


def plain_quality(quality: RecordingQuality) -> dict[str, Any]:
    """The quality of a recording as plain data, with warnings."""
    return {**quality._asdict(), "warnings": quality_warnings(quality)}


def heard_seconds(quality: RecordingQuality) -> float:
    """The seconds of speech, by the detector if there is one."""
    detected = quality.detected_speech_seconds
    return quality.speech_seconds if detected is None else min(detected, quality.seconds)


def mismatch_warnings(
    first: Sequence[RecordingQuality], second: Sequence[RecordingQuality]
) -> list[str]:
    """What makes two sides hard to compare."""
    bands = [set(map(_has_telephone_band, side)) for side in (first, second)]
    if bands == [{True}, {False}] or bands == [{False}, {True}]:
        return ["one side has the band of a telephone (up to 4 kHz), the other a wider one"]
    return []


def number(value: float) -> str:
    """A positive number as a person would say it.

    >>> number(8.73), number(1234.5), number(0.02), number(3e9)
    ('8.7', '1,200', '0.02', '3e+09')
    """
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if 100 <= rounded < 1e7 else f"{rounded:.2g}"


def ratio_in_words(log_likelihood_ratio: float) -> str:
    """A likelihood ratio as how much likelier one of both is.

    >>> ratio_in_words(2.2), ratio_in_words(-4.6)
    ('9 times likelier from one speaker', '99 times likelier from two speakers')
    """
    if abs(log_likelihood_ratio) < math.log(1.5):
        return "about as likely from one speaker as from two"
    speakers = "one speaker" if log_likelihood_ratio > 0 else "two speakers"
    return (
        f"{number(math.exp(min(abs(log_likelihood_ratio), 700.0)))} times likelier from {speakers}"
    )


def misses_in_words(miss_rate: float, of_what: str = "genuine pairs") -> str:
    """How many genuine pairs a threshold rejects.

    >>> misses_in_words(0.34)
    'at this setting about 1 in 3 genuine pairs is rejected'
    >>> misses_in_words(0.8), misses_in_words(0.0004)
    ('at this setting about 80 % of genuine pairs are rejected', \
'at this setting fewer than 1 in 100 genuine pairs are rejected')
    """
    if miss_rate < 0.01:
        return f"at this setting fewer than 1 in 100 {of_what} are rejected"
    if miss_rate > 0.6:
        return f"at this setting about {100 * miss_rate:.0f} % of {of_what} are rejected"
    return f"at this setting about 1 in {round(1 / miss_rate)} {of_what} is rejected"


def strangers_in_words(rate: float, voices: int) -> str:
    """How many strangers are taken for one of several enrolled voices.

    >>> strangers_in_words(0.04, 100), strangers_in_words(0.8, 9), strangers_in_words(3e-7, 2)
    ('which about 1 in 25 strangers reaches with one of 100 voices', \
'which most strangers reach with one of 9 voices', \
'which fewer than 1 in 10,000 strangers reach with one of 2 voices')
    """
    gallery = f"with one of {voices:,} voices"
    if rate < 1e-4:
        return f"which fewer than 1 in 10,000 strangers reach {gallery}"
    if rate > 0.6:
        return f"which most strangers reach {gallery}"
    return f"which about 1 in {round(1 / rate):,} strangers reaches {gallery}"


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
