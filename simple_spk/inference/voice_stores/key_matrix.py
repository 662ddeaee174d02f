"""The keys of all voices in a memory-mapped file, a byte for each number, and their best products.

A key is a lifted embedding; it has a fixed row. The row has a byte for each number but the last
(often a length, and larger than the others), the scale of the bytes, and the last number. The scale
bounds the error of a product with any query. So a search can name all keys that may be among the
best; the voices' records then give exact scores.

The file is derived from the records: if it is missing, it is made again. Its processes take turns
at writing (``voice_file``).
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

from simple_spk.inference.voice_stores.voice import Lift
from simple_spk.io.atomic_file import atomic_write

MAGIC = b"simple_spk keys2"
HEADER = struct.Struct("<16s16s16sI")  # magic, identity of the records, digest of the lift, width
START = 4096  # bytes before the first row
FEWEST_ROWS = 64  # of a file, which doubles when it is full; what is not written takes no room
ROWS_AT_ONCE = 2**13  # in a product: 2 MB of 257 numbers, which stay in the cache
NUMBERS = 2  # of 4 bytes at the end of a row: scale, last number of the key
MOST_CODE = 127
# Digits of a query: a product of two pairs of bytes fits 16 bits, as some processors need it.
MOST_DIGIT = 63
ROUNDING = 2e-5  # of a product in float32, as a share of the lengths: above 300 * 2**-24


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


class Found(NamedTuple):
    """Rows (k,) of keys whose products with a query may be among the best.

    The products differ from ``scores`` (k,) by at most ``errors`` (k,).
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    errors: NDArray[np.float32]


