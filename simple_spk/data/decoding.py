"""Decoding what soundfile cannot read, m4a first, with FFmpeg inside this process (PyAV).

Running the program ffmpeg for each file costs ten times the decoding itself. Channels are averaged
here, because libswresample weights them differently when samples are floats. It converts the rate:
its filter is sharper than that of audio.py. An AAC
encoder's priming samples are skipped, and the last frame's padding is kept, as by ffmpeg.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray

from simple_spk import LONGEST_SECONDS, SAMPLE_RATE
from simple_spk.data.content import foreign_content
from simple_spk.data.tar_store import open_recording, tar_part

# Containers of recordings only: playlists and the like would make FFmpeg open other files.
_CONTAINERS = "aac,ac3,aiff,amr,asf,avi,caf,eac3,flac,flv,matroska,mov,mp3,mpegts,ogg,w64,wav,webm"
_OPTIONS = {"format_whitelist": _CONTAINERS, "protocol_whitelist": "file"}
# How much shorter than its header says a whole recording may be. mov rounds to milliseconds, the
# others are less exact; containers that are not listed can only guess their length.
_TOLERANCE_SECONDS = {"mov": 0.001, "matroska": 0.1, "asf": 0.1}
HEAD_BYTES = 4096
_BLOCK_SAMPLES = 2**20  # decoded at a time, in all channels together
_RATES = (2000, 768000)  # in hertz: what recordings have; a damaged header may say anything
_LARGEST_SAMPLE = 2.0**31  # integers of 32 bits that were written as floats: nothing is louder
LONGEST_WHOLE_SECONDS = 2 * 3600.0  # of recordings that are read into memory


class AudioError(ValueError):
    """A recording that cannot be used; the message names the file, the reason and the cure."""


class AudioHeader(NamedTuple):
    """What the header of a recording says."""

    seconds: float
    sample_rate: int
    channels: int
    audio_format: str  # the decoder's name of it, such as wav


class BadRecordingError(AudioError):
    """A file that is not a whole recording: the kind of fault in a word or two, and its details."""

    def __init__(self, path: str | Path, kind: str, details: str) -> None:
        super().__init__(path, kind, details)  # all of them, so that it can be pickled
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


def check_length(path: str | Path, seconds: float, longest_seconds: float) -> None:
    """Raise if a recording is too long: hours of silence have few bytes, and take long to read."""
    if seconds > longest_seconds:
        raise AudioError(
            f"{path} lasts {seconds:.0f} s or more, longer than the limit of {longest_seconds:g} "
            "s: cut it into parts, or raise the limit (--longest-seconds)"
        )


def check_samples(path: str | Path, waveform: NDArray[np.float32]) -> None:
    """Raise unless samples (samples,) are numbers that a sound can have."""
    peak = max(-waveform.min(), waveform.max()) if len(waveform) else 0.0
    if not np.isfinite(peak):
        raise BadRecordingError(path, "damaged", "holds samples that are not numbers")
    if peak > _LARGEST_SAMPLE:
        raise BadRecordingError(path, "damaged", f"holds samples as large as {peak:.3g}, not 1")


def decode(path: str | Path, sample_rate: int = SAMPLE_RATE) -> NDArray[np.float32]:
    """A whole recording (samples,), its channels averaged; raises BadRecordingError or OSError."""
    return np.concatenate(list(decoded_blocks(path, sample_rate, LONGEST_WHOLE_SECONDS)))


def decoded_blocks(
    path: str | Path, sample_rate: int = SAMPLE_RATE, longest_seconds: float = LONGEST_SECONDS
) -> Iterator[NDArray[np.float32]]:
    """The consecutive blocks (samples,) of ``decode``; truncation raises after the last one."""
    made = 0
    with _open(path) as container:
        stream = container.streams.audio[0]
        frames = _frames(path, container, stream)
        first = next(frames, None)
        if first is None:
            raise BadRecordingError(path, "header only", "holds no samples")
        check_rate(path, first.sample_rate)
        promise = _promise(container, stream)
        check_length(path, promise[0] or 0.0, longest_seconds)
        waveforms = _averaged(path, chain([first], frames), *promise)
        for block in _resampled(waveforms, first.sample_rate, sample_rate):
            made += len(block)
            check_length(path, made / sample_rate, longest_seconds)
            yield block
    if not made:
        raise BadRecordingError(path, "too short", f"holds less than a sample at {sample_rate} Hz")


def first_channels(path: str | Path) -> NDArray[np.float32]:
    """The channels (channels, samples) of the first block of a recording, not averaged."""
    held: list[NDArray[np.float32]] = []
    with _open(path) as container:
        for frame in _frames(path, container, container.streams.audio[0]):
            held.append(frame.to_ndarray())
            if sum(part.size for part in held) >= _BLOCK_SAMPLES:
                break
    return np.concatenate(held, axis=1)


def read_av_header(path: str | Path, longest_seconds: float = LONGEST_SECONDS) -> AudioHeader:
    """The header of a recording; if it lacks the length, that of the decoded samples."""
    with _open(path) as container:
        stream = container.streams.audio[0]
        seconds, _ = _promise(container, stream)
        rate, channels = stream.codec_context.sample_rate, stream.codec_context.channels
        audio_format = container.format.name.split(",")[0]
    if seconds is None:
        seconds = sum(map(len, decoded_blocks(path, SAMPLE_RATE, longest_seconds))) / SAMPLE_RATE
    return AudioHeader(seconds, rate, channels, audio_format)


def _open(path: str | Path) -> av.container.InputContainer:
    """The opened file, known to hold an audio stream."""
    with open_recording(Path(path)) as file:  # with clearer errors than FFmpeg's
        head = file.read(HEAD_BYTES)
    if not head:
        raise BadRecordingError(path, "empty", "has 0 bytes")
    if (content := foreign_content(head)) is not None:
        raise BadRecordingError(path, "not audio", f"holds {content}, not audio")
    try:
        # FFmpeg knows names in UTF-8 only.
        is_utf8 = not any("\udc80" <= letter <= "\udcff" for letter in str(path))
        is_named = is_utf8 and tar_part(path) is None
        name = f"file:{path}" if is_named else open_recording(Path(path))
        container = av.open(name, options=_OPTIONS, metadata_errors="replace")
    except av.FFmpegError as error:
        kind, details = "truncated", "lacks its index (moov atom)"
        if head[4:8] != b"ftyp":
            kind, details = "not audio", "is of no known audio format"
        elif len(head) < HEAD_BYTES and not head.partition(b"mdat")[2]:
            kind, details = "header only", f"ends after {len(head)} bytes"
        raise BadRecordingError(path, kind, details) from error
    streams = container.streams.audio
    if streams and streams[0].codec_context is not None:
        return container
    container.close()
    if streams:
        raise BadRecordingError(path, "damaged", "does not say how its audio is encoded")
    raise BadRecordingError(path, "without audio", "has no audio stream")


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
        reason = getattr(error, "strerror", None) or error  # without the names of functions
        raise BadRecordingError(path, "damaged", f"cannot be decoded ({reason})") from error


def _promise(
    container: av.container.InputContainer, stream: av.AudioStream
) -> tuple[float | None, float]:
    """The seconds that the header states, None if it only guesses, and how exact they are."""
    tolerance_seconds = _TOLERANCE_SECONDS.get(container.format.name.split(",")[0])
    if tolerance_seconds is None:
        return None, 0.0
    if stream.duration is not None:
        return float(stream.duration * stream.time_base), tolerance_seconds
    seconds = None if container.duration is None else container.duration / av.time_base
    return seconds, tolerance_seconds


def _averaged(
    path: str | Path,
    frames: Iterable[av.AudioFrame],
    promised_seconds: float | None,
    tolerance_seconds: float,
) -> Iterator[NDArray[np.float32]]:
    """The mean of all channels in blocks (samples,) of many frames; raises if there are too few."""
    held: list[NDArray[np.float32]] = []
    samples, seconds = 0, 0.0
    for frame in frames:
        held.append(frame.to_ndarray())
        samples += held[-1].size
        seconds += frame.samples / frame.sample_rate
        if samples >= _BLOCK_SAMPLES:
            yield mean_of_channels(path, np.concatenate(held, axis=1), axis=0)
            held, samples = [], 0
    if promised_seconds is not None and seconds < promised_seconds - tolerance_seconds:
        details = f"promises {promised_seconds:.3f} s but holds {seconds:.3f} s"
        raise BadRecordingError(path, "truncated", details)
    if held:
        yield mean_of_channels(path, np.concatenate(held, axis=1), axis=0)


def mean_of_channels(
    path: str | Path, channels: NDArray[np.float32], axis: int
) -> NDArray[np.float32]:
    """The mean (samples,) over the axis of channels; raises if samples are not usable numbers."""
    with np.errstate(over="ignore", invalid="ignore"):  # the check below finds them
        is_mono = channels.shape[axis] == 1
        waveform = channels.squeeze(axis) if is_mono else channels.mean(axis=axis)
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
