"""How much evidence a recording holds: speech, noise, clipping. Plain measures of energy.

They see no more than loudness over time: music and other voices count as speech, and a steady
vowel without a pause as noise. That is enough to tell a wrong, empty or noisy recording.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FRAME_SECONDS = 0.02
SILENT_POWER = 1e-8  # 80 dB under full scale: what is quieter drowns in the front end's dither
QUIET_PERCENTILE, LOUD_PERCENTILE = (
    10.0,
    95.0,
)  # of the frames: noise and speech
THRESHOLD_SHARE, LEAST_THRESHOLD_DECIBEL = 0.4, 5.0  # of the range between them, above the noise
SHORTEST_SOUND_FRAMES = 3  # clicks are shorter than any sound of speech
HANGOVER_FRAMES = 5  # the weak sounds of a word lie beside its strong ones
CLIPPED_RUN_SAMPLES = 3  # so many equal samples at the very top are no sound's own
QUIETEST_CLIPPED_PEAK = 0.05  # below, equal samples are a matter of their few bits
DECIBEL_RANGE = (-20.0, 80.0)  # of signal to noise: beyond, figures mean nothing


class RecordingQuality(NamedTuple):
    """What a recording offers: its length, how much of it is speech, and how clean that is.

    peak is the largest sample, 1.0 at full scale; clipped_share the share of samples at its rails.
    embedding_length is what the model thinks of it: SimPLE makes clear recordings long, unless the
    model was trained with one length for all.
    """

    seconds: float
    speech_seconds: float
    signal_to_noise_db: float
    clipped_share: float
    peak: float
    embedding_length: float | None = None  # None until it is embedded


class QualityMeter:
    """Measures a recording window by window: it keeps one number per 20 ms."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._powers: list[NDArray[np.float64]] = []
        self._samples = self._clipped = 0
        self._peak = 0.0
        self._rest = np.empty(0, np.float32)  # less than a frame

    def add(self, waveform: NDArray[np.float32]) -> None:
        """Take the next samples (samples,) into account."""
        size = round(FRAME_SECONDS * self.sample_rate)
        held = np.concatenate([self._rest, waveform]) if len(self._rest) else waveform
        whole = len(held) // size * size
        frames, self._rest = held[:whole].reshape(-1, size), held[whole:].copy()
        if len(frames):
            means = frames.mean(axis=1, dtype=np.float64)  # a constant offset is not heard
            squares = np.einsum("ij,ij->i", frames, frames, dtype=np.float64) / size
            self._powers.append(np.maximum(squares - means**2, 0.0))
        if len(waveform):
            self._peak = max(self._peak, float(waveform.max()), -float(waveform.min()))
        self._samples += len(waveform)
        self._clipped += _clipped_samples(waveform)

    def quality(self) -> RecordingQuality:
        """The quality of all that was added."""
        powers = np.concatenate([np.zeros(0), *self._powers])
        heard = np.flatnonzero(powers > SILENT_POWER)
        if len(heard):  # silence around a recording was added to it; within, it is a pause
            powers = powers[heard[0] : heard[-1] + 1]
        powers = np.maximum(powers, SILENT_POWER)
        is_speech = _speech_frames(powers)
        return RecordingQuality(
            seconds=self._samples / self.sample_rate,
            speech_seconds=float(is_speech.sum()) * FRAME_SECONDS,
            signal_to_noise_db=_signal_to_noise(powers, powers[is_speech]),
            clipped_share=self._clipped / max(1, self._samples),
            peak=self._peak,
        )


def measure_quality(waveform: NDArray[np.float32], sample_rate: int) -> RecordingQuality:
    """The quality of a whole recording (samples,)."""
    meter = QualityMeter(sample_rate)
    meter.add(waveform)
    return meter.quality()


def _speech_frames(powers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which frames (n,) are speech: those well above the quiet ones, and their neighbors."""
    levels = 10.0 * np.log10(powers)
    if not len(levels):
        return np.zeros(0, np.bool_)
    quiet, loud = np.percentile(levels, [QUIET_PERCENTILE, LOUD_PERCENTILE])
    threshold = quiet + max(LEAST_THRESHOLD_DECIBEL, THRESHOLD_SHARE * (loud - quiet))
    active = levels > threshold
    near = 2 * SHORTEST_SOUND_FRAMES - 1
    sounds = active & (_sum_around(active, near) >= SHORTEST_SOUND_FRAMES)
    return (powers > SILENT_POWER) & (_sum_around(sounds, 2 * HANGOVER_FRAMES + 1) > 0)


def _sum_around(flags: NDArray[np.bool_], width: int) -> NDArray[np.int64]:
    """How many of the ``width`` flags centered on each of n are set, (n,)."""
    half = width // 2
    sums = np.concatenate([[0], np.cumsum(np.pad(flags, half))])
    return sums[width:] - sums[:-width]


def _signal_to_noise(powers: NDArray[np.float64], speech: NDArray[np.float64]) -> float:
    """Decibels between the powers of speech frames and those of the quietest of all frames."""
    if not len(powers):
        return DECIBEL_RANGE[0]
    noise = float(np.percentile(powers, QUIET_PERCENTILE))
    signal = float((speech if len(speech) else powers).mean()) - noise
    ratio = max(signal, 0.0) / noise
    return float(np.clip(10.0 * np.log10(ratio + 1e-9), *DECIBEL_RANGE))


def _clipped_samples(waveform: NDArray[np.float32]) -> int:
    """How many samples lie in runs of equal ones at the upper or the lower rail."""
    if not len(waveform):
        return 0
    count = 0
    lowest, highest = waveform.min(), waveform.max()
    for rail in (highest, lowest) if highest > lowest else ():
        if abs(rail) < QUIETEST_CLIPPED_PEAK:
            continue
        places = np.flatnonzero(waveform == rail)
        ends = np.flatnonzero(np.diff(places, append=len(waveform) + 1) > 1)
        runs = np.diff(ends, prepend=-1)
        count += int(runs[runs >= CLIPPED_RUN_SAMPLES].sum())
    return count
