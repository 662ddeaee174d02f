"""Noise, rooms, channels and codecs for training crops, each drawn from the crop's own seed.

SpeechBrain's noise loaders are not used: no checkpoint saves their position in a random order, so a
resumed run would draw other noises, and they read whole files where a crop is needed. SciPy
convolves, because it pads to lengths that transform fast.
"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import fftconvolve

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import read_crop, read_recording
from simple_spk.data.codecs import (
    CODECS,
    bit_rate_range,
    check_bit_rate,
    through_codec,
    unavailable_codecs,
)
from simple_spk.data.manifest import Manifest, read_manifest

Waveform = NDArray[np.float32]


class NoiseKind(NamedTuple):
    """One kind of noise: the range of signal-to-noise ratios, and how many are mixed at a time."""

    signal_to_noise_db: tuple[float, float]
    voices: tuple[int, int] = (1, 1)


# The kinds of MUSAN, with the levels that recipes of the field use since Kaldi's.
MUSAN = {
    "noise": NoiseKind((0.0, 15.0)),
    "music": NoiseKind((5.0, 15.0)),
    "speech": NoiseKind((13.0, 20.0), (3, 7)),
}

CHANNEL_DEVIATION_DB = 5.0  # of a microphone's response, between thirds of a decade
NARROW_BAND_PROBABILITY = 0.2  # of a channel such as a telephone's


class Augmentation:
    """Adds a noise of any kind or a room, all equally likely, and independently a random channel
    and a codec.

    Arguments:
        noises: manifest of noises whose spk_id is their kind (see MUSAN).
        rooms: manifest of room impulse responses.
        probability: of a noise or a room.
        kinds: levels and numbers of voices by kind; a kind without recordings is an error.
        channel_probability: of another microphone and line (see ``through_channel``).
        codec_probability: of a codec or a telephone line (see ``through_codec``).
        codecs: names, all equally likely, with their ranges of bit rates in kbit/s, such as
            {mp3: [16, 32], telephone: null}; null is the whole range. Default: all that work.
    """

    def __init__(
        self,
        noises: str | Path | None = None,
        rooms: str | Path | None = None,
        probability: float = 0.6,
        sample_rate: int = SAMPLE_RATE,
        kinds: Mapping[str, NoiseKind | Sequence] | None = None,
        channel_probability: float = 0.0,
        codec_probability: float = 0.0,
        codecs: Mapping[str, Sequence[float] | None] | None = None,
    ) -> None:
        for chance in (probability, channel_probability, codec_probability):
            if not 0.0 <= chance <= 1.0:
                raise ValueError(f"the probability of augmentation is in [0, 1], not {chance}")
        self.probability = probability
        self.channel_probability = channel_probability
        self.codec_probability = codec_probability
        self.codecs = _bit_rates(codecs) if codec_probability or codecs else {}
        self.sample_rate = sample_rate
        self.noises = None if noises is None else read_manifest(noises, with_ids=False)
        self.rooms = None if rooms is None else read_manifest(rooms, with_ids=False)
        if probability and self.noises is None and self.rooms is None:
            raise ValueError("augmentation needs noises, rooms, or both, or a probability of 0")
        self.kinds = {
            name: NoiseKind(*kind) for name, kind in (MUSAN if kinds is None else kinds).items()
        }
        self.rows_of_kind = {} if self.noises is None else _rows_by_kind(self.noises, self.kinds)

    def __call__(self, waveform: Waveform, seed: int) -> Waveform:
        """The crop (samples,), augmented or unchanged."""
        random = np.random.default_rng(seed)
        if random.random() < self.probability:
            waveform = self._with_noise_or_room(random, waveform)
        if random.random() < self.channel_probability:
            waveform = through_channel(waveform, random, self.sample_rate)
        if random.random() < self.codec_probability:
            name = list(self.codecs)[random.integers(len(self.codecs))]
            kbits = None
            if (limits := self.codecs[name]) is not None:
                lowest, highest = limits
                kbits = min(highest, lowest * (highest / lowest) ** random.random())
            waveform = through_codec(waveform, name, kbits, self.sample_rate)
        return waveform

    def _with_noise_or_room(self, random: np.random.Generator, waveform: Waveform) -> Waveform:
        """The crop (samples,) in a noise of some kind, or in a room."""
        choices = [*self.rows_of_kind, *(["room"] if self.rooms is not None else [])]
        choice = choices[random.integers(len(choices))]
        if choice == "room":
            assert self.rooms is not None
            row = int(random.integers(len(self.rooms)))
            return in_room(waveform, read_recording(self.rooms.wav(row), self.sample_rate))
        assert self.noises is not None
        kind, rows = self.kinds[choice], self.rows_of_kind[choice]
        noise = np.zeros_like(waveform)
        voices = random.integers(*kind.voices, endpoint=True)
        for row in rows[random.integers(len(rows), size=voices)].tolist():
            path = self.noises.wav(row)
            noise += read_crop(path, len(waveform), random.random(), self.sample_rate)
        return with_noise(waveform, noise, float(random.uniform(*kind.signal_to_noise_db)))


def with_noise(speech: Waveform, noise: Waveform, signal_to_noise_db: float) -> Waveform:
    """Speech (samples,) with noise (samples,) this many dB below it; silence changes nothing."""
    if not speech.any() or not noise.any():
        return speech
    ratio = np.sum(speech**2, dtype=np.float64) / np.sum(noise**2, dtype=np.float64)
    return speech + noise * np.float32(np.sqrt(ratio / 10.0 ** (signal_to_noise_db / 10.0)))


def in_room(speech: Waveform, response: Waveform) -> Waveform:
    """Speech (samples,) as heard in a room, as loud as before and beginning at the same moment."""
    direct_path = int(np.abs(response).argmax())
    wet = fftconvolve(speech, response[direct_path:])[: len(speech)]
    loudness = float(np.sqrt(np.mean(wet**2, dtype=np.float64)))
    if loudness == 0.0:
        return speech
    return wet * np.float32(float(np.sqrt(np.mean(speech**2, dtype=np.float64))) / loudness)


def through_channel(speech: Waveform, random: np.random.Generator, sample_rate: int) -> Waveform:
    """Speech (samples,) through another microphone and line: a random frequency response, level
    and, at times, a narrow band."""
    level = 10 ** (random.uniform(-12.0, 6.0) / 20)
    band = None
    if random.random() < NARROW_BAND_PROBABILITY:
        band = random.uniform(50.0, 350.0), random.uniform(3000.0, 0.45 * sample_rate)
    return level * random_filter(speech, random, sample_rate, CHANNEL_DEVIATION_DB, band)


def random_filter(
    signal: Waveform,
    random: np.random.Generator,
    sample_rate: int,
    deviation_db: float,
    band_hertz: tuple[float, float] | None = None,
) -> Waveform:
    """A signal (samples,) through a filter with random gains of this standard deviation in dB at
    every third of a decade from 60 Hz to half the sample rate, interpolated linearly in between.

    Outside a band, if one is given, the gain falls by 24 dB per octave.
    """
    samples = next_fast_len(len(signal), real=True)
    hertz = np.maximum(np.fft.rfftfreq(samples, 1.0 / sample_rate), 1.0)
    knots = np.arange(np.log10(60.0), np.log10(sample_rate / 2) + 1 / 3, 1 / 3)
    decibels = random.normal(0.0, deviation_db, size=len(knots))
    gains = 10 ** (np.interp(np.log10(hertz), knots, decibels) / 20)
    if band_hertz is not None:
        lowest, highest = band_hertz
        gains /= np.sqrt((1.0 + (hertz / highest) ** 8) * (1.0 + (lowest / hertz) ** 8))
    spectrum = rfft(signal, n=samples) * gains.astype(np.float32)
    return irfft(spectrum, n=samples)[: len(signal)].astype(np.float32)


def _bit_rates(
    codecs: Mapping[str, Sequence[float] | None] | None,
) -> dict[str, tuple[float, float] | None]:
    """The codecs with their ranges of bit rates; of all codecs, those that work."""
    if codecs is None:
        for name, reason in unavailable_codecs().items():
            warnings.warn(f"augmentation is without the codec {name}: {reason}", stacklevel=3)
        codecs = dict.fromkeys(name for name in CODECS if name not in unavailable_codecs())
    ranges: dict[str, tuple[float, float] | None] = {}
    for name, limits in codecs.items():
        ranges[name] = bit_rate_range(name)
        if limits is not None:
            if len(limits) != 2 or limits[0] > limits[1]:
                raise ValueError(f"bit rates of {name} are [lowest, highest], not {limits}")
            for kbits in limits:
                check_bit_rate(name, kbits)
            ranges[name] = limits[0], limits[1]
    if not ranges:
        raise ValueError(f"codecs names none: name some of {', '.join(CODECS)}, or leave it out")
    return ranges


def _rows_by_kind(noises: Manifest, kinds: Mapping[str, NoiseKind]) -> dict[str, NDArray[np.int64]]:
    """The rows of the manifest of each kind."""
    missing = sorted(set(kinds) - set(noises.speakers))
    if missing:
        raise ValueError(
            f"{noises.path} has no recordings of the kinds {', '.join(missing)} in its column "
            f"spk_id, which names {', '.join(noises.speakers[:5])}: prepare it again, or name kinds"
        )
    return {
        name: np.flatnonzero(noises.speaker_of_row == noises.speakers.index(name))
        for name in sorted(kinds)
    }
