"""Reading audio: exactly the samples that are needed, at the rate that is needed, or a clear error.

soundfile reads wav, flac, ogg and mp3 and seeks without decoding the rest.
"""

import re
from pathlib import Path

import numpy as np
import soundfile
import torch
import torchaudio.functional
from numpy.typing import NDArray

UNKNOWN_FRAMES = 2**62
LARGEST_WAV_BYTES = 0x7FFFFFFF


class AudioError(ValueError):
    """A recording that cannot be used; the message names the file, the reason and the cure."""


def read_recording(path: str | Path, sample_rate: int = 16000) -> NDArray[np.float32]:
    """A whole recording (samples,), its channels averaged, at the rate asked for."""
    with _open(path) as file:
        return _read(file, path, 0, file.frames, sample_rate)


def read_crop(
    path: str | Path, samples: int, position: float, sample_rate: int = 16000
) -> NDArray[np.float32]:
    """``samples`` consecutive samples of a recording, decoded without reading the rest.

    position in [0, 1) chooses among the possible starts, the first at 0. A recording shorter than
    the crop is repeated, starting anywhere in it.
    """
    if not 0.0 <= position < 1.0:
        raise ValueError(f"position must lie in [0, 1), not {position}")
    with _open(path) as file:
        wanted = -(-samples * file.samplerate // sample_rate)
        spare = file.frames - wanted
        if spare >= 0:
            start = int(position * (spare + 1))
            return _read(file, path, start, wanted, sample_rate)[:samples]
        whole = _read(file, path, 0, file.frames, sample_rate)
    start = int(position * len(whole))
    return np.take(whole, np.arange(start, start + samples), mode="wrap")


def duration_seconds(path: str | Path) -> float:
    """The length of a recording according to its header."""
    with _open(path) as file:
        return file.frames / file.samplerate


def _open(path: str | Path) -> soundfile.SoundFile:
    """The opened file, known to exist, to be audio and to hold samples."""
    if not Path(path).is_file():
        raise AudioError(f"no audio file at {path}: check the data folder, or remove its row")
    try:
        file = soundfile.SoundFile(path)
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:  # TypeError: *.raw
        raise AudioError(
            f"{path} is not readable audio ({error}): convert it to flac or wav again, or remove it"
        ) from error
    fault = _fault(file)
    if fault is not None:
        file.close()
        raise AudioError(f"{path} {fault}: fetch or convert it again, or remove it")
    return file


def _fault(file: soundfile.SoundFile) -> str | None:
    """What an opened file's header says against it, or None."""
    if file.frames <= 0:
        return "holds no samples"
    if file.frames > UNKNOWN_FRAMES:
        return "does not say how long it is (was it written to a pipe?)"
    # libsndfile silently shortens a wav to what is there; its notes say so. Programs that write to
    # a pipe cannot know the length and promise the largest possible one: those files are whole.
    cut = re.search(r"^data : (\d+) \(should be (\d+)\)", file.extra_info, re.MULTILINE)
    if cut is not None and int(cut[2]) < int(cut[1]) < LARGEST_WAV_BYTES:
        return f"promises {cut[1]} bytes of audio but holds {cut[2]}"
    return None


def _read(
    file: soundfile.SoundFile, path: str | Path, start: int, count: int, sample_rate: int
) -> NDArray[np.float32]:
    """The mean of all channels of ``count`` frames from ``start`` on, resampled if need be."""
    try:
        file.seek(start)
        channels = file.read(count, dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise AudioError(
            f"{path} breaks off near second {start / file.samplerate:.2f} ({error}): "
            f"fetch or convert it again, or remove it"
        ) from error
    if len(channels) < count:
        raise AudioError(
            f"{path} promises {file.frames} samples but ends after {start + len(channels)}: "
            f"fetch or convert it again, or remove it"
        )
    waveform = channels[:, 0] if channels.shape[1] == 1 else channels.mean(axis=1)
    if not np.isfinite(waveform).all():
        raise AudioError(f"{path} holds samples that are not numbers: convert it again")
    if file.samplerate != sample_rate:
        source = torch.from_numpy(np.ascontiguousarray(waveform))
        waveform = torchaudio.functional.resample(source, file.samplerate, sample_rate).numpy()
    return np.ascontiguousarray(waveform)
