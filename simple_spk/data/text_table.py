"""Tables in text files: lines of fields between spaces, and CSV files, read block by block.

polars splits the blocks, which takes less memory than pyarrow, and its categories turn names into
integers: there is no Python object per row. What polars refuses is read line by line, to name the
line. Tables become arrays: forked data workers share them, and cannot use polars, whose threads do
not survive a fork.
"""

import codecs
import csv
import functools
import itertools
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import file_size, open_file, unpacked

BLOCK_BYTES = 1 << 21  # larger ones take more memory and are not faster
ROWS_AT_ONCE = 1 << 16  # of CSV files that the csv module reads
LONGEST_LINE_BYTES = 1 << 21
LONGEST_FIELD_BYTES = 2048  # a longer field is a sign of a damaged file
WHITESPACE = b" \t\n\r\v\f"  # as bytes.split has it
_TO_SPACE = bytes.maketrans(b"\t\r\v\f", b"    ")


@dataclass(frozen=True, eq=False)
class FieldTable:
    """The fields of n lines in columns (n,), as numbers or as codes of ``words``."""

    columns: list[NDArray[Any]]
    words: list[str]

    def equals(self, column: int, word: str) -> NDArray[np.bool_]:
        """Which fields (n,) of a column are this word."""
        return self.columns[column] == (self.words.index(word) if word in self.words else -1)

    def numbers(self, column: int) -> NDArray[np.float64]:
        """The numbers (n,) that a column spells; nan where a field spells none."""
        values = self.columns[column]
        if values.dtype.kind == "f":
            return values
        return np.array([number_of(word) for word in self.words])[values]

    def index(self, *columns: int) -> tuple[list[str], list[NDArray[np.int32]]]:
        """The distinct fields of some columns by first appearance, and indexes (n,) per column."""
        codes = np.stack([self.columns[column] for column in columns], axis=1).ravel()
        first_place = np.full(len(self.words), len(codes))
        first_place[codes[::-1]] = np.arange(len(codes))[::-1]  # the last assignment counts
        order = np.argsort(first_place)[: np.count_nonzero(first_place < len(codes))]
        rank = np.empty(len(self.words), dtype=np.int32)
        rank[order] = np.arange(len(order))
        names = [self.words[code] for code in order.tolist()]
        return names, [rank[self.columns[column]] for column in columns]


class TextColumn:
    """Texts end to end in one array, of which data workers need no copies."""

    def __init__(self, most_bytes: int) -> None:
        # Arrays of Python grow in place: they never exist twice in memory, as numpy's would.
        self.characters = bytearray()
        self.ends: array[int] = array("I" if most_bytes < 2**32 else "Q")

    def append(self, texts: pl.Series) -> None:
        """Add texts (n,), none of them null."""
        ends = len(self.characters) + np.cumsum(texts.str.len_bytes().to_numpy(), dtype=np.int64)
        self.ends.frombytes(ends.astype(self.ends.typecode).tobytes())
        self.characters += texts.str.join("").item().encode()

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, row: int) -> str:
        if not 0 <= row < len(self.ends):
            raise IndexError(f"row {row} of a column of {len(self.ends)} rows")
        return self.characters[self.ends[row - 1] if row else 0 : self.ends[row]].decode()


@dataclass(frozen=True, eq=False)
class FileTable:
    """A CSV file that lists files of sorted ``classes``, which ``class_of_row`` (n,) indexes.

    Paths in it may be relative to its folder. Data workers share its columns.
    """

    path: Path
    files: TextColumn
    class_of_row: NDArray[np.int32]
    classes: tuple[str, ...]
    ids: TextColumn | None  # None if they were not requested
    durations_seconds: NDArray[np.float32]  # empty without such a column

    def __len__(self) -> int:
        return len(self.files)

    def file(self, row: int) -> Path:
        """The path of the file of a row."""
        return self.path.parent / self.files[row]

    @functools.cached_property
    def row_of_id(self) -> dict[str, int]:
        """The row of each ID, in the order of the rows."""
        assert self.ids is not None, f"{self.path} was read without its IDs"
        return {name: row for row, name in enumerate(self.ids)}


Table = TypeVar("Table", bound=FileTable)


