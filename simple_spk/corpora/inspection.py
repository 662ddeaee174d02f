"""What audio files hold and what is wrong with them: one inspection for all corpora and checks."""

import contextlib
import hashlib
import multiprocessing
import os
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from enum import IntEnum
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk import SAMPLE_RATE
from simple_spk.data.audio import AudioError, is_silent, read_crop, read_header, read_recording
from simple_spk.data.decoding import BadRecordingError
from simple_spk.data.tar_store import open_recording

FILES_PER_TASK = 64
FULL_SCALE = 0.999
LAST_CROP = float(np.nextafter(1.0, 0.0))  # the position of a recording's last crop
END_SAMPLES = 1600
Fault = tuple[str, str]  # its kind in a word or two, and details
SILENT: Fault = ("silent", "is silent")


class Depth(IntEnum):
    """How much of a file is read."""

    NAMES = 0  # nothing
    ENDS = 1  # the header, and the end that it promises
    SILENCE = 2  # and all samples, if the end is silent
    SAMPLES = 3  # all samples


class AudioFile(NamedTuple):
    """A file below a folder; size and time of change tell whether it is still the same."""

    name: str  # relative to the folder; its first part is the speaker
    size_bytes: int
    mtime_ns: int

    @property
    def speaker(self) -> str:
        """The first part of the name, as one string for all files of a speaker."""
        return sys.intern(self.name.partition("/")[0])


class AudioFacts(NamedTuple):
    """What inspection says of a file; facts that were not looked for are None, nan or 0."""

    seconds: float = np.nan  # nan: the file has a fault
    sample_rate: int = 0
    channels: int = 0
    is_silent: bool | None = None
    full_scale_share: float = np.nan  # of the samples, the share that touches full scale
    digest: int = 0  # of the file's bytes
    fault: Fault | None = None  # why it cannot be read


def inspect_file(path: str | Path, depth: Depth, with_digest: bool = False) -> AudioFacts:
    """The facts about a file, which is read as far as ``depth`` says."""
    try:
        seconds, sample_rate, channels, _ = read_header(path)
        silent, share = None, np.nan
        if depth < Depth.SAMPLES:
            end = _read_end(path)
            silent = None if end is None or is_silent(end) else False
        if depth is Depth.SAMPLES or (depth is Depth.SILENCE and silent is None):
            waveform = read_recording(path)
            seconds = len(waveform) / SAMPLE_RATE
            silent = is_silent(waveform)
            share = float(np.mean(np.abs(waveform) >= FULL_SCALE))
        digest = 0
        if with_digest:
            with open_recording(Path(path)) as file:
                content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8))
            digest = int.from_bytes(content.digest(), "little")
        return AudioFacts(seconds, sample_rate, channels, silent, share, digest)
    except (AudioError, OSError) as error:
        return AudioFacts(fault=fault_of(error))


def inspect_files(
    paths: Sequence[str],
    depth: Depth,
    workers: int = 1,
    in_processes: bool = False,
    with_digest: Sequence[bool] | None = None,
) -> Generator[AudioFacts, None, None]:
    """The facts about files, in their order, gathered by ``workers`` threads or processes.

    Threads start at once and wait for the disk; processes pay off for many files.
    ``with_digest`` says for which files (n,) a digest of the bytes is wanted (None: for none).
    """
    workers = max(1, workers)
    pool: Executor
    if in_processes and workers > 1:
        # Spawned: forked processes hang in torch, which resamples, once the parent used threads.
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    else:
        pool = ThreadPoolExecutor(workers)
    chunk = max(1, min(FILES_PER_TASK, len(paths) // (4 * workers)))
    digests = with_digest or repeat(False)
    facts = pool.map(inspect_file, paths, repeat(depth), digests, chunksize=chunk)
    try:
        yield from tqdm(facts, "inspect", len(paths), unit="file")
    except BrokenProcessPool as error:
        reason = "a process that inspects audio was killed, probably because memory ran out"
        raise OSError(f"{reason}: give fewer --processes") from error
    finally:
        pool.shutdown(cancel_futures=True)


def fault_of(error: AudioError | OSError) -> Fault:
    """Kind and details of an error that reading a file raised."""
    if isinstance(error, BadRecordingError):
        return error.kind, error.details
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return "unreadable", f"cannot be read ({error.strerror})"
    return "vanished", "is gone, or a broken link"


def length_fault(seconds: float, shortest_seconds: float) -> Fault | None:
    """What is wrong with the length of a recording, if anything."""
    if seconds >= shortest_seconds:
        return None
    return "too short", f"lasts {seconds:.3f} s, less than {shortest_seconds:g} s"


def _read_end(path: str | Path) -> NDArray[np.float32] | None:
    """The last samples, or None for m4a; raises AudioError if they are not where they should be."""
    if str(path).lower().endswith(".m4a"):
        # A crop of an m4a is cut from the decoded whole, but its index says where its packets lie.
        with contextlib.suppress(av.FFmpegError):  # another format under this name
            with av.open(f"file:{path}", format="mp4", metadata_errors="replace") as container:
                index = container.streams.audio[0].index_entries
                end = index[len(index) - 1].pos + index[len(index) - 1].size if len(index) else 0
            size = os.path.getsize(path)
            if end > size:
                details = f"has {size} bytes, but packets up to byte {end}"
                raise BadRecordingError(path, "truncated", details)
            return None
    return read_crop(path, END_SAMPLES, LAST_CROP)
