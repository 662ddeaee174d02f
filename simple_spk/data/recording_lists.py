"""Recordings named by audio files, folders, lists and manifests, with their ids."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from simple_spk.data.audio import RECORDING_SUFFIXES, AudioError, read_header
from simple_spk.data.manifest import read_manifest
from simple_spk.data.tar_store import file_of
from simple_spk.io.input_file import read_file

LARGEST_BYTES, MOST_RECORDINGS = 2**28, 2**22  # of a list
LIST_SUFFIXES = (".txt", ".lst", ".list", ".scp")
Item = TypeVar("Item")


class Shard(NamedTuple):
    """One of several consecutive parts of a list, counted from 1."""

    number: int
    total: int

    def of(self, items: list[Item]) -> list[Item]:
        """The items of this shard; the sizes of shards differ by one at most.

        >>> Shard(2, 3).of(["a", "b", "c", "d"])
        ['b']
        """
        count = len(items)
        if count < self.total:
            raise ValueError(
                f"{count} recordings cannot be divided into {self.total} parts: ask for fewer"
            )
        first = count * (self.number - 1) // self.total
        return items[first : count * self.number // self.total]


class NamedRecordings(NamedTuple):
    """Recordings and their distinct ids."""

    ids: list[str]
    paths: list[Path]
    left_out: tuple[Path, ...] = ()  # files of folders whose names are not those of recordings


def find_recordings(sources: Sequence[Path]) -> NamedRecordings:
    """The recordings of files, folders and lists, in that order.

    An id is a file's name, its path below a folder, its ID in a manifest (.csv), or its id in a
    list. In folders, files without an extension count if they are audio. Lists (.txt, .lst, .list,
    .scp) have lines of a path, or of an id and a path; relative paths are relative to the list's
    folder, or else to the current one.
    """
    ids: list[str] = []
    paths: list[Path] = []
    left_out: list[Path] = []
    for source in sources:
        if source.is_dir():
            files, others = _audio_below(source)
            left_out += others
            found = NamedRecordings([p.relative_to(source).as_posix() for p in files], files)
        elif source.suffix.lower() == ".csv":
            manifest = read_manifest(source)
            files = [manifest.wav(row) for row in range(len(manifest))]
            found = NamedRecordings(list(manifest.row_of_id), files)
        elif source.suffix.lower() in LIST_SUFFIXES:
            found = _of_list(source)
        else:
            found = NamedRecordings([source.name], [source])
        ids += found.ids
        paths += found.paths
    name, count = Counter(ids).most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{count} recordings of {', '.join(map(str, sources[:3]))} have one id, {name}: embed "
            "their folders separately, or list ids"
        )
    return NamedRecordings(ids, paths, tuple(left_out))


def _of_list(path: Path) -> NamedRecordings:
    """The recordings of a text file with a path, or an id and a path, in each line."""
    text = read_file(path, "list", LARGEST_BYTES).decode("utf-8-sig", errors="surrogateescape")
    if "\0" in text:
        raise ValueError(f"{path} is not a text file: name a list")
    if text.count("\n") > MOST_RECORDINGS:
        raise ValueError(f"{path} has over {MOST_RECORDINGS} lines: split it")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    if not lines:
        raise ValueError(f"{path} lists no recordings")
    piped = next((number for number, line in enumerate(lines, 1) if line.endswith("|")), None)
    if piped is not None:
        raise ValueError(f"{path}: recording {piped} is a command; commands are never run")
    # Paths may have spaces: the first line tells whether lines have ids.
    head = lines[0].split(maxsplit=1)
    has_ids = len(head) == 2 and (
        path.suffix.lower() == ".scp"
        or (
            not os.path.isfile(_beside(path, lines[0]))  # false also of names that cannot be
            and os.path.isfile(_beside(path, head[1]))
        )
    )
    if not has_ids:
        return NamedRecordings(lines, [_beside(path, line) for line in lines])
    fields = [line.split(maxsplit=1) for line in lines]
    lone = next((number for number, field in enumerate(fields, 1) if len(field) < 2), None)
    if lone is not None:
        raise ValueError(f"{path}: recording {lone} has one field; expected an id and a path")
    return NamedRecordings([name for name, _ in fields], [_beside(path, p) for _, p in fields])


def _beside(list_path: Path, name: str) -> Path:
    """The path of a list's recording: relative to the list, or else to the current folder."""
    beside = list_path.parent / name
    # Path.exists may raise for a name that is too long.
    return beside if os.path.exists(file_of(beside)) else Path(name)


def _audio_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """All audio files below a folder, links followed, and all other files."""

    def fail(error: OSError) -> None:
        raise error  # which os.walk would pass over

    found: list[Path] = []
    others: list[Path] = []
    seen: dict[str, str] = {}  # where a folder really is -> where it was found first
    for place, _, names in os.walk(folder, onerror=fail, followlinks=True):
        twin = seen.setdefault(os.path.realpath(place), place)
        if twin != place:  # perhaps in a circle
            raise ValueError(f"{place} is the same folder as {twin}: remove one of the links")
        for path in (Path(place, name) for name in names):
            (found if _is_recording(path) else others).append(path)
    if not found:
        raise ValueError(f"{folder}: no audio files below this folder")
    return sorted(found), sorted(others)


def _is_recording(path: Path) -> bool:
    """Whether a file in a folder is a recording by its name or, if it has no extension, inside."""
    if path.suffix:
        return path.name.lower().endswith(RECORDING_SUFFIXES)
    try:
        read_header(path)
    except (AudioError, OSError):
        return False
    return True