class _NameCodes:
    """A categorical type that gives a name the same code in every block."""

    def __init__(self) -> None:
        self.dtype = pl.Categorical(pl.Categories.random())
        self._kept = pl.Series(dtype=self.dtype)  # polars forgets categories that no series has

    def words(self) -> list[str]:
        """The names by their codes."""
        return self.dtype.categories.to_series().to_list()


def open_text(path: Path, kind: str) -> IO[bytes]:
    """A text file of some kind, opened for reading, and unpacked on the way if it is gzipped."""
    file = open_file(path, kind, f"correct the path; relative ones start from {Path.cwd()}")
    is_packed = file.read(2) == b"\x1f\x8b"  # by content: some lists lose or keep .gz on the way
    file.seek(0)
    return unpacked(file, path) if is_packed else file


def numbered_lines(path: Path, kind: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a text file with their numbers, without blank ones at its end."""
    with open_text(path, kind) as file:
        for first, block in _blocks(file, path):
            yield from enumerate(block.split(b"\n"), start=first)


def first_line(file: IO[bytes], path: Path) -> bytes | None:
    """The first line of a text that was just opened; None if all of it is blank."""
    block = next(_blocks(file, path), None)
    file.seek(0)
    return None if block is None else block[1].partition(b"\n")[0]


def read_fields(
    file: IO[bytes], path: Path, columns: int, numeric: Sequence[int] = (), skip_blank: bool = False
) -> FieldTable | None:
    """The fields of a text between whitespace, some columns numbers; None if a line misfits.

    Blank lines at the end do not count, nor do others with ``skip_blank``.
    """
    codes = _NameCodes()
    names = [pl.col(f"column_{c}").cast(codes.dtype) for c in range(columns) if c not in numeric]
    grown: list[array[Any]] = [array("d" if c in numeric else "I") for c in range(columns)]
    for _, block in _blocks(file, path):
        is_plain = not any(mark in block for mark in (b"\t", b"\r", b"\v", b"\f"))
        frame = _frame(block, " ", columns) if is_plain else None
        if frame is None:
            frame = _frame(_single_spaced(block, skip_blank), " ", columns)
        if frame is None:
            return None
        for column, series in zip(grown, frame.with_columns(names), strict=True):
            is_text = series.dtype == pl.String
            values = _numbers(series) if is_text else series.to_physical().to_numpy()
            column.frombytes(values.tobytes())
    words = codes.words()
    longest = max(words, key=len, default="")
    if len(longest) > LONGEST_FIELD_BYTES:
        found = f"a field of {len(longest)} characters, {longest[:100]!r}..."
        raise ValueError(f"{path}: found {found}; expected at most {LONGEST_FIELD_BYTES}")
    return FieldTable([np.frombuffer(column, column.typecode) for column in grown], words)


def misfit(
    path: Path,
    kind: str,
    fits: Callable[[list[bytes]], bool],
    expected: str,
    skip_blank: bool = False,
) -> ValueError:
    """The error that names the first line whose fields do not fit."""
    for number, line in numbered_lines(path, kind):
        if not fits(line.split()) and (line.strip() or not skip_blank):
            found = shown(line, number)
            return ValueError(f"{path}, line {number}: found {found}; expected {expected}")
    return ValueError(f"{path}, line 1: found a blank line; expected {expected}")


def shown(line: bytes, number: int) -> str:
    """A line as it is shown in a message: quoted, and cut if it is long.

    If the first line already does not fit, it may be any file, whose content is not for messages.
    """
    text = line.decode().strip()
    if text and number == 1:
        count = len(text.split())
        return f"{count} field{'s' if count > 1 else ''}"
    return repr(text if len(text) <= 200 else text[:200] + "...") if text else "a blank line"


def number_of(text: str | bytes) -> float:
    """The number that a text spells; nan if none."""
    return float(text) if is_number(text) else float("nan")


def is_number(text: str | bytes) -> bool:
    """Whether a text spells a number, finite or not."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_file_table(
    kind: type[Table], path: str | Path, columns: Sequence[str], with_ids: bool = True, **more: Any
) -> Table:
    """The rows of a CSV file with columns for the ID, the file, perhaps ``duration``, the class.

    ``more`` are fields that this kind of table has besides those of ``FileTable``.
    """
    path = Path(path)
    size = file_size(path, "manifest", "prepare the data first, or correct the path")
    id_column, file_column, *others, class_column = columns
    files, ids = TextColumn(size), TextColumn(size) if with_ids else None
    id_hashes, codes, seconds = array("Q"), array("i"), array("f")
    code_of_class = _NameCodes()
    for line, frame in csv_frames(path, columns):
        for texts in frame:
            lengths = texts.str.len_bytes().to_numpy()
            is_sane = (lengths > 0) & (lengths <= LONGEST_FIELD_BYTES)
            _require(is_sane, path, line, texts)
        files.append(frame[file_column])
        if ids is not None:
            ids.append(frame[id_column])
        id_hashes.frombytes(frame[id_column].hash().to_numpy().tobytes())
        class_codes = frame[class_column].cast(code_of_class.dtype).to_physical()
        codes.frombytes(class_codes.to_numpy().tobytes())
        for texts in map(frame.get_column, others):
            durations = _numbers(texts)
            is_positive = np.isfinite(durations) & (durations > 0.0)
            _require(is_positive, path, line, texts)
            seconds.frombytes(durations.astype(np.float32).tobytes())
    if not codes:
        raise ValueError(f"{path} lists nothing: prepare the data again")
    hashes = np.frombuffer(id_hashes, np.uint64)
    hashes.sort()
    if (hashes[1:] == hashes[:-1]).any():  # two rows have one ID, or, very rarely, one hash
        counts = Counter(
            name for _, frame in csv_frames(path, columns) for name in frame[id_column]
        )
        name, count = counts.most_common(1)[0]
        if count > 1:
            raise ValueError(f"{path}: the {id_column} {name} is in {count} rows, not in one")
    del hashes, id_hashes  # before numpy widens the codes below, which takes as much memory
    words = code_of_class.words()
    order = sorted(range(len(words)), key=words.__getitem__)
    class_of_row = np.frombuffer(codes, np.int32)
    np.take(np.argsort(order).astype(np.int32), class_of_row, out=class_of_row, mode="clip")
    return kind(
        path=path.resolve(),
        files=files,
        class_of_row=class_of_row,
        classes=tuple(words[code] for code in order),
        ids=ids,
        durations_seconds=np.frombuffer(seconds, np.float32),
        **more,
    )


