"""The table of utterances: which file, how long, which speaker."""

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("ID", "wav", "duration", "spk_id")


@dataclass(frozen=True, eq=False)
class Manifest:
    """A manifest as columns, without a Python object per row, so that data workers share it.

    ``speakers`` are the distinct spk_id in alphabetical order; ``speaker_of_row`` indexes them and
    is the training label. Paths in the file may be relative to the folder of the manifest.
    """

    path: Path
    ids: NDArray[np.bytes_]
    wavs: NDArray[np.bytes_]
    durations_seconds: NDArray[np.float64]
    speaker_of_row: NDArray[np.int32]
    speakers: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def wav(self, row: int) -> Path:
        """Where the recording of a row lies."""
        return self.path.parent / self.wavs[row].decode()

    @functools.cached_property
    def row_of_id(self) -> dict[str, int]:
        """From an utterance's ID to its row."""
        return {identifier.decode(): row for row, identifier in enumerate(self.ids)}


def read_manifest(path: str | Path) -> Manifest:
    """The utterances of a CSV file with the columns ID, wav, duration (seconds) and spk_id."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no manifest at {path}: prepare the data first, or correct the path"
        )
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = csv.reader(file, strict=True)
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from error
    except ValueError as error:  # no line to unpack
        raise ValueError(f"{path} is empty: prepare the data again") from error
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(
            f"{path} lacks the columns {', '.join(missing)}: its first line must name "
            f"{', '.join(COLUMNS)}, and is {','.join(header)!r}"
        )
    if not rows:
        raise ValueError(f"{path} lists no utterances: prepare the data again")
    for line, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(f"{path}, line {line}: {len(row)} fields instead of {len(header)}")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    durations = _durations(path, columns["duration"])
    speakers, speaker_of_row = np.unique(np.array(columns["spk_id"]), return_inverse=True)
    ids = np.array([identifier.encode() for identifier in columns["ID"]])
    _check_distinct(path, ids)
    return Manifest(
        path=path.resolve(),
        ids=ids,
        wavs=np.array([wav.encode() for wav in columns["wav"]]),
        durations_seconds=durations,
        speaker_of_row=speaker_of_row.astype(np.int32),
        speakers=tuple(speakers.tolist()),
    )


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
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        texts = (f"{duration:.3f}" for duration in durations_seconds)
        writer.writerows(zip(ids, wavs, texts, speakers, strict=True))
    partial.replace(path)


def _durations(path: Path, texts: tuple[str, ...]) -> NDArray[np.float64]:
    """Durations as numbers, each of them positive."""
    durations = np.empty(len(texts))
    try:
        durations[:] = texts
    except ValueError:
        for row, text in enumerate(texts):
            durations[row] = _number(text)
    wrong = np.flatnonzero(~(np.isfinite(durations) & (durations > 0.0)))
    if len(wrong):
        raise ValueError(
            f"{path}, line {wrong[0] + 2}: the duration is {texts[wrong[0]]!r}, which no usable "
            f"recording has ({len(wrong)} such lines): remove them or prepare the data again"
        )
    return durations


def _number(text: str) -> float:
    """The number that a text spells; nan if none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _check_distinct(path: Path, ids: NDArray[np.bytes_]) -> None:
    """Raise if two rows have one ID."""
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise ValueError(
            f"{path}: the ID {distinct[counts.argmax()].decode()} stands in {counts.max()} rows, "
            f"but an ID names one recording"
        )
