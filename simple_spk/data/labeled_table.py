"""Tables of files with the class of each: the columns that manifests of any kind have in common.

They are columns without a Python object per row, so that data workers share them.
"""

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.text_columns import Fields, TextColumn, TextColumnWriter, look_at_csv
from simple_spk.io.atomic_file import atomic_write

LONGEST_FIELD_BYTES = 2048  # some columns become arrays of fixed width: a giant would fill memory
# From the path of a table, the line of the first of some texts (n,) and these to numbers (n,).
ReadNumbers = Callable[[Path, int, NDArray[np.bytes_]], NDArray[np.float64]]


class TableColumns(NamedTuple):
    """What a table holds; ``class_of_row`` indexes ``classes``, which are in alphabetical order."""

    path: Path
    files: TextColumn
    class_of_row: NDArray[np.int32]
    classes: tuple[str, ...]
    ids: TextColumn | None  # None if they were not asked for
    numbers: NDArray[np.float32] | None  # of the column of numbers, if there is one


def read_table(
    path: str | Path,
    columns: Sequence[str],
    with_ids: bool = True,
    numbers: tuple[str, ReadNumbers] | None = None,
) -> TableColumns:
    """The rows of a CSV file with these columns: the ID, the file and the class of each row.

    ``numbers`` names one more column, and reads its texts.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no manifest at {path}: prepare the data first, or correct the path"
        )
    text = look_at_csv(path)
    if not text.header:
        raise ValueError(f"{path} is empty: prepare the data again")
    id_column, file_column, *_, class_column = columns
    missing = [name for name in columns if name not in text.header]
    if missing:
        raise ValueError(
            f"{path} lacks the columns {', '.join(missing)}: its first line must name "
            f"{', '.join(columns)}, and is {','.join(text.header)[:200]!r}"
        )
    files = TextColumnWriter(text.lines, text.size_bytes)
    ids = TextColumnWriter(text.lines, text.size_bytes) if with_ids else None
    values = None if numbers is None else np.empty(text.lines, dtype=np.float32)
    class_of_row = np.empty(text.lines, dtype=np.int32)
    id_hashes = np.empty(text.lines, dtype=np.uint64)
    number_of_class: dict[bytes, int] = {}
    row = 0
    for line, fields in text.blocks():
        _require_sane_lengths(path, line, {name: fields[name] for name in columns})
        files.append(fields[file_column])
        if ids is not None:
            ids.append(fields[id_column])
        rows = slice(row, files.rows)
        id_hashes[rows] = _hashes(fields[id_column].as_array())
        if numbers is not None and values is not None:
            values[rows] = numbers[1](path, line, fields[numbers[0]].as_array())
        class_of_row[rows] = _numbers(fields[class_column].as_array(), number_of_class)
        row = files.rows
    if row == 0:
        raise ValueError(f"{path} lists nothing: prepare the data again")
    names = sorted(number_of_class)  # as bytes of UTF-8, which is the order of their characters
    rank_of_number = np.empty(len(names), dtype=np.int32)
    rank_of_number[[number_of_class[name] for name in names]] = np.arange(len(names))
    class_of_row = class_of_row[:row]
    np.take(rank_of_number, class_of_row, out=class_of_row, mode="clip")
    id_hashes = id_hashes[:row]
    id_hashes.sort()
    if (id_hashes[1:] == id_hashes[:-1]).any():
        _require_distinct_ids(path, id_column)
    del id_hashes
    return TableColumns(
        path=path.resolve(),
        files=files.column(),
        class_of_row=class_of_row,
        classes=tuple(name.decode() for name in names),
        ids=None if ids is None else ids.column(),
        numbers=None if values is None else values[:row],
    )


def write_table(path: str | Path, columns: Sequence[str], *texts: Sequence[str]) -> None:
    """Write columns of texts, one row per line, as ``read_table`` reads them; whole or not."""
    with (
        atomic_write(path) as partial,
        partial.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*texts, strict=True))


def _require_sane_lengths(path: Path, line: int, columns: dict[str, Fields]) -> None:
    """Raise if a field is empty, or absurdly long; ``line`` is that of the first row."""
    for name, fields in columns.items():
        lengths = fields.lengths
        wrong = np.flatnonzero((lengths == 0) | (lengths > LONGEST_FIELD_BYTES))
        if len(wrong):
            found = f"has {lengths[wrong[0]]} bytes" if lengths[wrong[0]] else "is empty"
            raise ValueError(
                f"{path}, line {line + wrong[0]}: {name} {found} (with {len(wrong) - 1} more such "
                f"lines nearby): correct or remove them, or prepare the data again"
            )


def _numbers(names: NDArray[np.bytes_], number_of_name: dict[bytes, int]) -> NDArray[np.int32]:
    """A number (n,) for each name, the same as in earlier calls; new names get the next ones."""
    # Rows of one class mostly stand together: one look-up for each such stretch.
    begins = np.append(True, names[1:] != names[:-1])
    distinct, inverse = np.unique(names[begins], return_inverse=True)
    numbers = np.array(
        [number_of_name.setdefault(name, len(number_of_name)) for name in distinct.tolist()],
        dtype=np.int32,
    )
    return numbers[inverse][np.cumsum(begins) - 1]


def _hashes(texts: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    """A 64-bit hash (n,) of each text, the same at any width of the array."""
    width = -(-texts.itemsize // 8)
    words = texts.astype(f"S{8 * width}").view(np.uint64).reshape(len(texts), width)
    hashes = np.zeros(len(texts), dtype=np.uint64)
    for column in range(width):  # words of zeros, which only fill up, add nothing
        mixed = words[:, column] * np.uint64(0x9E3779B97F4A7C15 * (2 * column + 1) % 2**64)
        mixed ^= mixed >> np.uint64(32)
        hashes += mixed * np.uint64(0xD6E8FEB86659FD93)
    return hashes


def _require_distinct_ids(path: Path, id_column: str) -> None:
    """Raise if two rows have one ID, and not only one hash."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        counts = Counter(row[id_column] for row in csv.DictReader(file))
    name, count = counts.most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{path}: the {id_column} {name} stands in {count} rows, but it names one of them"
        )