def write_table(path: str | Path, columns: Mapping[str, Sequence[str]]) -> None:
    """Write columns of texts as a CSV file, complete or not at all."""
    with atomic_write(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def has_column(path: Path, name: str) -> bool:
    """Whether the first line of a CSV file names this column."""
    with open_file(path, "table") as file:
        head = first_line(file, path) or b""
    return name in next(_rows_by_line(path, 1, iter([head.rstrip(b"\r")])), [])


def csv_frames(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, pl.DataFrame]]:
    """Blocks of rows of a CSV file as texts in these columns, each with its first line's number."""
    with open_file(path, "table") as file:
        blocks = _blocks(file, path, blank=b"\r\n")
        first_block = next(blocks, None)
        if first_block is None:
            raise ValueError(f"{path} is empty: prepare the data again")
        head, _, block = first_block[1].partition(b"\n")
        header = next(_rows_by_line(path, 1, iter([head])))
        missing = [name for name in columns if name not in header]
        if missing:
            found = ",".join(header)[:200] if len(missing) < len(columns) else "something else"
            raise ValueError(
                f"{path} lacks the columns {', '.join(missing)}: its first line must name "
                f"{', '.join(columns)}, and is {found!r}"
            )
        place_of = {name: header.index(name) for name in columns}
        chosen = [
            pl.col(f"column_{place}").fill_null("").alias(name) for name, place in place_of.items()
        ]
        blocks = itertools.chain([(2, block)] if block else [], blocks)
        for line, block in blocks:
            unix = block.replace(b"\r\n", b"\n") if b"\r" in block else block
            frame = None if b'"' in block else _frame(unix, ",", len(header))
            if frame is not None:
                yield line, frame.select(chosen)
                continue
            texts = itertools.chain([block], (block for _, block in blocks))
            rows = _rows_by_line(path, line, texts, len(header))
            while some := list(itertools.islice(rows, ROWS_AT_ONCE)):
                picked = {name: [row[place] for row in some] for name, place in place_of.items()}
                yield line, pl.DataFrame(picked)
                line += len(some)


