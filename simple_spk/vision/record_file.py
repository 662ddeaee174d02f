"""Records of MXNet's RecordIO files, as in InsightFace's train.rec with train.idx.

A record is a magic number, its length and a flag in one word, its bytes, and zeros up to a multiple
of four. Where the bytes of a record happen to hold the magic number, it is left out and the record
continues as another part. A record of an image begins with a header: flag (how many labels follow),
label, and two numbers that nobody uses.
"""

import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MAGIC = struct.pack("<I", 0xCED7230A)
LENGTH_BITS = 29
WHOLE, FIRST, MIDDLE, LAST = range(4)  # which part of a record it is
PART_HEADER = struct.Struct("<4sI")
IMAGE_HEADER = struct.Struct("<IfQQ")
LARGEST_RECORD_BYTES = 1 << 26
MOST_LABELS = 1 << 12


class Record(NamedTuple):
    """The labels of a record, and what comes with them: the bytes of an image file, mostly."""

    labels: tuple[float, ...]
    content: bytes


class RecordIndex(NamedTuple):
    """The keys (n,) of records, rising, and where (n,) each begins in the file."""

    keys: NDArray[np.int64]
    offsets: NDArray[np.int64]


class RecordFile:
    """Random access to a .rec file; each process opens it for itself when it first reads."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"no record file {self.path}: correct the path")
        self.size_bytes = self.path.stat().st_size
        self._opened: tuple[int, int] | None = None  # process, file descriptor

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_opened": None}

    def __del__(self) -> None:
        opened = getattr(self, "_opened", None)
        if opened is not None and opened[0] == os.getpid():
            os.close(opened[1])

    def read(self, offset: int) -> Record:
        """The record that begins at an offset."""
        return unpack(self.read_bytes(offset), f"{self.path}, byte {offset}")

    def read_labels(self, offset: int) -> tuple[float, ...]:
        """The labels of the record at an offset, without reading its image."""
        size, _ = self._part_at(offset)
        where = f"{self.path}, byte {offset}"
        start = offset + PART_HEADER.size
        header = self._read(start, min(size, IMAGE_HEADER.size))
        if len(header) == IMAGE_HEADER.size:
            count = IMAGE_HEADER.unpack(header)[0]
            header += self._read(start + IMAGE_HEADER.size, min(4 * count, size - len(header)))
        return unpack(header, where).labels

    def read_bytes(self, offset: int) -> bytes:
        """All bytes of the record that begins at an offset, its parts put together."""
        parts: list[bytes] = []
        begin, total = offset, 0
        while True:
            size, flag = self._part_at(begin)
            if flag not in ((WHOLE, FIRST) if not parts else (MIDDLE, LAST)):
                raise self._damage(begin, f"a part with the flag {flag} is out of place")
            total += size
            if total > LARGEST_RECORD_BYTES:
                raise self._damage(
                    offset, f"the record is longer than {LARGEST_RECORD_BYTES} bytes"
                )
            parts.append(self._read(begin + PART_HEADER.size, size))
            if flag in (WHOLE, LAST):
                return MAGIC.join(parts)
            begin += PART_HEADER.size + size + -size % 4

    def _part_at(self, offset: int) -> tuple[int, int]:
        """Length and flag of the part of a record that begins at an offset."""
        if offset < 0 or offset % 4:
            raise self._damage(offset, "no record begins there: the index is of another file")
        magic, word = PART_HEADER.unpack(self._read(offset, PART_HEADER.size))
        if magic != MAGIC:
            raise self._damage(offset, "no record begins there: the index is of another file")
        return word & ((1 << LENGTH_BITS) - 1), word >> LENGTH_BITS

    def _read(self, offset: int, size: int) -> bytes:
        """So many bytes, or an error if the file ends before."""
        if offset + size > self.size_bytes:
            raise self._damage(
                offset, f"{size} bytes are expected, but the file ends at {self.size_bytes}"
            )
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), os.open(self.path, os.O_RDONLY)
        data = os.pread(self._opened[1], size, offset)
        if len(data) < size:
            raise self._damage(offset, "the file has become shorter")
        return data

    def _damage(self, offset: int, reason: str) -> ValueError:
        return ValueError(
            f"{self.path}, byte {offset}: {reason}; it is truncated or damaged: fetch it again"
        )


def unpack(data: bytes, where: str) -> Record:
    """A record's bytes as labels and content; ``where`` it stands is for messages."""
    if len(data) < IMAGE_HEADER.size:
        raise ValueError(f"{where}: a record of {len(data)} bytes has no header: fetch it again")
    count, label, _, _ = IMAGE_HEADER.unpack_from(data)
    content = data[IMAGE_HEADER.size :]
    if count == 0:
        return Record((label,), content)
    if count > MOST_LABELS or 4 * count > len(content):
        raise ValueError(f"{where}: the header tells of {count} labels, which are not there")
    return Record(struct.unpack_from(f"<{count}f", content), content[4 * count :])


def read_record_index(path: str | Path) -> RecordIndex:
    """The index of a record file: lines of a key and an offset."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no index {path}: it belongs beside the .rec file")
    try:
        numbers = np.array(path.read_bytes().split(), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path} is not a list of keys and offsets ({error})") from error
    if not len(numbers) or len(numbers) % 2:
        raise ValueError(f"{path} is truncated: expected a key and an offset in each line")
    keys, offsets = numbers.reshape(-1, 2).T
    order = np.argsort(keys, kind="stable")
    keys, offsets = keys[order].copy(), offsets[order].copy()
    if (keys[1:] == keys[:-1]).any():
        raise ValueError(f"{path} has the key {keys[:-1][keys[1:] == keys[:-1]][0]} twice")
    return RecordIndex(keys, offsets)


def image_records(file: RecordFile, index: RecordIndex) -> RecordIndex:
    """The records of an index that are images.

    InsightFace's first record (key 0) has two labels, the first of which is the key where images
    end and lists of images by person begin. Without such a record all are images.
    """
    if index.keys[0] != 0:
        return index
    labels = file.read_labels(int(index.offsets[0]))
    if len(labels) < 2:
        return index
    chosen = (index.keys >= 1) & (index.keys < int(labels[0]))
    if not chosen.any():
        raise ValueError(f"{file.path}: the first record says that there are no images ({labels})")
    return RecordIndex(index.keys[chosen], index.offsets[chosen])
