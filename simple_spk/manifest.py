"""The table of utterances: which file, how long, which speaker."""

import csv
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.schedule import Stages
from simple_spk.text_columns import Fields, TextColumn, TextColumnWriter, look_at_csv
from simple_spk.whole_file import whole_file

COLUMNS = ("ID", "wav", "duration", "spk_id")
LONGEST_FIELD_BYTES = 2048  # some columns become arrays of fixed width: a giant would fill memory


@dataclass(frozen=True, eq=False)
class Manifest:
    """A manifest as columns, without a Python object per row, so that data workers share it.

    ``speakers`` are the distinct spk_id in alphabetical order; ``speaker_of_row`` indexes them and
    is the training label. Paths in the file may be relative to the folder of the manifest.
    """

    path: Path
    wavs: TextColumn
    durations_seconds: NDArray[np.float32]
    speaker_of_row: NDArray[np.int32]
    speakers: tuple[str, ...]
    ids: TextColumn | None  # None if they were not asked for

    def __len__(self) -> int:
        return len(self.wavs)

    def wav(self, row: int) -> Path:
        """Where the recording of a row lies."""
        return self.path.parent / self.wavs[row]

    @functools.cached_property
    def row_of_id(self) -> dict[str, int]:
        """From an utterance's ID to its row."""
        assert self.ids is not None, "the manifest was read without its IDs"
        return {self.ids[row]: row for row in range(len(self))}


def read_manifest(path: str | Path, with_ids: bool = True) -> Manifest:
    """The utterances of a CSV file with the columns ID, wav, duration (seconds) and spk_id.

    Training needs no IDs: leaving them out saves nearly half of the memory.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no manifest at {path}: prepare the data first, or correct the path"
        )
    text = look_at_csv(path)
    if not text.header:
        raise ValueError(f"{path} is empty: prepare the data again")
    missing = [name for name in COLUMNS if name not in text.header]
    if missing:
        raise ValueError(
            f"{path} lacks the columns {', '.join(missing)}: its first line must name "
            f"{', '.join(COLUMNS)}, and is {','.join(text.header)[:200]!r}"
        )
    wavs = TextColumnWriter(text.lines, text.size_bytes)
    ids = TextColumnWriter(text.lines, text.size_bytes) if with_ids else None
    durations = np.empty(text.lines, dtype=np.float32)
    speaker_of_row = np.empty(text.lines, dtype=np.int32)
    id_hashes = np.empty(text.lines, dtype=np.uint64)
    number_of_speaker: dict[bytes, int] = {}
    row = 0
    for line, columns in text.blocks():
        _require_sane_lengths(path, line, columns)
        wavs.append(columns["wav"])
        if ids is not None:
            ids.append(columns["ID"])
        rows = slice(row, wavs.rows)
        id_hashes[rows] = _hashes(columns["ID"].as_array())
        durations[rows] = _durations(path, line, columns["duration"].as_array())
        speaker_of_row[rows] = _numbers(columns["spk_id"].as_array(), number_of_speaker)
        row = wavs.rows
    if row == 0:
        raise ValueError(f"{path} lists no utterances: prepare the data again")
    names = sorted(number_of_speaker)  # as bytes of UTF-8, which is the order of their characters
    rank_of_number = np.empty(len(names), dtype=np.int32)
    rank_of_number[[number_of_speaker[name] for name in names]] = np.arange(len(names))
    speaker_of_row = speaker_of_row[:row]
    np.take(rank_of_number, speaker_of_row, out=speaker_of_row, mode="clip")
    id_hashes = id_hashes[:row]
    id_hashes.sort()
    if (id_hashes[1:] == id_hashes[:-1]).any():
        _require_distinct_ids(path)
    del id_hashes
    return Manifest(
        path=path.resolve(),
        wavs=wavs.column(),
        durations_seconds=durations[:row],
        speaker_of_row=speaker_of_row,
        speakers=tuple(name.decode() for name in names),
        ids=None if ids is None else ids.column(),
    )


def count_speakers(
    path: str | Path, speeds: Sequence[float] | Mapping[int, Sequence[float]] = (1.0,)
) -> int:
    """How many speakers a manifest has; a YAML file can ask for it with !apply.

    With ``speeds`` as the sampler takes them, each speaker counts once at each of them.
    """
    most = max(map(len, Stages("speeds", speeds, tuple).values))
    return len(read_manifest(path, with_ids=False).speakers) * most


def write_manifest(
    path: str | Path,
    ids: Sequence[str],
    wavs: Sequence[str],
    durations_seconds: Sequence[float],
    speakers: Sequence[str],
) -> None:
    """Write the utterances, one per row, as ``read_manifest`` reads them; whole or not at all.

    Paths in ``wavs`` are absolute, or relative to the folder of the manifest.
    """
    path = Path(path)
    with (
        whole_file(path) as partial,
        partial.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        texts = (f"{duration:.3f}" for duration in durations_seconds)
        writer.writerows(zip(ids, wavs, texts, speakers, strict=True))


def _require_sane_lengths(path: Path, line: int, columns: dict[str, Fields]) -> None:
    """Raise if a field is empty, or absurdly long; ``line`` is that of the first row."""
    for name in COLUMNS:
        lengths = columns[name].lengths
        wrong = np.flatnonzero((lengths == 0) | (lengths > LONGEST_FIELD_BYTES))
        if len(wrong):
            found = f"has {lengths[wrong[0]]} bytes" if lengths[wrong[0]] else "is empty"
            raise ValueError(
                f"{path}, line {line + wrong[0]}: {name} {found} (with {len(wrong) - 1} more such "
                f"lines nearby): correct or remove them, or prepare the data again"
            )


def _durations(path: Path, line: int, texts: NDArray[np.bytes_]) -> NDArray[np.float64]:
    """Durations (n,) as numbers, each of them positive; ``line`` is that of the first."""
    try:
        durations = texts.astype(np.float64)
    except ValueError:
        durations = np.array([_number(text) for text in texts])
    wrong = np.flatnonzero(~(np.isfinite(durations) & (durations > 0.0)))
    if len(wrong):
        raise ValueError(
            f"{path}, line {line + wrong[0]}: the duration is {texts[wrong[0]].decode()!r}, which "
            f"no usable recording has (with {len(wrong) - 1} more such lines nearby): remove them "
            f"or prepare the data again"
        )
    return durations


def _number(text: bytes) -> float:
    """The number that a text spells; nan if none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _numbers(names: NDArray[np.bytes_], number_of_name: dict[bytes, int]) -> NDArray[np.int32]:
    """A number (n,) for each name, the same as in earlier calls; new names get the next ones."""
    # Rows of one speaker mostly stand together: one look-up for each such stretch.
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


def _require_distinct_ids(path: Path) -> None:
    """Raise if two rows have one ID, and not only one hash."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        counts = Counter(row["ID"] for row in csv.DictReader(file))
    name, count = counts.most_common(1)[0]
    if count > 1:
        raise ValueError(
            f"{path}: the ID {name} stands in {count} rows, but an ID names one recording"
        )