def _rows_by_line(
    path: Path, first: int, texts: Iterator[bytes], columns: int | None = None
) -> Iterator[list[str]]:
    """Rows as the csv module reads them; ``first`` is the number of the first line."""
    lines = (f"{line}\n" for text in texts for line in text.decode().split("\n"))
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if columns is not None and len(row) != columns:
                raise ValueError(
                    f"{path}, line {first + reader.line_num - 1}: {len(row)} fields instead of "
                    f"{columns}: correct or remove the line, or prepare the data again"
                )
            yield row
    except csv.Error as error:
        raise ValueError(f"{path} is not a CSV file: {error}") from error


def _blocks(file: IO[bytes], path: Path, blank: bytes = WHITESPACE) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines of UTF-8, each with the number of its first line.

    No block ends in ``blank`` characters: those begin the next one, or end the file.
    """
    line, blanks = 1, b""
    while chunk := file.read(BLOCK_BYTES):
        text = blanks + chunk + (rest := file.readline(LONGEST_LINE_BYTES))
        if max(len(rest), len(blanks)) >= LONGEST_LINE_BYTES:
            number = line + text.count(b"\n", 0, -len(rest) or None)
            found = f"a line, or blank space, of over {LONGEST_LINE_BYTES} bytes"
            raise ValueError(f"{path}, line {number}: found {found}; expected short lines")
        if line == 1:
            text = text.removeprefix(codecs.BOM_UTF8)
        block = text.rstrip(blank)
        blanks = text[len(block) :]
        if not block:
            continue
        if line > 1:
            block = block.partition(b"\n")[2]  # behind the end of the line before
        bad = block.find(b"\0")  # valid UTF-8, but a sign of UTF-16
        try:
            if not block.isascii():
                block.decode()
        except UnicodeDecodeError as error:
            bad = error.start
        if bad >= 0:
            number = line + block.count(b"\n", 0, bad)
            raise ValueError(
                f"{path}, line {number}: found the byte {block[bad]:#04x}; expected text in UTF-8"
            )
        yield line, block
        line += block.count(b"\n") + 1


def _single_spaced(block: bytes, skip_blank: bool) -> bytes:
    """Lines of fields with one space between fields, and none around them."""
    block = block.translate(_TO_SPACE)
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    for around in (b" \n", b"\n "):
        if around in block:
            block = block.replace(around, b"\n")
    while skip_blank and b"\n\n" in block:
        block = block.replace(b"\n\n", b"\n")
    return block.strip(b" \n" if skip_blank else b" ")


def _frame(block: bytes, separator: str, columns: int) -> pl.DataFrame | None:
    """The texts of a block; None if a line has more or fewer fields.

    Empty fields are null in CSV files, and not allowed between spaces.
    """
    names = [f"column_{number}" for number in range(columns)]
    try:
        frame = pl.read_csv(
            block,
            has_header=False,
            separator=separator,
            quote_char=None,
            schema=dict.fromkeys(names, pl.String),
        )
    except pl.exceptions.PolarsError:
        return None
    # Where no line has more separators, their number tells that none has fewer.
    is_whole = (
        frame.height == block.count(b"\n") + 1
        and block.count(separator.encode()) == frame.height * (columns - 1)
        and (separator == "," or not any(series.has_nulls() for series in frame))
    )
    return frame if is_whole else None


def _numbers(texts: pl.Series) -> NDArray[np.float64]:
    """The numbers (n,) that texts spell; nan where they spell none."""
    numbers = texts.cast(pl.Float64, strict=False)
    values = numbers.to_numpy(writable=True)  # nan for null
    for row in numbers.is_null().arg_true().to_list():
        values[row] = number_of(texts[row])  # Python accepts more spellings
    return values


def _require(is_right: NDArray[np.bool_], path: Path, line: int, texts: pl.Series) -> None:
    """Raise if fields are wrong, and name the first of them; ``line`` is that of the first row."""
    if is_right.all():
        return
    wrong = np.flatnonzero(~is_right)
    text = texts[int(wrong[0])]
    found = f"is {text!r}, which no usable recording has" if text else "is empty"
    if len(text) > LONGEST_FIELD_BYTES:
        found = f"has {len(text.encode())} bytes"
    raise ValueError(
        f"{path}, line {line + wrong[0]}: {texts.name} {found} (with {len(wrong) - 1} more such "
        "lines nearby): correct or remove them, or prepare the data again"
    )
