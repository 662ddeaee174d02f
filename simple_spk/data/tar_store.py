"""Recordings in tar files, each named by its place: ``shard-0007.tar#offset+size``.

A corpus of a million files is slow to copy, list and open on network disks. In a manifest, such a
name is the index: no other file is needed, and a crop is read where it lies, as from a loose file.
``tar`` lists and unpacks the shards.
"""

import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import open_file

MARK = ".tar#"
BUFFER_BYTES = 1 << 16  # the decoders ask for a few kilobytes at a time
_PLACE = re.compile(r"(.*\.tar)#(\d{1,18})\+(\d{1,18})", re.DOTALL)
EXPECTED = "expected NAME.tar#offset+size with numbers of bytes"


class TarPart(NamedTuple):
    """The place of a recording in a tar file."""

    tar: Path
    offset: int
    size: int


def tar_part(path: str | Path) -> TarPart | None:
    """The place in a tar file that a path names; None if it names a file.

    >>> tar_part("a/shard-0000.tar#512+64044").size
    64044
    """
    text = os.fspath(path)
    if MARK not in text:
        return None
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text}: {EXPECTED}")
    return TarPart(Path(match[1]), int(match[2]), int(match[3]))


def file_of(path: Path) -> Path:
    """The file on the disk that holds a recording: its tar file, or itself."""
    part = tar_part(path)
    return path if part is None else part.tar


def fault_of_part(part: TarPart) -> str | None:
    """Why nothing can be read at this place; None if it lies in its tar file."""
    try:
        size = part.tar.stat().st_size
    except OSError as error:
        return f"{part.tar} cannot be read ({error.strerror})"
    if part.offset + part.size > size:
        return f"{part.tar} has {size} bytes, and no bytes up to {part.offset + part.size}"
    return None


def open_part(part: TarPart) -> io.BufferedReader:
    """The bytes of a recording in a tar file, as a file of its own."""
    return io.BufferedReader(_Window(part), BUFFER_BYTES)


class _Window(io.RawIOBase):
    """Some consecutive bytes of a file."""

    def __init__(self, part: TarPart) -> None:
        self._file = open(part.tar, "rb", buffering=0)  # noqa: SIM115
        self._start, self._size, self._place = part.offset, part.size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        left = max(0, self._size - self._place)
        self._file.seek(self._start + self._place)
        count = self._file.readinto(memoryview(buffer)[:left]) or 0
        self._place += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        return self._place

    def close(self) -> None:
        if hasattr(self, "_file"):  # it was opened
            self._file.close()
        super().close()


class Stored(NamedTuple):
    """A recording to be stored: its name in the tar file, and where it is now."""

    name: str
    path: Path


def write_tars(
    folder: Path, recordings: Sequence[Stored], most_bytes: int
) -> Iterator[tuple[int, str]]:
    """Write tar files of about ``most_bytes``; each recording's index and place, in their order.

    A place is relative to the folder. A tar file that an earlier run wrote of the same recordings,
    by names, sizes and times, is kept.
    """
    shards: list[list[tarfile.TarInfo]] = [[]]
    held = 0
    for stored in recordings:
        member = _member(stored)
        if shards[-1] and held + member.size > most_bytes:
            shards.append([])
            held = 0
        shards[-1].append(member)
        held += member.size
    done = 0
    for number, members in enumerate(shards):
        path = folder / f"shard-{number:04d}.tar"
        wanted = [(member.name, member.size, member.mtime) for member in members]
        places = _places(path)
        if [place[:3] for place in places] != wanted:
            with atomic_write(path) as partial, tarfile.open(partial, "w") as archive:
                for member, stored in zip(members, recordings[done:], strict=False):
                    with open_recording(stored.path) as file:
                        archive.addfile(member, file)
            places = _places(path)
        for _, size, _, offset in places:
            yield done, f"{path.name}#{offset}+{size}"
            done += 1


def _member(stored: Stored) -> tarfile.TarInfo:
    """The header of a recording in a tar file, without owner and rights."""
    part = tar_part(stored.path)
    state = file_of(stored.path).stat()
    member = tarfile.TarInfo(stored.name)
    member.size = state.st_size if part is None else part.size
    member.mtime = int(state.st_mtime)
    return member


def open_recording(path: Path) -> io.BufferedIOBase:
    """A recording's bytes, wherever they lie."""
    part = tar_part(path)
    if part is not None:
        return open_part(part)
    return cast(io.BufferedIOBase, open_file(path, "audio file"))


def _places(path: Path) -> list[tuple[str, int, float, int]]:
    """Name, size, time and offset of each member of a tar file; none if it is no such file."""
    try:
        with tarfile.open(path, "r:") as archive:
            return [(one.name, one.size, one.mtime, one.offset_data) for one in archive]
    except (OSError, tarfile.TarError):
        return []
