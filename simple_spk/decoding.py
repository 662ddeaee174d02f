"""Decoding what soundfile cannot read, m4a first, with FFmpeg inside this process (PyAV).

A process per file, the usual way to run FFmpeg, costs ten times the decoding itself. Channels are
averaged here, because libswresample adds them with other weights when samples are floats; the rate
is converted by libswresample, which is sharper than torchaudio's default and spares the processes
of a conversion torch. The samples that an AAC encoder puts before the first (priming) are skipped
as the container says; the filling of the last frame is kept, as the program ffmpeg does.
"""

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

# Containers of recordings only: playlists and the like would make FFmpeg open other files.
_CONTAINERS = "aac,ac3,aiff,amr,asf,avi,caf,eac3,flac,flv,matroska,mov,mp3,mpegts,ogg,w64,wav,webm"
_OPTIONS = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"}
# How much shorter than promised a whole recording may be. mov rounds lengths to milliseconds, the
# others are less exact; containers that are not named here can only guess their length.
_TOLERANCE_SECONDS = {"mov": 0.001, "matroska": 0.1, "asf": 0.1}
_HEAD_BYTES = 4096


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


def decode(path: str | Path, sample_rate: int = 16000) -> NDArray[np.float32]:
    """A whole recording (samples,), its channels averaged, at the rate asked for.

    Raises BadRecordingError for a file that is not a whole recording, OSError for one out of reach.
    """
    with _open(path) as container:
        stream = container.streams.audio[0]
        frames = list(_frames(path, container, stream))
        promised_seconds, tolerance_seconds = _promise(container, stream)
    if not frames:
        raise BadRecordingError(path, "header only", "holds no samples")
    found_rate = frames[0].sample_rate
    channels = np.concatenate([frame.to_ndarray() for frame in frames], axis=1)
    waveform = channels[0] if len(channels) == 1 else channels.mean(axis=0)
    seconds = len(waveform) / found_rate
    if promised_seconds is not None and seconds < promised_seconds - tolerance_seconds:
        details = f"promises {promised_seconds:.3f} s but holds {seconds:.3f} s"
        raise BadRecordingError(path, "truncated", details)
    if not np.isfinite(waveform).all():
        raise BadRecordingError(path, "damaged", "holds samples that are not numbers")
    if found_rate != sample_rate:
        waveform = _resample(waveform, found_rate, sample_rate)
    if not len(waveform):
        details = f"holds {seconds:.6f} s, less than a sample at {sample_rate} Hz"
        raise BadRecordingError(path, "too short", details)
    return waveform


def header_seconds(path: str | Path) -> float:
    """The length of a recording according to its header, or of its samples if that is silent."""
    with _open(path) as container:
        promised_seconds, _ = _promise(container, container.streams.audio[0])
        if promised_seconds is not None:
            return promised_seconds
    return len(decode(path)) / 16000


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


def _resample(waveform: NDArray[np.float32], found: int, wanted: int) -> NDArray[np.float32]:
    """A waveform (samples,) at another rate; its duration stays."""
    frame = av.AudioFrame.from_ndarray(waveform[np.newaxis], format="fltp", layout="mono")
    frame.sample_rate = found
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=wanted)
    frames = [*resampler.resample(frame), *resampler.resample(None)]
    return np.concatenate([np.empty(0, np.float32), *(part.to_ndarray()[0] for part in frames)])
