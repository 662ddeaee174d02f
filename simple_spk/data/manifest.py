"""The table of utterances: which file, how long, which speaker."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.data import text_table
from simple_spk.data.text_table import FileTable
from simple_spk.schedules import StepwiseValue

COLUMNS = ("ID", "wav", "duration", "spk_id")


class Manifest(FileTable):
    """A table of recordings, which are the files, and their speakers, which are the classes."""

    wav = FileTable.file

    @property
    def speakers(self) -> tuple[str, ...]:
        """The distinct spk_id in alphabetical order."""
        return self.classes

    @property
    def speaker_of_row(self) -> NDArray[np.int32]:
        """The index (n,) of each row's speaker, which is the training label."""
        return self.class_of_row


def read_manifest(path: str | Path, with_ids: bool = True) -> Manifest:
    """The utterances of a CSV file with the columns ID, wav, duration (seconds) and spk_id.

    Training needs no IDs: leaving them out saves nearly half of the memory.
    """
    return text_table.read_file_table(Manifest, path, COLUMNS, with_ids)


def count_speakers(
    path: str | Path, speeds: Sequence[float] | Mapping[int, Sequence[float]] = (1.0,)
) -> int:
    """The number of speakers of a manifest times that of the sampler's ``speeds``, for !apply."""
    most = max(map(len, StepwiseValue("speeds", speeds, tuple).values))
    return len(read_manifest(path, with_ids=False).speakers) * most


def write_manifest(
    path: str | Path,
    ids: Sequence[str],
    wavs: Sequence[str],
    durations_seconds: Sequence[float],
    speakers: Sequence[str],
) -> None:
    """Write a manifest; paths in ``wavs`` are absolute, or relative to its folder."""
    durations = [f"{duration:.3f}" for duration in durations_seconds]
    text_table.write_table(path, dict(zip(COLUMNS, (ids, wavs, durations, speakers), strict=True)))


def read_speakers(path: str | Path, recordings: Sequence[str]) -> NDArray[np.int64]:
    """A speaker's number (n,) for each of n recordings; the file may name others too.

    The file is a manifest (.csv), or lines of ``recording speaker``.
    """
    path = Path(path)
    if path.suffix == ".csv":
        manifest = read_manifest(path)
        speakers = manifest.speaker_of_row.tolist()
        speaker_of_id = dict(zip(manifest.row_of_id, speakers, strict=True))
    else:
        speaker_of_id = _speaker_of_line(path)
    missing = [name for name in recordings if name not in speaker_of_id]
    if missing:
        raise ValueError(
            f"{path} does not name the speaker of {len(missing)} of {len(recordings)} recordings "
            f"(first: {', '.join(missing[:3])}): add them"
        )
    return np.array([speaker_of_id[name] for name in recordings], dtype=np.int64)


def _speaker_of_line(path: Path) -> dict[str, int]:
    """The speaker's number of each recording of an utt2spk file."""
    with text_table.open_text(path, "speakers") as file:
        table = text_table.read_fields(file, path, 2)
    if table is None or not table.words:
        raise text_table.misfit(
            path, "speakers", lambda fields: len(fields) == 2, "'recording speaker'"
        )
    recordings, (rows,) = table.index(0)
    if len(recordings) < len(rows):
        repeated = int(np.flatnonzero(np.diff(np.maximum.accumulate(rows)) == 0)[0]) + 1
        raise ValueError(
            f"{path}, line {repeated + 1}: found {recordings[rows[repeated]]} again; expected each "
            "recording once: remove the repetition"
        )
    return dict(zip(recordings, table.columns[1].tolist(), strict=True))
