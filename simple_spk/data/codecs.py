"""Speech as codecs and telephone lines leave it, encoded and decoded in memory (PyAV).

Packets go from the encoder to the decoder without a container. The delay of both is measured once,
with noise, and removed: which part of it a decoder skips depends on the version of FFmpeg.
"""

import functools
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import correlate

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import resampled

Waveform = NDArray[np.float32]


class Codec(NamedTuple):
    """A codec of FFmpeg: names, sample rate, range of bit rates, and settings that make it fast.

    Without a sample rate it takes the lowest of the encoder's that keeps the whole band.
    """

    encoder: str
    decoder: str
    sample_rate: int | None = None
    kbits_per_second: tuple[float, float] | None = None
    options: Mapping[str, str] = MappingProxyType({})


TELEPHONE = "telephone"  # the band of a line, without a codec
CODECS: dict[str, Codec | None] = {
    "mp3": Codec("libmp3lame", "mp3float", None, (8.0, 64.0), {"compression_level": "7"}),
    "opus": Codec(
        "libopus",
        "libopus",
        None,
        (6.0, 64.0),
        {"compression_level": "3", "vbr": "constrained"},  # else it takes up to 80 kbit/s
    ),
    "aac": Codec("aac", "aac", None, (8.0, 64.0), {"aac_coder": "fast"}),
    "amr_nb": Codec("libopencore_amrnb", "amrnb", 8000, (4.75, 12.2)),  # the nearest of 8 modes
    "mulaw": Codec("pcm_mulaw", "pcm_mulaw", 8000),
    "alaw": Codec("pcm_alaw", "pcm_alaw", 8000),
    TELEPHONE: None,
}
# The telephone band: nothing is left from 4 kHz on, as with 8,000 samples a second.
_BAND_HERTZ = (200.0, 300.0, 3400.0, 4000.0)
_BAND_GAINS = (0.0, 1.0, 1.0, 0.0)


@functools.cache
def unavailable_codecs() -> dict[str, str]:
    """The codecs that the installed FFmpeg cannot encode or decode, with the reasons."""
    reasons = {}
    for name, codec in CODECS.items():
        for part, mode in () if codec is None else ((codec.encoder, "w"), (codec.decoder, "r")):
            try:
                av.Codec(part, mode)
            except ValueError:
                kind = "encoder" if mode == "w" else "decoder"
                reasons[name] = f"the FFmpeg of PyAV {av.__version__} has no {kind} {part}"
    return reasons


def bit_rate_range(name: str) -> tuple[float, float] | None:
    """The range of bit rates of a codec, in kbit/s; None if it has only one, or is a line.

    >>> bit_rate_range("opus")
    (6.0, 64.0)
    """
    if name not in CODECS:
        raise ValueError(f"there is no codec {name!r}: choose one of {', '.join(CODECS)}")
    if name in unavailable_codecs():
        raise ValueError(f"the codec {name} does not work: {unavailable_codecs()[name]}")
    codec = CODECS[name]
    return None if codec is None else codec.kbits_per_second


def check_bit_rate(name: str, kbits_per_second: float | None) -> None:
    """Raise unless a codec is there and has this bit rate."""
    limits = bit_rate_range(name)
    if limits is None:
        if kbits_per_second is not None:
            raise ValueError(f"{name} has no choice of bit rates, not {kbits_per_second} kbit/s")
    elif kbits_per_second is None or not limits[0] <= kbits_per_second <= limits[1]:
        given = "none" if kbits_per_second is None else f"{kbits_per_second:g}"
        raise ValueError(
            f"{name} needs a bit rate of {limits[0]:g} to {limits[1]:g} kbit/s, and has {given}"
        )


