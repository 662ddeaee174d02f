"""Reading audio: exactly the samples that are needed, at the rate that is needed, or a clear error.

soundfile reads wav, flac, ogg and mp3 and seeks without decoding the rest. Other formats, such as
m4a, are decoded whole by FFmpeg for every crop: convert them before training. Samples are in
[-1, 1]; louder ones, which floats may hold, are kept. Nothing here needs torch: processes that
inspect, decode or convert files start at once.
"""

import functools
import os
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import soundfile
from numpy.typing import NDArray

from simple_spk import LONGEST_SECONDS, SAMPLE_RATE
from simple_spk.data.content import is_of_libsndfile
from simple_spk.data.decoding import (
    HEAD_BYTES,
    LONGEST_WHOLE_SECONDS,
    AudioError,
    AudioHeader,
    BadRecordingError,
    check_length,
    check_rate,
    check_samples,
    decode,
    decoded_blocks,
    first_channels,
    mean_of_channels,
    read_av_header,
)
from simple_spk.data.tar_store import fault_of_part, open_part, open_recording, tar_part
from simple_spk.io.input_file import file_size

if TYPE_CHECKING:
    from torch import Tensor

# File names that count as recordings in corpora, beside which VoxCeleb2 has films (.mp4) ...
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a")
# ... and in folders of users. Other formats are read, too, if they are named.
RECORDING_SUFFIXES = (
    *AUDIO_SUFFIXES,
    *(".3g2", ".3gp", ".aac", ".ac3", ".aif", ".aifc", ".aiff", ".amr", ".asf", ".au", ".avi"),
    *(".awb", ".caf", ".eac3", ".flv", ".m4b", ".m4v", ".mka", ".mkv", ".mov", ".mp2", ".mp4"),
    *(".mpga", ".oga", ".ogv", ".rf64", ".snd", ".sph", ".w64", ".webm", ".wma", ".wmv"),
)
# Shorter recordings are left out of training data: they hold hardly more than a word.
SHORTEST_SECONDS = 1.0
SILENT_SPAN = 3.5 / 32768  # between three and four steps of 16-bit samples
BLOCK_SAMPLES = 2**20  # read at a time, in all channels together
# The low-pass filter for resampling is torchaudio's default: a sinc that cuts at 0.99 of half the
# lower rate, with a Hann window over six of its zeros on either side. torchaudio itself needs one
# release of torch with CUDA, 4 GB.
FILTER_ZEROS, FILTER_CUTOFF = 6, 0.99
# Of the power of the mean of independent channels; two alike have 2.
CANCELED_SHARE = 0.2
CANCELING = "has channels that cancel each other (opposite phase): use one of them alone"
MOST_CHANNELS = 256  # more are samples, and the array is transposed

Samples = Union["NDArray[Any]", "Tensor"]  # (samples,) or (channels, samples)


def is_silent(waveform: NDArray[np.floating]) -> bool:
    """Whether samples (samples,) span at most three steps of 16 bits, the filterbank's dither.

    The span ignores a constant offset and dither, but, unlike the standard deviation, keeps a
    recording with little speech.
    """
    return float(waveform.max()) - float(waveform.min()) <= SILENT_SPAN


