"""MXNet's RecordIO files, such as InsightFace's train.rec with train.idx, read without unpacking.

A record is a magic number, its length and a flag in one word, its bytes, and zeros up to a multiple
of four. Where the bytes of a record contain the magic number, it is left out and the record
continues as another part. A record of an image begins with a header: the number of labels that
follow (0: one, in the header), the label, and two unused numbers.
"""

import functools
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.vision.image_files import decode_image, read_image

CELL = re.compile(r"(.+\.rec)@(\d+)", re.DOTALL)  # a record file, and the offset of a record
MAGIC = struct.pack("<I", 0xCED7230A)
LENGTH_BITS = 29
WHOLE, FIRST, MIDDLE, LAST = range(4)  # which part of a record it is
PART_HEADER = struct.Struct("<4sI")
IMAGE_HEADER = struct.Struct("<IfQQ")
LARGEST_RECORD_BYTES = 1 << 26
MOST_LABELS = 1 << 12


def read_face_image(path: str | Path) -> Tensor:
    """The image, uint8 (3, height, width), of an image file or of a record.

    ``train.rec@8048`` is the image of the record at byte 8048 of train.rec.
    """
    cell = CELL.fullmatch(str(path))
    if cell is None:
        return read_image(path)
    return decode_image(_open_records(cell[1]).read(int(cell[2])).content, str(path))


class Record(NamedTuple):
    """The labels of a record and its content: in general the bytes of an image file."""

    labels: tuple[float, ...]
    content: bytes


class RecordIndex(NamedTuple):
    """The keys (n,) of records in increasing order, and the offset (n,) of each in the file."""

    keys: NDArray[np.int64]
    offsets: NDArray[np.int64]


class RecordFile:
    """Random access to a .rec file; each process opens it on first use."""

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
        """The record at an offset."""
        return unpack_record(self.read_bytes(offset), f"{self.path}, byte {offset}")

    def read_labels(self, offset: int) -> tuple[float, ...]:
        """The labels of the record at an offset, without reading its image."""
        size, _ = self._part_at(offset)
        where = f"{self.path}, byte {offset}"
        start = offset + PART_HEADER.size
        header = self._read(start, min(size, IMAGE_HEADER.size))
        if len(header) == IMAGE_HEADER.size:
            count = IMAGE_HEADER.unpack(header)[0]
            header += self._read(start + IMAGE_HEADER.size, min(4 * count, size - len(header)))
        return unpack_record(header, where).labels

    def read_bytes(self, offset: int) -> bytes:
        """The bytes of the record at an offset, its parts joined."""
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
        """Length and flag of the part of a record at an offset."""
        if offset < 0 or offset % 4:
            raise self._damage(offset, "no record begins there: the index is of another file")
        magic, word = PART_HEADER.unpack(self._read(offset, PART_HEADER.size))
        if magic != MAGIC:
            raise self._damage(offset, "no record begins there: the index is of another file")
        return word & ((1 << LENGTH_BITS) - 1), word >> LENGTH_BITS

    def _read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; raises if it ends before."""
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


@functools.lru_cache(maxsize=16)
def _open_records(path: str) -> RecordFile:
    """A record file, which stays open."""
    return RecordFile(path)


def unpack_record(data: bytes, where: str) -> Record:
    """The labels and the content of a record's bytes; messages say ``where`` it is."""
    if len(data) < IMAGE_HEADER.size:
        raise ValueError(f"{where}: a record of {len(data)} bytes has no header: fetch it again")
    count, label, _, _ = IMAGE_HEADER.unpack_from(data)
    content = data[IMAGE_HEADER.size :]
    if count == 0:
        return Record((label,), content)
    if count > MOST_LABELS or 4 * count > len(content):
        raise ValueError(f"{where}: the header announces {count} labels, which are not there")
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

    InsightFace's first record (key 0) has two labels. The first is the key at which the images end
    and the lists of images by person begin. Without such a record, all records are images.
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
