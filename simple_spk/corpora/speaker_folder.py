"""A folder with a folder per speaker: which recordings lie in it, and which of them can be used.

What was learned about a file is remembered with its size and time of change, so that it is looked
at again only when it changed; files with faults are always looked at again.
"""

import csv
import os
import re
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk.data.audio import (
    AUDIO_SUFFIXES,
    AudioError,
    duration_seconds,
    read_crop,
    read_recording,
)
from simple_spk.io.atomic_file import atomic_write

SILENT_PEAK = 1e-4  # three steps of 16-bit samples
END_SAMPLES = 1600
LAST = float(np.nextafter(1.0, 0.0))  # the position of a recording's last crop
SAVE_SECONDS = 30.0
# Python reads file names that are not UTF-8 as lone surrogates.
UNFIT_FOR_TABLES = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
PROBE_COLUMNS = ("path", "bytes", "modified", "decoded", "duration")


class FoundFile(NamedTuple):
    """A file below a speaker's folder; ``path`` is relative to the folder of all speakers."""

    speaker: str
    path: str
    size_bytes: int
    modified_nanoseconds: int


class Found(NamedTuple):
    """What a folder holds: recordings in order of path, and why other things are left out."""

    files: list[FoundFile]
    faults: dict[str, str]  # path -> reason
    other_files: int  # without the suffix of audio


class Probe(NamedTuple):
    """What was learned about a file; ``is_decoded``: from all of it, not from its head and end."""

    size_bytes: int
    modified_nanoseconds: int
    is_decoded: bool
    duration_seconds: float


class Probed(NamedTuple):
    """Durations of the usable files by path, the faults of the others, and how many were opened."""

    durations_seconds: dict[str, float]
    faults: dict[str, str]
    opened: int


def find_recordings(folder: str | Path) -> Found:
    """The audio files below each speaker's folder, links followed, hidden ones left out by name."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"no folder at {root}: give the folder that holds the speakers'")
    files: list[FoundFile] = []
    faults: dict[str, str] = {}
    other_files = 0
    seen: dict[str, str] = {}  # where a folder really is -> where it was found first

    def note_unreachable(error: OSError) -> None:
        """Name a folder that may not be listed, which os.walk would pass over."""
        faults[os.path.relpath(error.filename, root)] = f"cannot be reached ({error.strerror})"

    for place, folders, names in os.walk(root, onerror=note_unreachable, followlinks=True):
        below = os.path.relpath(place, root)
        parts = () if below == os.curdir else Path(below).parts
        twin = seen.setdefault(os.path.realpath(place), below)
        if twin != below:  # through links, perhaps in a circle
            faults[below] = f"is the same folder as {twin}"
            folders.clear()
            continue
        for name in [name for name in folders if name.startswith(".")]:
            faults[os.path.join(*parts, name)] = "is a hidden folder"
            folders.remove(name)
        folders.sort()
        for name in sorted(names):
            path = os.path.join(*parts, name)
            if not name.lower().endswith(AUDIO_SUFFIXES):
                other_files += 1
            elif name.startswith("."):
                faults[path] = "is a hidden file"
            elif not parts:
                faults[path] = "lies in no speaker's folder"
            elif UNFIT_FOR_TABLES.search(path):
                faults[path] = "has a name with control characters or not in UTF-8: rename it"
            else:
                try:
                    status = os.stat(os.path.join(place, name))
                except OSError as error:
                    faults[path] = f"cannot be reached ({error.strerror})"
                    continue
                files.append(FoundFile(parts[0], path, status.st_size, status.st_mtime_ns))
    heard_of = {file.speaker for file in files} | {Path(path).parts[0] for path in faults}
    for speaker in {Path(below).parts[0] for below in seen.values() if below != os.curdir}:
        if speaker not in heard_of:
            faults[speaker] = "holds no recordings"
    return Found(sorted(files, key=lambda file: file.path), faults, other_files)


def probe_recordings(
    folder: str | Path,
    files: Iterable[FoundFile],
    memory: str | Path,
    minimum_seconds: float = 1.0,
    decode: bool = False,
    workers: int = 4,
    progress: bool = True,
) -> Probed:
    """Durations of files that are long enough, readable and not silent; faults of the others.

    Files are judged by their header and their end, or by all of their samples if ``decode`` (or if
    the end is silent). ``memory`` is the file that remembers it, also of an interrupted run.
    """
    root = Path(folder)
    remembered = _read_memory(Path(memory))
    known: dict[str, Probe] = {}
    new: list[FoundFile] = []
    for file in files:
        probe = remembered.get(file.path)
        stamp = (file.size_bytes, file.modified_nanoseconds)
        if probe is not None and probe[:2] == stamp and (probe.is_decoded or not decode):
            known[file.path] = probe
        else:
            new.append(file)
    faults: dict[str, str] = {}
    saved_at = time.monotonic()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        results = pool.map(lambda file: _probe(root / file.path, decode), new)
        bar = tqdm(results, total=len(new), unit="file", desc="probe", disable=not progress)
        try:
            for file, result in zip(new, bar, strict=True):
                if isinstance(result, str):
                    faults[file.path] = result
                    continue
                stamp = (file.size_bytes, file.modified_nanoseconds)
                known[file.path] = Probe(*stamp, decode, result)
                if time.monotonic() - saved_at > SAVE_SECONDS:
                    _write_memory(Path(memory), known)
                    saved_at = time.monotonic()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            if known != remembered:
                _write_memory(Path(memory), known)
    durations = {}
    for path in sorted(known):
        seconds = known[path].duration_seconds
        if seconds < minimum_seconds:
            faults[path] = f"is short: {seconds:.2f} s, less than {minimum_seconds} s"
        else:
            durations[path] = seconds
    return Probed(durations, dict(sorted(faults.items())), len(new))


def _probe(path: Path, decode: bool) -> float | str:
    """The seconds of a usable file, or what is wrong with it."""
    try:
        seconds = duration_seconds(path)
        if not decode:
            # A file that breaks off has no end; one whose end is heard need not be read further.
            end = read_crop(path, END_SAMPLES, LAST)
            if _peak(end) >= SILENT_PEAK:
                return seconds
        if _peak(read_recording(path)) < SILENT_PEAK:
            return "is silent"
    except (AudioError, OSError) as error:
        return f"cannot be read: {error}"
    return seconds


def _peak(waveform: NDArray[np.float32]) -> float:
    """The largest deviation of samples (n,) from zero."""
    return float(np.abs(waveform).max())


def _read_memory(path: Path) -> dict[str, Probe]:
    """What earlier runs learned, by path; nothing if there is no such file."""
    if not path.is_file():
        return {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file, strict=True)
        if tuple(header) != PROBE_COLUMNS:
            raise ValueError(f"its first line is {','.join(header)!r}")
        return {
            name: Probe(int(size), int(modified), decoded == "1", float(duration))
            for name, size, modified, decoded, duration in rows
        }
    except (csv.Error, ValueError) as error:
        raise ValueError(
            f"{path} is not what this program wrote there ({error}): delete it, and all files are "
            f"looked at again"
        ) from error


def _write_memory(path: Path, probes: dict[str, Probe]) -> None:
    """Write what is known about files; whole or not at all."""
    with (
        atomic_write(path) as partial,
        partial.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(PROBE_COLUMNS)
        for name, probe in probes.items():
            size, modified, is_decoded, seconds = probe
            writer.writerow((name, size, modified, int(is_decoded), repr(seconds)))
