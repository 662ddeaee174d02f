"""The table of utterances: which file, how long, which speaker."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.text_table import (
    TextColumn,
    misfit,
    open_text,
    read_fields,
    read_file_table,
    write_table,
)
from simple_spk.schedules import StepwiseValue

COLUMNS = ("ID", "wav", "duration", "spk_id")


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
        return {name: row for row, name in enumerate(self.ids)}


def read_manifest(path: str | Path, with_ids: bool = True) -> Manifest:
    """The utterances of a CSV file with the columns ID, wav, duration (seconds) and spk_id.

    Training needs no IDs: leaving them out saves nearly half of the memory.
    """
    table = read_file_table(path, COLUMNS, with_ids)
    return Manifest(
        path=table.path,
        wavs=table.files,
        durations_seconds=table.durations,
        speaker_of_row=table.class_of_row,
        speakers=table.classes,
        ids=table.ids,
    )


def count_speakers(
    path: str | Path, speeds: Sequence[float] | Mapping[int, Sequence[float]] = (1.0,)
) -> int:
    """How many speakers a manifest has; a YAML file can ask for it with !apply.

    With ``speeds`` as the sampler takes them, each speaker counts once at each of them.
    """
    most = max(map(len, StepwiseValue("speeds", speeds, tuple).values))
    return len(read_manifest(path, with_ids=False).speakers) * most


def write_manifest(
    path: str | Path,
    ids: Sequence[str],
    wavs: Sequence[str],
    durations_seconds: Sequence[float],
    speakers: Sequence[str],
) -> None:
    """Write the utterances, one per row, as ``read_manifest`` reads them, completely or not at all.

    Paths in ``wavs`` are absolute, or relative to the folder of the manifest.
    """
    durations = [f"{duration:.3f}" for duration in durations_seconds]
    write_table(path, dict(zip(COLUMNS, (ids, wavs, durations, speakers), strict=True)))


def read_speakers(path: str | Path, recordings: Sequence[str]) -> NDArray[np.int64]:
    """A speaker's number (n,) for each of n recordings; the file may name others too.

    The file is a manifest (.csv), or lines of ``recording speaker``.
    """
    path = Path(path)
    speaker_of_id = _from_manifest(path) if path.suffix == ".csv" else _from_lines(path)
    missing = [name for name in recordings if name not in speaker_of_id]
    if missing:
        raise ValueError(
            f"{path} does not name the speaker of {len(missing)} of {len(recordings)} recordings "
            f"(first: {', '.join(missing[:3])}): add them"
        )
    return np.array([speaker_of_id[name] for name in recordings], dtype=np.int64)


def _from_manifest(path: Path) -> dict[str, int]:
    """The speaker's number of each ID of a manifest."""
    manifest = read_manifest(path)
    speakers = manifest.speaker_of_row.tolist()
    return {name: speakers[row] for name, row in manifest.row_of_id.items()}


def _from_lines(path: Path) -> dict[str, int]:
    """The speaker's number of each recording of an utt2spk file."""
    with open_text(path, "speakers") as file:
        table = read_fields(file, path, 2)
    if table is None or not table.words:
        raise misfit(path, "speakers", lambda fields: len(fields) == 2, "'recording speaker'")
    recordings, (rows,) = table.index(0)
    if len(recordings) < len(rows):
        repeated = int(np.flatnonzero(np.diff(np.maximum.accumulate(rows)) == 0)[0]) + 1
        raise ValueError(
            f"{path}, line {repeated + 1}: found {recordings[rows[repeated]]} again; expected each "
            "recording once: remove the repetition"
        )
    return dict(zip(recordings, table.columns[1].tolist(), strict=True))