def channels_cancel(source: Path | Samples) -> bool:
    """Whether the mean of some channels has hardly anything of what is in each (anti-phase).

    The first samples decide, half a minute of a usual file.
    """
    if not isinstance(source, Path):
        start = source[:, :BLOCK_SAMPLES] if source.ndim == 2 else source[None]
        channels = np.stack([_block(channel[None], "an array") for channel in start])
    elif (file := _open(source)) is None:
        channels = first_channels(source)
    else:
        with file:
            channels = file.read(BLOCK_SAMPLES // file.channels, "float32", always_2d=True).T
    if len(channels) == 1 or all(map(is_silent, channels)):
        return False
    mean, alone = channels.mean(axis=0), float(channels.var(axis=1).mean())
    return is_silent(mean) or float(mean.var()) * len(channels) < CANCELED_SHARE * alone


def read_recording(
    path: str | Path, sample_rate: int = SAMPLE_RATE, longest_seconds: float = LONGEST_WHOLE_SECONDS
) -> NDArray[np.float32]:
    """A whole recording (samples,), its channels averaged, at the rate asked for."""
    return np.concatenate(list(recording_blocks(path, sample_rate, longest_seconds)))


def recording_blocks(
    path: str | Path, sample_rate: int = SAMPLE_RATE, longest_seconds: float = LONGEST_SECONDS
) -> Iterator[NDArray[np.float32]]:
    """A whole recording as consecutive blocks (samples,), of which one is in memory at a time."""
    file = _open(path)
    if file is None:
        yield from decoded_blocks(path, sample_rate, longest_seconds)
        return
    with file:
        check_length(path, file.frames / file.samplerate, longest_seconds)
        step = max(1, BLOCK_SAMPLES // file.channels)
        starts = range(0, file.frames, step)
        blocks = (_read(file, path, start, min(step, file.frames - start)) for start in starts)
        yield from resampled(blocks, file.samplerate, sample_rate)


def read_crop(
    path: str | Path,
    samples: int,
    position: float,
    sample_rate: int = SAMPLE_RATE,
    speed: float = 1.0,
) -> NDArray[np.float32]:
    """``samples`` consecutive samples of a recording, decoded without reading the rest.

    position in [0, 1) chooses among the possible starts. A recording shorter than the crop is
    repeated, starting anywhere in it. Above speed 1 it plays faster and higher, as a tape does.
    """
    if not 0.0 <= position < 1.0:
        raise ValueError(f"position must lie in [0, 1), not {position}")
    file = _open(path)
    if file is None:
        whole = _resample(decode(path, sample_rate), round(sample_rate * speed), sample_rate)
        spare = len(whole) - samples
        start = int(position * (spare + 1))
        found = whole[start : start + samples].copy() if spare >= 0 else whole
    else:
        with file:
            rate = round(file.samplerate * speed)
            wanted = -(-samples * rate // sample_rate)
            spare = file.frames - wanted
            start = int(position * (spare + 1)) if spare >= 0 else 0
            found = _read(file, path, start, min(wanted, file.frames))
            found = _resample(found, rate, sample_rate)
    if spare >= 0:
        return found[:samples]
    start = int(position * len(found))
    return np.take(found, np.arange(start, start + samples), mode="wrap")


def read_header(path: str | Path, longest_seconds: float = LONGEST_SECONDS) -> AudioHeader:
    """Length, rate and channels of a recording; without a length it is decoded up to a limit."""
    file = _open(path)
    if file is None:
        return read_av_header(path, longest_seconds)
    with file:
        seconds, name = file.frames / file.samplerate, file.format.lower()
        return AudioHeader(seconds, file.samplerate, file.channels, name)


def duration_seconds(path: str | Path) -> float:
    """The length of a recording according to its header."""
    return read_header(path).seconds


def _open(path: str | Path) -> soundfile.SoundFile | None:
    """The opened file, known to hold samples; None if its format is none of soundfile's."""
    part = tar_part(path)
    if part is not None and (fault := fault_of_part(part)) is not None:
        raise AudioError(f"{path}: {fault}: complete the data, or correct the manifest")
    try:
        cure = "correct the path, or leave it out"
        if not (file_size(Path(path), "audio file", cure) if part is None else part.size):
            raise BadRecordingError(path, "empty", "has 0 bytes")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise AudioError(str(error)) from error
    try:
        # A name need not be UTF-8.
        source = os.fsencode(path) if part is None else open_part(part)
        file = soundfile.SoundFile(source)
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:  # TypeError: *.raw
        if getattr(error, "code", None) == 1:  # libsndfile's code for an unknown format
            return None
        with open_recording(Path(path)) as content:  # says better why a file is refused
            if not is_of_libsndfile(content.read(HEAD_BYTES)):
                return None
        reason = getattr(error, "error_string", error)
        raise BadRecordingError(path, "not audio", f"is not readable audio ({reason})") from error
    try:
        _check_header(path, file)
    except BadRecordingError:
        file.close()
        raise
    return file


def _check_header(path: str | Path, file: soundfile.SoundFile) -> None:
    """Raise if an opened file's header speaks against it."""
    check_rate(path, file.samplerate)
    if file.frames <= 0:
        raise BadRecordingError(path, "header only", "holds no samples")
    if file.frames > 2**62:
        raise BadRecordingError(path, "without length", "does not say how long it is (a pipe's?)")
    # libsndfile silently shortens a wav to what is there; its notes say so. Programs that write to
    # a pipe cannot know the length and promise the largest possible one: those files are whole.
    cut = re.search(r"^data : (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE)
    if cut is not None and int(cut[2]) < int(cut[1]) < 0x7FFFFFFF:
        details = f"promises {cut[1]} bytes of audio but holds {cut[2]}"
        raise BadRecordingError(path, "truncated", details)


def _read(
    file: soundfile.SoundFile, path: str | Path, start: int, count: int
) -> NDArray[np.float32]:
    """The mean of all channels of ``count`` frames from ``start`` on."""
    try:
        if file.tell() != start:
            file.seek(start)
        channels = file.read(count, dtype="float32", always_2d=True)
    # ValueError, MemoryError: a damaged header promises fewer than no samples, or billions.
    except (soundfile.LibsndfileError, RuntimeError, ValueError, MemoryError) as error:
        details = f"breaks off near second {start / file.samplerate:.2f} ({error})"
        raise BadRecordingError(path, "damaged", details) from error
    if len(channels) < count:
        details = f"promises {file.frames} samples but ends after {start + len(channels)}"
        raise BadRecordingError(path, "truncated", details)
    return np.ascontiguousarray(mean_of_channels(path, channels, axis=1))


def resampled(
    blocks: Iterable[NDArray[np.float32]], found_rate: int, wanted_rate: int
) -> Iterator[NDArray[np.float32]]:
    """The blocks (samples,) of one waveform at another rate, as if it were converted in one."""
    ratio = Fraction(found_rate, wanted_rate)
    if ratio == 1:
        yield from blocks
        return
    from scipy.signal import resample_poly  # takes a while, and most recordings do without

    # ``unit`` samples become ``made_of_unit``, which depend on ``context`` samples to either side.
    unit, made_of_unit = ratio.numerator, ratio.denominator
    taps = _low_pass(ratio)
    context = -(-len(taps) // (2 * made_of_unit * unit)) * unit

    def convert(waveform: NDArray[np.float32]) -> NDArray[np.float32]:
        return resample_poly(waveform, made_of_unit, unit, window=taps)

    held, done = np.empty(0, np.float32), 0  # samples not done with, and how many are context only
    remaining = iter(blocks)
    block = next(remaining, None)
    while block is not None:
        following = next(remaining, None)
        held = np.concatenate([held, block]) if len(held) else block
        if following is None:
            yield convert(held)[done // unit * made_of_unit :]
        elif (end := (len(held) - context) // unit * unit) > done:
            made = convert(held[: end + context])
            yield made[done // unit * made_of_unit : end // unit * made_of_unit]
            cut = max(0, end - context)
            held, done = held[cut:], end - cut
        block = following


def _resample(
    waveform: NDArray[np.float32], found_rate: int, wanted_rate: int
) -> NDArray[np.float32]:
    """A waveform (samples,) at another rate."""
    return next(resampled([waveform], found_rate, wanted_rate))


@functools.lru_cache(maxsize=8)  # those of odd rates have megabytes
def _low_pass(ratio: Fraction) -> NDArray[np.float32]:
    """The filter (taps,) between rates of this ratio, at their least common multiple."""
    up, down = ratio.denominator, ratio.numerator
    period = max(up, down) / FILTER_CUTOFF  # from zero to zero, in taps
    half = int(FILTER_ZEROS * period)
    zeros = np.arange(-half, half + 1) / period
    window = np.cos(0.5 * np.pi * zeros / FILTER_ZEROS) ** 2
    return (np.sinc(zeros) * window / period).astype(np.float32)


def array_seconds(samples: Samples, name: str, source_rate: int) -> float:
    """The length of a recording in memory."""
    check_rate(name, source_rate)
    return samples.shape[-1] / source_rate if samples.ndim else 0.0


def array_blocks(
    samples: Samples, name: str, source_rate: int, sample_rate: int
) -> Iterator[NDArray[np.float32]]:
    """A recording in memory as blocks (samples,), its channels averaged, at the rate asked for.

    Floats are in [-1, 1]; integers of 8, 16 or 32 bits are scaled by their full range.
    """
    check_rate(name, source_rate)
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and len(samples) > MOST_CHANNELS):
        raise AudioError(
            f"{name} has the shape {tuple(samples.shape)}: expected (samples,) or (channels, "
            f"samples), at most {MOST_CHANNELS} channels"
        )
    channels = samples if samples.ndim == 2 else samples[None]
    if not channels.shape[0] * channels.shape[1]:
        raise AudioError(f"{name} holds no samples, its shape is {tuple(samples.shape)}")
    step = max(1, BLOCK_SAMPLES // len(channels))
    starts = range(0, channels.shape[1], step)
    blocks = (_block(channels[:, start : start + step], name) for start in starts)
    yield from resampled(blocks, source_rate, sample_rate)


def _block(channels: Samples, name: str) -> NDArray[np.float32]:
    """The mean (samples,) of channels (channels, samples), with full scale at one."""
    if not isinstance(channels, np.ndarray):
        channels = channels.detach().cpu()
        is_bfloat16 = str(channels.dtype) == "torch.bfloat16"  # which numpy does not know
        channels = (channels.float() if is_bfloat16 else channels).numpy()
    kind, offset = channels.dtype, 0.0
    if kind.kind in "iu" and kind.itemsize <= 4:
        full_range = 2.0 ** (8 * kind.itemsize - 1)
        offset = full_range if kind.kind == "u" else 0.0
    elif kind.kind == "f":
        full_range = 1.0
    else:
        raise AudioError(
            f"{name} holds samples of the type {kind}: expected floats in [-1, 1] or integers of "
            "8, 16 or 32 bits, which use their full range"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # which the check finds
        mean = channels.mean(axis=0, dtype=np.float64 if kind.itemsize > 2 else np.float32)
        waveform = ((mean - offset) / full_range).astype(np.float32)
    check_samples(name, waveform)
    return waveform
