"""The keys of all voices in a memory-mapped file, and the exact products with queries.

A key is a lifted embedding; it has a fixed row. The file is derived from the records of the voices:
if it is missing, it is made again. Its processes take turns at writing (``voice_file``).
"""

import contextlib
import hashlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.voice_stores.voice import Lift, best_places
from simple_spk.io.atomic_file import atomic_write

MAGIC = b"simple_spk keys1"
HEADER = struct.Struct("<16s16s16sI")  # magic, identity of the records, digest of the lift, width
START = 4096  # bytes before the first row
FEWEST_ROWS = 64  # of a file, which doubles when it is full; what is not written takes no room
ROWS_AT_ONCE = 2**14  # in a product: 17 MB of 257 numbers


class Kind(NamedTuple):
    """Which records keys belong to, and how they were lifted to how many numbers."""

    identity: bytes
    lift: bytes
    width: int

    @classmethod
    def of(cls, identity: bytes, lift: Lift, dimension: int) -> "Kind":
        """The kind of keys of records with embeddings of this dimension."""
        probe = np.zeros((1, dimension), np.float32)
        probe[0, :2] = (3.0, 4.0)[:dimension]  # a length without rounding: equal on all machines
        lifted = np.ascontiguousarray(lift(probe), np.float32)
        digest = hashlib.blake2b(lifted.tobytes(), digest_size=16).digest()
        return cls(identity, digest, lifted.shape[1])


class KeyMatrix:
    """A file of keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mapped: tuple[tuple[int, int, int], NDArray[np.float32]] | None = None

    def kind(self) -> Kind | None:
        """What the file holds; None if there is no such file."""
        try:
            with self.path.open("rb") as file:
                magic, *kind = HEADER.unpack(file.read(HEADER.size))
        except (OSError, struct.error):
            return None
        return Kind(*kind) if magic == MAGIC and kind[-1] > 0 else None

    def create(self, kind: Kind, blocks: Iterable[NDArray[np.float32]]) -> None:
        """Write the file anew with these rows."""
        with atomic_write(self.path) as partial, partial.open("r+b") as file:
            file.write(HEADER.pack(MAGIC, *kind).ljust(START, b"\0"))
            rows = 0
            for block in blocks:
                file.write(np.ascontiguousarray(block, "<f4").tobytes())
                rows += len(block)
            file.truncate(START + 4 * kind.width * max(FEWEST_ROWS, rows))

    def write(self, width: int, rows: NDArray[np.integer], keys: NDArray[np.float32]) -> None:
        """Write keys (n, width) to rows (n,), and wait until they are on the disk."""
        content = np.ascontiguousarray(keys, "<f4")
        with self.path.open("r+b", buffering=0) as file:
            room = (os.fstat(file.fileno()).st_size - START) // (4 * width)
            if rows.max() >= room:
                file.truncate(START + 4 * width * max(2 * room, int(rows.max()) + 1))
            # Consecutive rows at once.
            breaks = np.flatnonzero(np.diff(rows) != 1) + 1
            for part in np.split(np.arange(len(rows)), breaks):
                file.seek(START + 4 * width * int(rows[part[0]]))
                left = memoryview(content[part[0] : part[-1] + 1].tobytes())
                while left:
                    left = left[file.write(left) :]
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

    def rows(self, kind: Kind, count: int) -> NDArray[np.float32] | None:
        """The first rows (count, width), mapped; None if the file is of another kind or shorter."""
        if self.kind() != kind:
            return None
        with contextlib.suppress(OSError, ValueError), self.path.open("rb") as file:
            state = os.fstat(file.fileno())
            version = (state.st_dev, state.st_ino, state.st_size)
            room = (state.st_size - START) // (4 * kind.width)
            if room < count:
                return None
            if self._mapped is None or self._mapped[0] != version:
                shape = (room, kind.width)
                mapped = np.memmap(file, np.dtype("<f4"), "r", START, shape)
                self._mapped = version, np.asarray(mapped)
            return self._mapped[1][:count]
        return None


def best_rows(
    queries: NDArray[np.float32], keys: NDArray[np.float32], count: int
) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
    """The rows of the ``count`` keys of the highest inner products with each query, and these.

    Keys that are not numbers are of nobody.
    """
    found = [(np.empty(0, np.int64), np.empty(0, np.float32)) for _ in queries]
    least = np.full(len(queries), -np.inf, np.float32)
    for start in range(0, len(keys), ROWS_AT_ONCE):
        with np.errstate(over="ignore", invalid="ignore"):
            products = queries @ keys[start : start + ROWS_AT_ONCE].T
        for place, scores in enumerate(products):
            better = np.flatnonzero(scores > least[place])
            if not len(better):
                continue
            rows = np.append(found[place][0], better + start)
            values = np.append(found[place][1], scores[better])
            if len(rows) > count:
                kept = np.sort(best_places(values, count))  # equal ones stay in order
                rows, values = rows[kept], values[kept]
                least[place] = values.min()
            found[place] = rows, values
    return found
