"""Speech, noise, clipping and bandwidth of a recording.

Speech and noise are told apart by energy: music counts as speech, and a steady vowel without a
pause as noise. That is enough to detect an empty or noisy recording, and the same on every machine,
as calibrations need it. A speech detector, where it is installed, says how much of it is speech.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.audio import recording_blocks
from simple_spk.inference import speech_detector
from simple_spk.inference.speech_detector import SpeechDetector

FRAME_SECONDS = 0.02
SILENT_POWER = 1e-8  # 80 dB below full scale: the front end's dither masks what is quieter
QUIET_PERCENTILE, LOUD_PERCENTILE = 10.0, 95.0  # of the frames: noise and speech
THRESHOLD_SHARE, LEAST_THRESHOLD_DECIBEL = 0.4, 5.0  # of the range between them, above the noise
SHORTEST_SOUND_FRAMES = 3  # clicks are shorter than any speech sound
HANGOVER_FRAMES = 5  # weak sounds of a word are next to its strong ones
CLIPPED_RUN_SAMPLES = 3  # natural peaks do not have so many equal samples
QUIETEST_CLIPPED_PEAK = 0.05  # below, equal samples come from coarse quantization
DECIBEL_RANGE = (-20.0, 80.0)  # of the signal-to-noise ratio; beyond, estimates mean nothing
SPEECH_LIMITS_SECONDS, NOISE_LIMITS_DECIBEL = (0.3, 20.0), (0.0, 30.0)  # of measures
BAND_SHARE = 1e-5  # of the power at the loudest frequency: less is outside the band
# Lines end at 4 kHz; a slow filter of a resampler lets some of it through above.
NARROW_BAND_HERTZ = 5000.0


class RecordingQuality(NamedTuple):
    """Duration, amount of speech and noise of a recording.

    peak is the largest absolute sample, 1.0 at full scale; clipped_share the share of clipped
    samples; bandwidth_hertz the highest frequency of its spectrum, about 4,000 after a telephone;
    tone_share the largest share of its power in 150 Hz. detected_speech_seconds is speech found by
    a detector, None where that is not installed (``speech_detector``). embedding_length is the
    model's own measure: SimPLE gives clear recordings long embeddings, unless it was trained with a
    fixed length. part_ratio is the natural-log likelihood ratio of the two most unlike parts of the
    recording, low if they are of two speakers; None if it is short or the model not calibrated.
    """

    seconds: float
    speech_seconds: float
    signal_to_noise_db: float
    clipped_share: float
    peak: float
    bandwidth_hertz: float
    tone_share: float = 0.0
    detected_speech_seconds: float | None = None
    embedding_length: float | None = None  # None until it is embedded
    part_ratio: float | None = None
    sample_rate: int | None = None  # of the file, in hertz
    misnamed: str | None = None  # "WAV named .mp3": the file has another format than its name says
    channels_cancel: bool = False  # hardly anything is left of their mean (anti-phase)

    @property
    def is_narrow(self) -> bool:
        """Whether the band is that of a telephone."""
        return self.bandwidth_hertz < NARROW_BAND_HERTZ

    def sound_measures(self) -> NDArray[np.float64]:
        """The values of ``quality_measures.SOUND_MEASURES``, as far as more of them means more."""
        speech = float(np.clip(self.speech_seconds, *SPEECH_LIMITS_SECONDS))
        ratio = float(np.clip(self.signal_to_noise_db, *NOISE_LIMITS_DECIBEL))
        return np.array([np.log(speech), np.log(1.0), ratio, float(self.is_narrow)])


class SpeechFrames(NamedTuple):
    """Which frames (n,) of a recording are speech, how long one is, and what found them."""

    flags: NDArray[np.bool_]
    frame_seconds: float
    detector: str  # silero-vad or energy


def quality_of_file(path: Path, sample_rate: int) -> RecordingQuality:
    """The quality of a file, resampled to the sample rate of a model."""
    meter = QualityMeter(sample_rate)
    for block in recording_blocks(path, sample_rate):
        meter.add(block)
    return meter.quality()


class QualityMeter:
    """Measures a recording window by window, keeping one number per frame."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._powers: list[NDArray[np.float64]] = []
        self._samples = self._clipped = 0
        self._peak = 0.0
        self._rest = np.empty(0, np.float32)  # less than a frame
        self._frame_samples = round(FRAME_SECONDS * sample_rate)
        # A window with soft ends: at hard ones, loud low frequencies leak into high ones.
        self._window = np.hanning(self._frame_samples + 2)[1:-1].astype(np.float32)
        self._detector = SpeechDetector(sample_rate)
        self._spectrum = np.zeros(self._frame_samples // 2 + 1)

    def add(self, waveform: NDArray[np.float32]) -> NDArray[np.float32]:
        """Measure the next samples (samples,), and return them."""
        if not len(waveform):
            return waveform
        size = self._frame_samples
        held = np.concatenate([self._rest, waveform]) if len(self._rest) else waveform
        whole = len(held) // size * size
        frames, self._rest = held[:whole].reshape(-1, size), held[whole:].copy()
        if len(frames):
            means = frames.mean(axis=1, dtype=np.float64)  # a DC offset is inaudible
            squares = np.einsum("ij,ij->i", frames, frames, dtype=np.float64) / size
            self._powers.append(np.maximum(squares - means**2, 0.0))
            spectra = np.fft.rfft(frames * self._window, axis=1)
            self._spectrum += np.einsum("ij,ij->j", spectra, spectra.conj()).real
        self._peak = max(self._peak, float(waveform.max()), -float(waveform.min()))
        self._samples += len(waveform)
        self._clipped += _clipped_samples(waveform)
        self._detector.add(waveform)
        return waveform

    def quality(self) -> RecordingQuality:
        """The quality of all that was added."""
        powers = np.concatenate(self._powers or [np.zeros(1)])  # none: less than a frame
        heard = np.flatnonzero(powers > SILENT_POWER)
        if len(heard):  # digital silence at both ends is padding; within, it is a pause
            powers = powers[heard[0] : heard[-1] + 1]
        powers = np.maximum(powers, SILENT_POWER)
        is_speech = _speech_frames(powers)
        return RecordingQuality(
            seconds=self._samples / self.sample_rate,
            speech_seconds=float(is_speech.sum()) * FRAME_SECONDS,
            signal_to_noise_db=_signal_to_noise(powers, powers[is_speech]),
            clipped_share=self._clipped / max(1, self._samples),
            peak=self._peak,
            bandwidth_hertz=self._bandwidth(),
            tone_share=self._tone_share(),
            detected_speech_seconds=self._detector.seconds,
        )

    def speech(self, by_energy: bool = False) -> "SpeechFrames":
        """Which frames of all that was added are speech: by the detector, or else by energy."""
        found = None if by_energy else self._detector.flags
        if found is not None:
            seconds = speech_detector.FRAME_SAMPLES / speech_detector.SAMPLE_RATE
            return SpeechFrames(found, seconds, "silero-vad")
        powers = np.concatenate(self._powers or [np.zeros(1)])
        loud = powers > SILENT_POWER  # the level of a noise is not that of digital silence
        flags = np.zeros(len(powers), np.bool_)
        if loud.any():
            flags[loud] = _speech_frames(powers[loud])
        return SpeechFrames(flags, FRAME_SECONDS, "energy")

    def _tone_share(self) -> float:
        """The largest share of the power in three neighboring bands of 50 Hz."""
        heard = self._spectrum[1:]
        total = float(heard.sum())
        return float(np.convolve(heard, np.ones(3)).max()) / total if total else 0.0

    def _bandwidth(self) -> float:
        """The highest frequency with more than BAND_SHARE of the power of the loudest one."""
        heard = self._spectrum[1:]  # without a DC offset
        inside = np.flatnonzero(heard > BAND_SHARE * heard.max())
        return float(inside[-1] + 1) / FRAME_SECONDS if len(inside) else 0.0


def _speech_frames(powers: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which frames (n,) are speech: those well above the noise level, and their neighbors."""
    levels = 10.0 * np.log10(powers)
    quiet, loud = np.percentile(levels, [QUIET_PERCENTILE, LOUD_PERCENTILE])
    active = levels > quiet + max(LEAST_THRESHOLD_DECIBEL, THRESHOLD_SHARE * (loud - quiet))
    near = 2 * SHORTEST_SOUND_FRAMES - 1
    sounds = active & (_sum_around(active, near) >= SHORTEST_SOUND_FRAMES)
    return (powers > SILENT_POWER) & (_sum_around(sounds, 2 * HANGOVER_FRAMES + 1) > 0)


def _sum_around(flags: NDArray[np.bool_], width: int) -> NDArray[np.int64]:
    """Numbers (n,) of set flags among the ``width`` flags centered on each of n."""
    half = width // 2
    sums = np.concatenate([[0], np.cumsum(np.pad(flags, half))])
    return sums[width:] - sums[:-width]


def _signal_to_noise(powers: NDArray[np.float64], speech: NDArray[np.float64]) -> float:
    """The signal-to-noise ratio in decibels; the noise is that of the quietest frames."""
    noise = float(np.percentile(powers, QUIET_PERCENTILE))
    signal = float((speech if len(speech) else powers).mean()) - noise
    return float(np.clip(10.0 * np.log10(max(signal, 0.0) / noise + 1e-9), *DECIBEL_RANGE))


def _clipped_samples(waveform: NDArray[np.float32]) -> int:
    """The number of samples in runs of equal ones at the largest or the smallest value."""
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