def through_codec(
    speech: Waveform,
    name: str,
    kbits_per_second: float | None = None,
    sample_rate: int = SAMPLE_RATE,
) -> Waveform:
    """Speech (samples,) after a codec or a telephone line (see CODECS), as loud as before and
    beginning at the same moment; silence, and what a codec makes silent, stays as it is.
    """
    check_bit_rate(name, kbits_per_second)
    peak = float(np.abs(speech).max(initial=0.0))
    if not np.isfinite(peak):  # encoders would end the process
        raise ValueError(f"speech for the codec {name} holds samples that are not numbers")
    if peak == 0.0:
        return speech
    codec = CODECS[name]
    if codec is None:
        heard = telephone_band(speech, sample_rate)
    else:
        rate = _rate(codec, sample_rate)
        coded = next(resampled([speech], sample_rate, rate))
        coded = coded / max(1.0, float(np.abs(coded).max()))  # encoders clip
        coded = _coded(coded, name, kbits_per_second, rate)
        delay = _delay(name, rate)
        coded = coded[delay:] if delay >= 0 else np.pad(coded, (-delay, 0))
        heard = np.zeros_like(speech)
        found = next(resampled([coded], rate, sample_rate))[: len(speech)]
        heard[: len(found)] = found
    loudness = float(np.sqrt(np.mean(heard**2, dtype=np.float64)))
    if loudness == 0.0:
        return speech
    return heard * np.float32(np.sqrt(np.mean(speech**2, dtype=np.float64)) / loudness)


def telephone_band(speech: Waveform, sample_rate: int = SAMPLE_RATE) -> Waveform:
    """Speech (samples,) without what is below 300 Hz and above 3,400 Hz, not shifted in time."""
    samples = next_fast_len(len(speech) + sample_rate // 10, real=True)  # the end does not wrap
    hertz = np.fft.rfftfreq(samples, 1.0 / sample_rate)
    gains = np.interp(hertz, _BAND_HERTZ, _BAND_GAINS).astype(np.float32)
    return irfft(rfft(speech, n=samples) * gains, n=samples)[: len(speech)].astype(np.float32)


def _rate(codec: Codec, sample_rate: int) -> int:
    """The sample rate at which a codec works on speech of this sample rate."""
    if codec.sample_rate is not None:
        return codec.sample_rate
    rates = av.Codec(codec.encoder, "w").audio_rates
    return min((rate for rate in rates if rate >= sample_rate), default=max(rates))


@functools.cache
def _delay(name: str, rate: int) -> int:
    """By how many samples a codec delays noise of half a second."""
    noise = np.random.default_rng(0).normal(0.0, 0.1, rate // 2).astype(np.float32)
    limits = bit_rate_range(name)
    coded = _coded(noise, name, None if limits is None else limits[1], rate)
    return int(correlate(coded, noise).argmax()) - (len(noise) - 1)


def _coded(speech: Waveform, name: str, kbits_per_second: float | None, rate: int) -> Waveform:
    """Speech (samples,), encoded and decoded, with the codec's delay and padding."""
    codec = CODECS[name]
    assert codec is not None
    try:
        encoder = av.CodecContext.create(codec.encoder, "w")
        formats = [found.name for found in encoder.codec.audio_formats]
        encoder.format = "fltp" if "fltp" in formats else formats[0]
        encoder.layout, encoder.sample_rate, encoder.thread_count = "mono", rate, 1
        encoder.options = dict(codec.options)
        if kbits_per_second is not None:
            encoder.bit_rate = round(1000 * kbits_per_second)
        frame = av.AudioFrame.from_ndarray(speech[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        packets = [*encoder.encode(frame), *encoder.encode(None)]
        decoder = av.CodecContext.create(codec.decoder, "r")
        decoder.layout, decoder.sample_rate, decoder.thread_count = "mono", rate, 1
        decoder.extradata = encoder.extradata
        to_floats = av.AudioResampler(format="fltp", layout="mono", rate=rate)
        frames = [frame for packet in [*packets, None] for frame in decoder.decode(packet)]
        blocks = [
            block.to_ndarray()[0]
            for frame in [*frames, None]
            for block in to_floats.resample(frame)
        ]
    except av.FFmpegError as error:
        rates = "" if kbits_per_second is None else f" with {kbits_per_second:g} kbit/s"
        raise ValueError(f"{name}{rates} cannot encode {len(speech)} samples ({error})") from error
    return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)
