"""Decoding what soundfile cannot read, m4a first, with FFmpeg inside this process (PyAV).

A process per file, the usual way to run FFmpeg, costs ten times the decoding itself. Channels are
averaged here, because libswresample adds them with other weights when samples are floats; the rate
is converted by libswresample, which is sharper than torchaudio's default and spares the processes
of a conversion torch. The samples that an AAC encoder puts before the first (priming) are skipped
as the container says; the filling of the last frame is kept, as the program ffmpeg does.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from simple_spk import SAMPLE_RATE

# Containers of recordings only: playlists and the like would make FFmpeg open other files.
_CONTAINERS = "aac,ac3,aiff,amr,asf,avi,caf,eac3,flac,flv,matroska,mov,mp3,mpegts,ogg,w64,wav,webm"
_OPTIONS = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"}
# How much shorter than promised a whole recording may be. mov rounds lengths to milliseconds, the
# others are less exact; containers that are not named here can only guess their length.
_TOLERANCE_SECONDS = {"mov": 0.001, "matroska": 0.1, "asf": 0.1}
_HEAD_BYTES = 4096
_BLOCK_SAMPLES = 2**20  # decoded at a time, in all channels together
_RATES = (2000, 768000)  # in hertz: what recordings have; a damaged header may say anything
_LARGEST_SAMPLE = 2.0**31  # integers of 32 bits that were written as floats: nothing is louder


class AudioError(ValueError):
    """A recording that cannot be used; the message names the file, the reason and the cure."""


class BadRecordingError(AudioError):
    """A file that is not a whole recording: of which kind (a word or two), and what is wrong."""

    def __init__(self, path: str | Path, kind: str, details: str) -> None:
        super().__init__(path, kind, details)  # all of them, or it could not leave a process
        self.kind = kind
        self.details = details

    def __str__(self) -> str:
        return f"{self.args[0]} {self.details}: fetch or convert it again, or remove it"


def check_rate(path: str | Path, sample_rate: int) -> None:
    """Raise unless a header's sample rate can be that of a recording."""
    lowest, highest = _RATES
    if not lowest <= sample_rate <= highest:
        details = f"says {sample_rate} samples a second, not {lowest} to {highest}"
        raise BadRecordingError(path, "damaged", details)


def check_samples(path: str | Path, waveform: NDArray[np.float32]) -> None:
    """Raise unless samples (samples,) are numbers that a sound can have."""
    if not len(waveform):
        return
    peak = max(-waveform.min(), waveform.max())
    if not np.isfinite([waveform.min(), waveform.max()]).all():
        raise BadRecordingError(path, "damaged", "holds samples that are not numbers")
    if peak > _LARGEST_SAMPLE:
        raise BadRecordingError(path, "damaged", f"holds samples as large as {peak:.3g}, not 1")


def decode(path: str | Path, sample_rate: int = SAMPLE_RATE) -> NDArray[np.float32]:
    """A whole recording (samples,), its channels averaged, at the rate asked for.

    Raises BadRecordingError for a file that is not a whole recording, OSError for one out of reach.
    """
    return np.concatenate(list(decoded_blocks(path, sample_rate)))


def decoded_blocks(
    path: str | Path, sample_rate: int = SAMPLE_RATE
) -> Iterator[NDArray[np.float32]]:
    """What ``decode`` gives as blocks (samples,) that follow each other without a seam.

    That a file is truncated shows at its end: raised after the last block.
    """
    made = 0
    with _open(path) as container:
        stream = container.streams.audio[0]
        frames = _frames(path, container, stream)
        first = next(frames, None)
        if first is None:
            raise BadRecordingError(path, "header only", "holds no samples")
        check_rate(path, first.sample_rate)
        waveforms = _averaged(path, chain([first], frames), *_promise(container, stream))
        for block in _resampled(waveforms, first.sample_rate, sample_rate):
            made += len(block)
            yield block
    if not made:
        details = f"holds less than a sample at {sample_rate} Hz"
        raise BadRecordingError(path, "too short", details)


def header_seconds(path: str | Path) -> float:
    """The length of a recording according to its header, or of its samples if that is silent."""
    with _open(path) as container:
        promised_seconds, _ = _promise(container, container.streams.audio[0])
        if promised_seconds is not None:
            return promised_seconds
    return sum(map(len, decoded_blocks(path))) / SAMPLE_RATE


