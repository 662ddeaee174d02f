"""Reading audio: exactly the samples that are needed, at the rate that is needed, or a clear error.

soundfile reads wav, flac, ogg and mp3 and seeks without decoding the rest. What it does not know,
such as m4a, is decoded whole by FFmpeg for every crop: right, but to be converted before training.
"""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from simple_spk.decoding import AudioError, BadRecordingError, decode, header_seconds

# The names that recordings have; other formats are read, too, if they are named.
AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a")
UNKNOWN_FRAMES = 2**62
LARGEST_WAV_BYTES = 0x7FFFFFFF
UNKNOWN_FORMAT = 1  # libsndfile's error code


def read_recording(path: str | Path, sample_rate: int = 16000) -> NDArray[np.float32]:
    """A whole recording (samples,), its channels averaged, at the rate asked for."""
    file = _open(path)
    if file is None:
        return decode(path, sample_rate)
    with file:
        return _read(file, path, 0, file.frames, sample_rate)


def read_crop(
    path: str | Path,
    samples: int,
    position: float,
    sample_rate: int = 16000,
    speed: float = 1.0,
) -> NDArray[np.float32]:
    """``samples`` consecutive samples of a recording, decoded without reading the rest.

    position in [0, 1) chooses among the possible starts, the first at 0. A recording shorter than
    the crop is repeated, starting anywhere in it. Above speed 1 it plays faster and higher, as a
    tape does.
    """
    if not 0.0 <= position < 1.0:
        raise ValueError(f"position must lie in [0, 1), not {position}")
    file = _open(path)
    if file is None:
        whole = decode(path, sample_rate)
        return _crop(_resample(whole, round(sample_rate * speed), sample_rate), samples, position)
    with file:
        wanted = -(-samples * round(file.samplerate * speed) // sample_rate)
        spare = file.frames - wanted
        if spare >= 0:
            start = int(position * (spare + 1))
            return _read(file, path, start, wanted, sample_rate, speed)[:samples]
        whole = _read(file, path, 0, file.frames, sample_rate, speed)
    return _repeated(whole, samples, position)


def duration_seconds(path: str | Path) -> float:
    """The length of a recording according to its header."""
    file = _open(path)
    if file is None:
        return header_seconds(path)
    with file:
        return file.frames / file.samplerate


def _open(path: str | Path) -> soundfile.SoundFile | None:
    """The opened file, known to hold samples; None if its format is none of soundfile's.

    Raises AudioError for a file that is no recording or not there, OSError for one out of reach.
    """
    if not Path(path).is_file():
        raise AudioError(f"no audio file at {path}: check the data folder, or remove its row")
    try:
        file = soundfile.SoundFile(os.fsencode(path))  # a name need not be UTF-8
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:  # TypeError: *.raw
        if getattr(error, "code", None) == UNKNOWN_FORMAT:
            return None
        with open(path, "rb"):  # the operating system says better why it refuses a file
            pass
        reason = getattr(error, "error_string", error)
        raise BadRecordingError(path, "not audio", f"is not readable audio ({reason})") from error
    fault = _fault(file)
    if fault is not None:
        file.close()
        raise BadRecordingError(path, *fault)
    return file


def _fault(file: soundfile.SoundFile) -> tuple[str, str] | None:
    """What an opened file's header says against it, as kind and details, or None."""
    if file.frames <= 0:
        return "header only", "holds no samples"
    if file.frames > UNKNOWN_FRAMES:
        return "without length", "does not say how long it is (was it written to a pipe?)"
    # libsndfile silently shortens a wav to what is there; its notes say so. Programs that write to
    # a pipe cannot know the length and promise the largest possible one: those files are whole.
    cut = re.search(r"^data : (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE)
    if cut is not None and int(cut[2]) < int(cut[1]) < LARGEST_WAV_BYTES:
        return "truncated", f"promises {cut[1]} bytes of audio but holds {cut[2]}"
    return None


def _read(
    file: soundfile.SoundFile,
    path: str | Path,
    start: int,
    count: int,
    sample_rate: int,
    speed: float = 1.0,
) -> NDArray[np.float32]:
    """The mean of all channels of ``count`` frames from ``start`` on, resampled if need be."""
    try:
        file.seek(start)
        channels = file.read(count, dtype="float32", always_2d=True)
    # ValueError, MemoryError: a damaged header promises fewer than no samples, or billions.
    except (soundfile.LibsndfileError, RuntimeError, ValueError, MemoryError) as error:
        details = f"breaks off near second {start / file.samplerate:.2f} ({error})"
        raise BadRecordingError(path, "damaged", details) from error
    if len(channels) < count:
        details = f"promises {file.frames} samples but ends after {start + len(channels)}"
        raise BadRecordingError(path, "truncated", details)
    waveform = channels[:, 0] if channels.shape[1] == 1 else channels.mean(axis=1)
    if not np.isfinite(waveform).all():
        raise BadRecordingError(path, "damaged", "holds samples that are not numbers")
    return _resample(waveform, round(file.samplerate * speed), sample_rate)


def _resample(
    waveform: NDArray[np.float32], found_rate: int, wanted_rate: int
) -> NDArray[np.float32]:
    """A waveform (samples,) at another rate."""
    waveform = np.ascontiguousarray(waveform)
    if found_rate == wanted_rate:
        return waveform
    return _resampler(found_rate, wanted_rate)(waveform)


@functools.cache  # its filter takes longer to make than a crop to resample
def _resampler(
    found_rate: int, wanted_rate: int
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Converts waveforms (samples,) from one rate to another."""
    # Imported here, so that whoever only inspects recordings starts at once.
    import torch
    from torchaudio.transforms import Resample

    resample = Resample(found_rate, wanted_rate, dtype=torch.float32)
    return lambda waveform: resample(torch.from_numpy(waveform)).numpy()


def _crop(waveform: NDArray[np.float32], samples: int, position: float) -> NDArray[np.float32]:
    """The crop (samples,) of a waveform that ``read_crop`` describes."""
    spare = len(waveform) - samples
    if spare < 0:
        return _repeated(waveform, samples, position)
    start = int(position * (spare + 1))
    return waveform[start : start + samples].copy()


def _repeated(waveform: NDArray[np.float32], samples: int, position: float) -> NDArray[np.float32]:
    """A waveform shorter than ``samples``, repeated from a place in it, to (samples,)."""
    start = int(position * len(waveform))
    return np.take(waveform, np.arange(start, start + samples), mode="wrap")
