"""Lines of fields between spaces, cut out of a text all at once, without an object per field.

By hand, because splitting half a million lines and looking their names up in a dictionary takes
Python more than twice as long, and the text readers of numpy ten times as long.
"""

import gzip
import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORD = 8  # bytes that are compared at once
LONGEST_NUMBER = 64  # characters
# What to keep of a word of which 0, 1, ... 8 bytes belong to the field, the lowest byte first.
_KEPT = np.array([(1 << 8 * kept) - 1 for kept in range(WORD + 1)], dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class FieldTable:
    """The fields of n lines in columns: field (i, j) is text[starts[i, j]:ends[i, j]]."""

    text: bytes
    starts: NDArray[np.int64]  # (n, columns)
    ends: NDArray[np.int64]  # (n, columns)

    def are(self, column: int, word: bytes) -> NDArray[np.bool_]:
        """Which fields (n,) of a column are this word."""
        starts, lengths = self._places([column])
        equal = lengths == len(word)
        for place in range(0, len(word), WORD):
            wanted = int.from_bytes(word[place : place + WORD], "little")
            equal &= self._words(starts, lengths, place) == np.uint64(wanted)
        return equal

    def numbers(self, column: int) -> NDArray[np.float64]:
        """The numbers (n,) that a column spells; nan where a field spells none."""
        starts, lengths = self._places([column])
        if lengths.max() <= LONGEST_NUMBER:
            places = range(0, int(lengths.max()), WORD)
            words = np.stack([self._words(starts, lengths, place) for place in places], axis=1)
            try:
                return words.view(f"S{WORD * len(places)}")[:, 0].astype(np.float64)
            except ValueError:  # some are no numbers
                pass
        fields = self._slices(starts, starts + lengths)
        return np.array([_number(field) for field in fields])

    def index(self, *columns: int) -> tuple[list[str], NDArray[np.int32]]:
        """The distinct fields of some columns by first appearance, and indexes (n, columns) there.

        Fields are told apart by a hash of 64 bits, and compared with the first of their kind: if
        that ever differs, another hash is tried.
        """
        starts, lengths = self._places(columns)
        for seed in itertools.count(1):
            hashes = self._hashes(starts, lengths, seed)
            order = np.argsort(hashes)
            ordered = hashes[order]
            groups = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
            firsts = np.minimum.reduceat(order, groups)
            by_appearance = np.argsort(firsts)
            rank = np.empty(len(groups), dtype=np.int32)
            rank[by_appearance] = np.arange(len(groups))
            indexes = np.empty(len(hashes), dtype=np.int32)
            indexes[order] = np.repeat(rank, np.diff(groups, append=len(hashes)))
            firsts = firsts[by_appearance]
            if self._are_equal(starts, lengths, firsts[indexes]):
                break
        first_starts = starts[firsts]
        names = self._slices(first_starts, first_starts + lengths[firsts])
        return names, indexes.reshape(-1, len(columns))

    def _places(
        self, columns: list[int] | tuple[int, ...]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where fields of some columns start, line by line (n * columns,), and their lengths."""
        starts = self.starts[:, columns].ravel()
        return starts, self.ends[:, columns].ravel() - starts

    def _words(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], place: int
    ) -> NDArray[np.uint64]:
        """Eight bytes (fields,) of each field from a place on, those behind its end as zeros."""
        windows = np.ndarray(len(self.text) - WORD + 1, "<u8", buffer=self.text, strides=(1,))
        kept = np.clip(lengths - place, 0, WORD)
        if kept.min() == WORD:  # of names of one length, most words are whole
            return windows[starts + place]
        return windows[np.where(kept > 0, starts + place, 0)] & _KEPT[kept]

    def _hashes(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: int
    ) -> NDArray[np.uint64]:
        """A hash (fields,) of each field: multiplications that overflow, as is meant."""
        hashes = lengths.astype(np.uint64)
        factor = np.uint64(0x9E3779B97F4A7C15 * seed % 2**64 | 1)
        for place in range(0, int(lengths.max()), WORD):
            hashes = (hashes ^ self._words(starts, lengths, place)) * factor
            hashes ^= hashes >> np.uint64(32)
        return hashes

    def _are_equal(
        self, starts: NDArray[np.int64], lengths: NDArray[np.int64], others: NDArray[np.int64]
    ) -> bool:
        """Whether each field is the same text as the one at its index in ``others`` (fields,)."""
        if not np.array_equal(lengths, lengths[others]):
            return False
        for place in range(0, int(lengths.max()), WORD):
            words = self._words(starts, lengths, place)
            if not np.array_equal(words, words[others]):
                return False
        return True

    def _slices(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[str]:
        """The texts from starts to ends."""
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        return [self.text[start:end].decode() for start, end in bounds]


def cut_fields(content: bytes, columns: int) -> FieldTable | None:
    """The fields of a text whose last line is not blank; None if a line has more or fewer.

    Fields are separated by spaces, tabs and the like, as ``bytes.split`` has it.
    """
    padded = content + b"\n" + b" " * WORD
    text = np.frombuffer(padded, dtype=np.uint8)
    is_space = (text - np.uint8(9) < 5) | (text == 32)  # tab, line feed, ..., return; and space
    changes = np.flatnonzero(is_space[1:] != is_space[:-1]) + 1
    edges = changes if is_space[0] else np.append(0, changes)
    starts, ends = edges[0::2], edges[1::2]
    line_ends = np.flatnonzero(text == 10)
    if len(starts) != len(line_ends) * columns:
        return None
    starts, ends = starts.reshape(-1, columns), ends.reshape(-1, columns)
    is_regular = (ends[:, -1] <= line_ends).all() and (line_ends[:-1] < starts[1:, 0]).all()
    return FieldTable(padded, starts, ends) if is_regular else None


def read_text(path: Path, kind: str) -> bytes:
    """The bytes of a text file of some kind, unpacked if gzipped, and known to be UTF-8."""
    if not path.exists():
        raise FileNotFoundError(
            f"{kind} {path} does not exist; check the spelling, and that a relative path "
            f"starts from the current directory, {Path.cwd()}"
        )
    if path.is_dir():
        raise IsADirectoryError(f"{kind} {path} is a folder: name a file in it")
    text = path.read_bytes()
    if text.startswith(b"\x1f\x8b"):  # by content, as some lists lose or keep .gz on the way
        try:
            text = gzip.decompress(text)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file ({error}); fetch it again") from error
    try:
        bad = text.find(b"\0")  # valid UTF-8, but a sign of UTF-16
        if not text.isascii():
            text.decode()
    except UnicodeDecodeError as error:
        bad = error.start
    if bad >= 0:
        line = text.count(b"\n", 0, bad) + 1
        raise ValueError(
            f"{path}, line {line}: found the byte {text[bad]:#04x}; expected text in UTF-8"
        )
    return text


def shown(line: bytes) -> str:
    """The line as it is shown in a message: quoted, and cut if it is long."""
    text = line.decode().strip()
    return repr(text if len(text) <= 200 else text[:200] + "...") if text else "a blank line"


def first_misfit(
    path: Path, content: bytes, fits: Callable[[list[bytes]], bool], example: str
) -> str:
    """What to say about the first line whose fields do not fit, where the first one was such."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not fits(line.split()):
            return (
                f"{path}, line {number}: found {shown(line)}; expected {example!r}, "
                "the format of line 1"
            )
    raise AssertionError("called on a text without a malformed line")


def _number(field: str) -> float:
    """The number that a field spells; nan if none."""
    try:
        return float(field)
    except ValueError:
        return float("nan")