def _open(path: str | Path) -> av.container.InputContainer:
    """The opened file, known to hold an audio stream."""
    with open(path, "rb") as file:  # the operating system's errors are clearer than FFmpeg's
        head = file.read(_HEAD_BYTES)
    if not head:
        raise BadRecordingError(path, "empty", "has 0 bytes")
    try:
        container = av.open(f"file:{path}", options=_OPTIONS, metadata_errors="replace")
    except av.FFmpegError as error:
        raise BadRecordingError(path, *_why_not_opened(head)) from error
    if not container.streams.audio:
        container.close()
        raise BadRecordingError(path, "without audio", "has no audio stream")
    if container.streams.audio[0].codec_context is None:
        container.close()
        raise BadRecordingError(path, "damaged", "does not say how its audio is encoded")
    return container


def _why_not_opened(head: bytes) -> tuple[str, str]:
    """Kind and details for a file that FFmpeg does not open, from its first bytes."""
    if head[4:8] != b"ftyp":
        return "not audio", f"begins with {head[:16]!r}"
    if len(head) < _HEAD_BYTES and not head.partition(b"mdat")[2]:
        return "header only", f"ends after {len(head)} bytes"
    return "truncated", "lacks its index (moov atom)"


def _frames(
    path: str | Path, container: av.container.InputContainer, stream: av.AudioStream
) -> Iterator[av.AudioFrame]:
    """The decoded frames as planar floats, of one rate and one number of channels."""
    stream.codec_context.thread_count = 1  # the callers work on several files at once
    to_floats = av.AudioResampler(format="fltp")  # at one rate it holds nothing back
    is_cut = False
    try:
        for packet in container.demux(stream):
            is_cut = packet.is_corrupt  # FFmpeg's word for a packet that the file's end cuts off
            for frame in packet.decode():
                yield from to_floats.resample(frame)
    except (av.FFmpegError, ValueError) as error:
        if is_cut:
            raise BadRecordingError(path, "truncated", "ends within a packet") from error
        raise BadRecordingError(path, "damaged", f"cannot be decoded ({_words(error)})") from error


def _words(error: Exception) -> str:
    """What an error of FFmpeg says, without the names of files and functions."""
    return getattr(error, "strerror", None) or str(error)


def _promise(
    container: av.container.InputContainer, stream: av.AudioStream
) -> tuple[float | None, float]:
    """The seconds that the header promises, None if it only guesses, and how exact that is."""
    tolerance_seconds = _TOLERANCE_SECONDS.get(container.format.name.split(",")[0])
    if tolerance_seconds is None:
        return None, 0.0
    if stream.duration is not None:
        return float(stream.duration * stream.time_base), tolerance_seconds
    if container.duration is not None:
        return container.duration / av.time_base, tolerance_seconds
    return None, 0.0


def _averaged(
    path: str | Path,
    frames: Iterable[av.AudioFrame],
    promised_seconds: float | None,
    tolerance_seconds: float,
) -> Iterator[NDArray[np.float32]]:
    """The mean of all channels of planar frames, many frames to a block (samples,).

    Raises BadRecordingError at the end if there were fewer than promised.
    """
    held: list[NDArray[np.float32]] = []
    samples, seconds = 0, 0.0
    for frame in frames:
        held.append(frame.to_ndarray())
        samples += held[-1].size
        seconds += frame.samples / frame.sample_rate
        if samples >= _BLOCK_SAMPLES:
            yield _mean_of_channels(path, held)
            held, samples = [], 0
    if promised_seconds is not None and seconds < promised_seconds - tolerance_seconds:
        details = f"promises {promised_seconds:.3f} s but holds {seconds:.3f} s"
        raise BadRecordingError(path, "truncated", details)
    if held:
        yield _mean_of_channels(path, held)


def _mean_of_channels(
    path: str | Path, parts: Sequence[NDArray[np.float32]]
) -> NDArray[np.float32]:
    """One waveform (samples,) of parts (channels, samples) that follow each other."""
    channels = np.concatenate(parts, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # which the check finds
        waveform = channels[0] if len(channels) == 1 else channels.mean(axis=0)
    check_samples(path, waveform)
    return waveform


def _resampled(
    waveforms: Iterable[NDArray[np.float32]], found: int, wanted: int
) -> Iterator[NDArray[np.float32]]:
    """The blocks (samples,) of one waveform at another rate; its duration stays."""
    if found == wanted:
        yield from waveforms
        return
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=wanted)
    for waveform in chain(waveforms, [None]):
        frame = None  # asks for what the resampler still holds
        if waveform is not None:
            frame = av.AudioFrame.from_ndarray(waveform[np.newaxis], format="fltp", layout="mono")
            frame.sample_rate = found
        for part in resampler.resample(frame):
            yield part.to_ndarray()[0]
