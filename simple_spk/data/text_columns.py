"""Columns of a large CSV file without a Python object per row, cut out of the text block by block.

By hand, because what libraries make of ten million rows is too large to sit in every process: the
csv module and pandas hold an object per field, pyarrow twice the size of the file.
"""

import codecs
import csv
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_BYTES = 1 << 21
ROWS_AT_ONCE = 1 << 16
LONGEST_HEADER_BYTES = 1 << 16
# What stands between the fields and behind the rows of quoted text once it is unquoted.
FIELD_MARK, ROW_MARK = "\x1f", "\x1e"


@dataclass(frozen=True, eq=False)
class TextColumn:
    """Texts end to end in one array; ``ends`` (n,) says where each ends in ``characters``."""

    characters: NDArray[np.uint8]
    ends: NDArray[Any]

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self.ends):
            raise IndexError(f"row {row} of a column of {len(self.ends)} rows")
        start = int(self.ends[row - 1]) if row else 0
        return self.characters[start : int(self.ends[row])].tobytes().decode()


class TextColumnWriter:
    """Fills a TextColumn of known size, so that it never exists twice in memory."""

    def __init__(self, rows: int, most_bytes: int) -> None:
        # Memory that is asked for but never touched costs nothing.
        self.characters = np.empty(most_bytes, dtype=np.uint8)
        self.ends = np.empty(rows, dtype=np.uint32 if most_bytes < 2**32 else np.uint64)
        self.rows, self.size_bytes = 0, 0

    def append(self, fields: "Fields") -> None:
        """Add the texts of a column of a block."""
        ends = self.size_bytes + np.cumsum(fields.lengths)
        # +1 where a field begins, -1 where it ends: the running sum is 1 within fields.
        steps = np.zeros(len(fields.text) + 1, dtype=np.int8)
        steps[fields.starts] += 1
        steps[fields.ends] -= 1
        inside = np.cumsum(steps, dtype=np.int8)[:-1].view(np.bool_)
        self.characters[self.size_bytes : int(ends[-1])] = fields.text[inside]
        self.ends[self.rows : self.rows + len(ends)] = ends
        self.rows, self.size_bytes = self.rows + len(ends), int(ends[-1])

    def column(self) -> TextColumn:
        """What has been written."""
        return TextColumn(self.characters[: self.size_bytes], self.ends[: self.rows])


class Fields(NamedTuple):
    """One column of a block: field i is text[starts[i]:ends[i]]."""

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The bytes (n,) of each text."""
        return self.ends - self.starts

    def as_array(self) -> NDArray[np.bytes_]:
        """The texts (n,) as a numpy array of fixed width."""
        lengths = self.lengths
        columns = np.arange(max(1, int(lengths.max())))
        places = np.minimum(self.starts[:, None] + columns, len(self.text) - 1)
        characters = np.where(columns < lengths[:, None], self.text[places], 0).astype(np.uint8)
        return characters.view(f"S{len(columns)}")[:, 0]


class CsvText(NamedTuple):
    """What one look at a CSV file tells: its columns, and bounds of what is in it."""

    path: Path
    header: list[str]
    lines: int  # behind the header; with quotes a row may span several
    size_bytes: int
    is_quoted: bool

    def blocks(self) -> Iterator[tuple[int, dict[str, Fields]]]:
        """The number of the first line of each block, and the columns of its rows by name."""
        return self._quoted_blocks() if self.is_quoted else self._plain_blocks()

    def _plain_blocks(self) -> Iterator[tuple[int, dict[str, Fields]]]:
        """Blocks of text without quotes, in which a line is a row."""
        line, rest = 2, b""
        with self.path.open("rb") as file:
            file.readline()
            while chunk := file.read(BLOCK_BYTES):
                head, newline, tail = chunk.rpartition(b"\n")
                if newline:
                    block, rest = rest + head + newline, tail
                    yield line, self._split(block, line, ord(","), ord("\n"))
                    line += block.count(b"\n")
                else:
                    rest += chunk
        if rest:
            yield line, self._split(rest + b"\n", line, ord(","), ord("\n"))

    def _quoted_blocks(self) -> Iterator[tuple[int, dict[str, Fields]]]:
        """Blocks of text with quotes, as the csv module reads them."""
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, strict=True)
                next(reader)
                line = reader.line_num + 1
                while rows := list(itertools.islice(reader, ROWS_AT_ONCE)):
                    joined = ROW_MARK.join(map(FIELD_MARK.join, rows)) + ROW_MARK
                    marks = ord(FIELD_MARK), ord(ROW_MARK)
                    yield line, self._split(joined.encode(), line, *marks)
                    line = reader.line_num + 1
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} is not a CSV file in UTF-8: {error}") from error

    def _split(self, block: bytes, line: int, between: int, behind: int) -> dict[str, Fields]:
        """The columns of a block, by the marks between its fields and behind its rows."""
        text = np.frombuffer(block, dtype=np.uint8)
        row_ends = np.flatnonzero(text == behind)
        marks = np.flatnonzero(text == between)
        fields_of_row = np.diff(np.searchsorted(marks, row_ends), prepend=0) + 1
        ragged = np.flatnonzero(fields_of_row != len(self.header))
        if len(ragged):
            raise ValueError(
                f"{self.path}, line {line + ragged[0]}: {fields_of_row[ragged[0]]} fields instead "
                f"of {len(self.header)}: correct or remove the line, or prepare the data again"
            )
        row_starts = np.append(0, row_ends[:-1] + 1)
        has_return = (row_ends > row_starts) & (text[row_ends - 1] == ord("\r"))
        edges = marks.reshape(len(row_ends), len(self.header) - 1)
        starts = np.column_stack([row_starts, edges + 1])
        ends = np.column_stack([edges, row_ends - has_return])
        return {
            name: Fields(text, starts[:, column], ends[:, column])
            for column, name in enumerate(self.header)
        }


def look_at_csv(path: Path) -> CsvText:
    """A CSV file in UTF-8, known to be text, ready to be cut into columns."""
    lines, size, is_quoted, ends_open = 0, 0, False, False
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as file:
        header = _header(path, file.readline(LONGEST_HEADER_BYTES))
        try:
            while chunk := file.read(BLOCK_BYTES):
                if not chunk.isascii() or decoder.getstate()[0]:
                    decoder.decode(chunk)
                if b"\0" in chunk or b"\x1e" in chunk or b"\x1f" in chunk:
                    raise ValueError(
                        f"{path} is not a CSV file in UTF-8: it holds control characters"
                    )
                lines, size = lines + chunk.count(b"\n"), size + len(chunk)
                is_quoted = is_quoted or b'"' in chunk
                ends_open = not chunk.endswith(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from error
    return CsvText(path, header, lines + ends_open, size, is_quoted)


def _header(path: Path, line: bytes) -> list[str]:
    """The names in the first line of a CSV file; none in an empty file."""
    if not line:
        return []
    try:
        return next(csv.reader([line.decode("utf-8-sig")], strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: its first line: {error}") from error
