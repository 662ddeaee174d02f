"""A folder with a folder per speaker: which recordings it holds, and which of them can be used.

A journal remembers what was learned about a file with its size and time of change, so that it is
inspected again only when it changed; files with faults are always inspected again.
"""

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from simple_spk.corpora.inspection import SILENT, AudioFile, Depth, inspect_files, length_fault
from simple_spk.corpora.journal import Journal
from simple_spk.corpora.tables import Quarantined
from simple_spk.data.audio import RECORDING_SUFFIXES, SHORTEST_SECONDS
from simple_spk.io.atomic_file import lock_folder

# Python reads file names that are not UTF-8 as lone surrogates.
UNFIT_FOR_TABLES = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


class FolderContents(NamedTuple):
    """The recordings of a folder in order of name, and what is left out."""

    files: list[AudioFile]
    faults: list[Quarantined]
    other_files: int  # without the suffix of audio


class UsableFiles(NamedTuple):
    """Durations of the usable files by name, the faults of the others, how many were opened."""

    durations_seconds: dict[str, float]
    faults: list[Quarantined]
    opened: int


class _Remembered(NamedTuple):
    """A line of the journal: a file without faults, and the depth to which it was inspected."""

    name: str
    size_bytes: int
    mtime_ns: int
    depth: int
    seconds: float


def list_speaker_folder(folder: str | Path) -> FolderContents:
    """The audio files below each speaker's folder, links followed; hidden ones are faults."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"no folder at {root}: give the folder that holds the speakers'")
    files: list[AudioFile] = []
    faults: list[Quarantined] = []
    other_files = 0
    seen: dict[str, str] = {}  # where a folder really is -> where it was found first

    def unreachable(error: OSError) -> None:
        name = os.path.relpath(error.filename, root)
        faults.append(Quarantined(name, "unreachable", f"cannot be reached ({error.strerror})"))

    for place, folders, names in os.walk(root, onerror=unreachable, followlinks=True):
        below = os.path.relpath(place, root)
        prefix = "" if below == os.curdir else f"{below}/"
        twin = seen.setdefault(os.path.realpath(place), below)
        if twin != below:  # through links, perhaps in a circle
            faults.append(Quarantined(below, "duplicate", f"is the same folder as {twin}"))
            folders.clear()
            continue
        for name in [name for name in folders if name.startswith(".")]:
            faults.append(Quarantined(prefix + name, "hidden", "is a hidden folder"))
            folders.remove(name)
        folders.sort()
        for name in sorted(names):
            path = prefix + name
            if not name.lower().endswith(RECORDING_SUFFIXES):
                other_files += 1
            elif name.startswith("."):
                faults.append(Quarantined(path, "hidden", "is a hidden file"))
            elif not prefix:
                faults.append(Quarantined(path, "no speaker", "lies in no speaker's folder"))
            elif UNFIT_FOR_TABLES.search(path):
                details = "has a name with control characters or not in UTF-8: rename it"
                faults.append(Quarantined(path, "unfit name", details))
            else:
                try:
                    status = os.stat(os.path.join(place, name))
                    files.append(AudioFile(path, status.st_size, status.st_mtime_ns))
                except OSError as error:
                    unreachable(error)
    named = {file.speaker for file in files} | {fault.source.split("/")[0] for fault in faults}
    speakers = {below.split("/")[0] for below in seen.values() if below != os.curdir}
    faults += [Quarantined(name, "empty", "holds no recordings") for name in speakers - named]
    return FolderContents(sorted(files), faults, other_files)


def find_usable(
    folder: str | Path,
    files: Sequence[AudioFile],
    journal_path: Path,
    shortest_seconds: float = SHORTEST_SECONDS,
    decode: bool = False,
    workers: int = 4,
) -> UsableFiles:
    """Durations of files that are long enough, readable and not silent; faults of the others.

    Files are judged by their header and their end, or by all samples if ``decode`` (or if the end
    is silent). The journal remembers it, also of an interrupted run.
    """
    depth = Depth.SAMPLES if decode else Depth.SILENCE
    faults: list[Quarantined] = []
    with (
        lock_folder(journal_path.parent, "inspecting files"),
        contextlib.closing(
            Journal(journal_path, {"content": "inspected files"}, _Remembered)
        ) as journal,
    ):
        known = ((file, journal.rows.get(file.name)) for file in files)
        rows = {
            row.name: row for file, row in known if row and row[:3] == file and row.depth >= depth
        }
        new = [file for file in files if file.name not in rows]
        paths = [os.path.join(folder, file.name) for file in new]
        with contextlib.closing(inspect_files(paths, depth, workers)) as inspected:
            for file, facts in zip(new, inspected, strict=True):
                fault = SILENT if facts.is_silent else facts.fault
                if fault is None:
                    rows[file.name] = _Remembered(*file, depth, facts.seconds)
                    journal.append(rows[file.name])
                else:
                    faults.append(Quarantined(file.name, *fault))
        journal.rewrite(rows[name] for name in sorted(rows))
    durations = {name: rows[name].seconds for name in sorted(rows)}
    for name, seconds in [*durations.items()]:
        fault = length_fault(seconds, shortest_seconds)
        if fault is not None:
            faults.append(Quarantined(name, *fault))
            del durations[name]
    return UsableFiles(durations, faults, len(new))