class KeyMatrix:
    """A file of keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mapped: tuple[tuple[int, int, int], NDArray[np.int8]] | None = None

    def kind(self) -> Kind | None:
        """What the file holds; None if there is no such file."""
        try:
            with self.path.open("rb") as file:
                magic, *kind = HEADER.unpack(file.read(HEADER.size))
        except (OSError, struct.error):
            return None
        return Kind(*kind) if magic == MAGIC and kind[-1] > 0 else None

    def create(self, kind: Kind, blocks: Iterable[NDArray[np.float32]]) -> None:
        """Write the file anew with these keys."""
        with atomic_write(self.path) as partial, partial.open("r+b") as file:
            file.write(HEADER.pack(MAGIC, *kind).ljust(START, b"\0"))
            rows = 0
            for block in blocks:
                file.write(encoded(block).tobytes())
                rows += len(block)
            file.truncate(START + row_bytes(kind.width) * max(FEWEST_ROWS, rows))

    def write(self, width: int, rows: NDArray[np.integer], keys: NDArray[np.float32]) -> None:
        """Write keys (n, width) to rows (n,), and wait until they are on the disk."""
        content, size = encoded(keys), row_bytes(width)
        with self.path.open("r+b", buffering=0) as file:
            room = (os.fstat(file.fileno()).st_size - START) // size
            if rows.max() >= room:
                file.truncate(START + size * max(2 * room, int(rows.max()) + 1))
            # Consecutive rows at once.
            breaks = np.flatnonzero(np.diff(rows) != 1) + 1
            for part in np.split(np.arange(len(rows)), breaks):
                file.seek(START + size * int(rows[part[0]]))
                left = memoryview(content[part[0] : part[-1] + 1].tobytes())
                while left:
                    left = left[file.write(left) :]
            os.fsync(file.fileno())

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)

    def rows(self, kind: Kind, count: int) -> NDArray[np.int8] | None:
        """The first rows (count, bytes), mapped; None if the file is of another kind or shorter."""
        if self.kind() != kind:
            return None
        with contextlib.suppress(OSError, ValueError), self.path.open("rb") as file:
            state = os.fstat(file.fileno())
            version = (state.st_dev, state.st_ino, state.st_size)
            room = (state.st_size - START) // row_bytes(kind.width)
            if room < count:
                return None
            if self._mapped is None or self._mapped[0] != version:
                shape = (room, row_bytes(kind.width))
                # "c": nothing is written, but torch takes no array that is read-only.
                mapped = np.memmap(file, np.int8, "c", START, shape)
                self._mapped = version, np.asarray(mapped)
            return self._mapped[1][:count]
        return None


def row_bytes(width: int) -> int:
    """How many bytes a key of so many numbers takes."""
    return -(-(width - 1 + 4 * NUMBERS) // 16) * 16


def encoded(keys: NDArray[np.float32]) -> NDArray[np.int8]:
    """Keys (n, width) as rows (n, bytes); those with values that are not numbers are of nobody."""
    rows = np.zeros((len(keys), row_bytes(keys.shape[1])), np.int8)
    is_known = np.isfinite(keys.sum(axis=1))
    body = np.where(is_known[:, None], keys, 0.0)[:, :-1].astype(np.float64)
    scales = (np.abs(body).max(axis=1, initial=0.0) / MOST_CODE).astype(np.float32)
    steps = np.where(scales > 0.0, scales, 1.0)[:, None].astype(np.float64)
    rows[:, : body.shape[1]] = np.rint(body / steps).clip(-MOST_CODE, MOST_CODE)
    numbers = np.stack([np.where(is_known, scales, np.nan), keys[:, -1]], axis=1)
    rows[:, -4 * NUMBERS :] = numbers.astype("<f4").view(np.int8)
    return rows


def decoded(rows: NDArray[np.int8], width: int) -> NDArray[np.float32]:
    """The keys (n, width) of rows, rounded as they are; those of nobody are not numbers."""
    scales, last = _numbers(rows)
    return np.concatenate([scales[:, None] * rows[:, : width - 1], last[:, None]], axis=1)


def _numbers(rows: NDArray[np.int8]) -> tuple[NDArray[np.float32], ...]:
    """The scales and last numbers (n,) of rows."""
    return tuple(rows.view("<f4")[:, -NUMBERS:].T)


class _Query:
    """A query (width,) as two digits for each number; the scores of rows with a bound of error."""

    def __init__(self, query: NDArray[np.float32], size: int) -> None:
        import torch  # here: commands that only list voices need no torch

        body, self.last = query[:-1].astype(np.float64), query[-1]
        step = np.abs(body).max(initial=0.0) / MOST_DIGIT or 1.0
        first = np.rint(body / step)
        self.base = 2 * MOST_DIGIT
        second = np.rint((body / step - first) * self.base)
        left = np.linalg.norm(body - step * (first + second / self.base))
        self.digits = [torch.zeros(size, 1, dtype=torch.int8) for _ in range(2)]
        for digits, values in zip(self.digits, (first, second), strict=True):
            digits[: len(body), 0] = torch.from_numpy(values)
        self.step = np.float32(step / self.base)
        length = float(np.linalg.norm(query.astype(np.float64)))
        # In units of the scale, a key is rounded by at most 0.5 in each number, and its codes are
        # at most MOST_CODE.
        of_scale = 0.5 * length + MOST_CODE * (left + ROUNDING * length)
        of_scale *= np.sqrt(len(body))
        self.slack = np.float32(of_scale), np.float32(ROUNDING * length)

    def scores(self, rows: NDArray[np.int8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The products (n,) with rows of keys, and what they differ from the exact ones at most."""
        import torch

        codes = torch.from_numpy(rows)
        # Whole numbers, without rounding. One column at a time is much faster than two.
        high, low = (torch._int_mm(codes, digits).numpy()[:, 0] for digits in self.digits)
        scales, last = _numbers(rows)
        of_scale, of_last = self.slack
        with np.errstate(over="ignore", invalid="ignore"):  # in a damaged file
            products = scales * ((high * self.base + low) * self.step) + last * self.last
            errors = of_scale * scales + of_last * np.abs(last)
        return products, errors.astype(np.float32, copy=False)


def best_rows(queries: NDArray[np.float32], rows: NDArray[np.int8], count: int) -> list[Found]:
    """The rows of keys that may have one of the ``count`` highest products with each query.

    Rows whose keys are not numbers are of nobody.
    """
    nothing = np.empty(0, np.float32)
    found = [Found(np.empty(0, np.int64), nothing, nothing) for _ in queries]
    prepared = [_Query(query, rows.shape[1]) for query in queries if len(rows)]
    least = np.full(len(queries), -np.inf, np.float32)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        block = rows[start : start + ROWS_AT_ONCE]
        for place, query in enumerate(prepared):
            scores, errors = query.scores(block)
            with np.errstate(over="ignore", invalid="ignore"):
                better = np.flatnonzero(scores + errors >= least[place])
            if not len(better):
                continue
            before = found[place]
            both = Found(
                np.concatenate([before.rows, better + start]),
                np.concatenate([before.scores, scores[better]]),
                np.concatenate([before.errors, errors[better]]),
            )
            if len(both.rows) > count:
                # So many have at least this product.
                least[place] = np.partition(both.scores - both.errors, -count)[-count]
                kept = both.scores + both.errors >= least[place]
                both = Found(*(values[kept] for values in both))
            found[place] = both
    return found
