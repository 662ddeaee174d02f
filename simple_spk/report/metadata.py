"""What is known about speakers or recordings: any table of text whose first column names them."""

import csv
import io
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.io.input_file import read_file

LARGEST_BYTES = 2**26  # a million recordings; rows are lists of Python

# How a recording's name may lead to the key of its row.
_KEYS_OF_A_NAME: dict[str, Callable[[str], str]] = {
    "recording": lambda name: name,
    "speaker, the first folder of the name": lambda name: name.split("/", 1)[0],
    "speaker, the name up to its first hyphen": lambda name: name.split("-", 1)[0],
    "recording without its suffix": lambda name: posixpath.splitext(name)[0],
    "file name without its suffix": lambda name: posixpath.splitext(posixpath.basename(name))[0],
}


@dataclass(frozen=True, eq=False)
class Metadata:
    """A table as columns of text: ``keys`` (rows,) are distinct, ``columns`` hold the rest."""

    path: Path
    keys: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]  # each (rows,), an empty text where nothing is known


@dataclass(frozen=True, eq=False)
class MetadataRows:
    """Which row of a table each of n recordings belongs to, and how that was found out."""

    rows: NDArray[np.int64]  # (n,); -1 where the table has none
    keyed_by: str


def read_metadata(path: str | Path) -> Metadata:
    """The table of a file with a header, separated by commas, tabs or semicolons.

    Spaces around fields, a byte order mark and Windows line ends, all found in VoxCeleb's files, do
    not matter. The first column is the key: a speaker or a recording.
    """
    path = Path(path)
    content = read_file(path, "metadata", LARGEST_BYTES)
    try:
        text = content.decode("utf-8-sig")
        separator = max("\t,;", key=text.split("\n", 1)[0].count)
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        numbered = [
            (lines.line_num, [field.strip() for field in fields]) for fields in lines if fields
        ]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no table in UTF-8 ({error}): save it as CSV") from error
    if len(numbered) < 2 or len(numbered[0][1]) < 2:
        raise ValueError(
            f"{path} has no table: expected a header such as 'ID,gender,nationality' and a row "
            "per speaker or recording"
        )
    (_, header), *rows = numbered
    for line, fields in rows:
        if len(fields) != len(header):
            raise ValueError(
                f"{path}, line {line}: found {len(fields)} fields; expected {len(header)}, "
                "as in the header"
            )
    _require_distinct(path, "header, column", header)
    columns = dict(zip(header, zip(*(fields for _, fields in rows), strict=True), strict=True))
    keys = columns.pop(header[0])
    _require_distinct(path, f"column {header[0]!r}, key", keys)
    return Metadata(path, keys, columns)


def rows_of_recordings(metadata: Metadata, recordings: Sequence[str]) -> MetadataRows:
    """The row of each of n recordings, by whichever reading of its name finds most of them."""
    index = {key: row for row, key in enumerate(metadata.keys)}
    best = MetadataRows(np.full(len(recordings), -1), "nothing")
    for keyed_by, key_of in _KEYS_OF_A_NAME.items():
        found = (index.get(key_of(name), -1) for name in recordings)
        rows = np.fromiter(found, dtype=np.int64, count=len(recordings))
        if np.count_nonzero(rows >= 0) > np.count_nonzero(best.rows >= 0):
            best = MetadataRows(rows, keyed_by)
        if (best.rows >= 0).all():
            break
    if not (best.rows >= 0).any():
        raise ValueError(
            f"{metadata.path} knows none of the {len(recordings)} recordings: its keys are like "
            f"{metadata.keys[0]!r}, the recordings like {recordings[0]!r}; expected the first "
            "column to name recordings, or the first folder of their names"
        )
    return best


def _require_distinct(path: Path, what: str, names: Sequence[str]) -> None:
    """Nothing if all names differ; else a ValueError with the commonest."""
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{path}, {what} {name!r}: found {count} times; expected it once")
