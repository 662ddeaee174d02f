"""The table of utterances: which file, how long, which speaker."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.data import text_table
from simple_spk.data.decoding import AudioError
from simple_spk.data.tar_store import EXPECTED, MARK, fault_of_part, tar_part
from simple_spk.data.text_table import FileTable
from simple_spk.schedules import StepwiseValue

COLUMNS = ("ID", "wav", "duration", "spk_id")
SESSION = "session"  # a further column, of recordings whose folders do not tell their sessions


class Manifest(FileTable):
    """A table of recordings, which are the files, and their speakers, which are the classes."""

    def wav(self, row: int) -> Path:
        """The path of a recording, or its place in a tar file (``data/tar_store.py``)."""
        path = self.file(row)
        if MARK not in self.files[row]:
            return path
        try:
            part = tar_part(path)
        except ValueError:
            fault: str | None = EXPECTED
        else:
            fault = None if part is None else fault_of_part(part)
        if fault is not None:
            cell = f"{self.path}, recording {row + 1}: wav is {self.files[row][:200]!r}"
            raise AudioError(f"{cell}; {fault}: complete the data, or correct the manifest")
        return path

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


def session_names(manifest: Manifest) -> Iterator[str]:
    """The session of each row: its column session, or else the folder of its file."""
    if not text_table.has_column(manifest.path, SESSION):
        return (file.rpartition("/")[0] for file in manifest.files)
    frames = text_table.csv_frames(manifest.path, [SESSION])
    return (name for _, frame in frames for name in frame[SESSION])


def sessions_of_rows(manifest: Manifest) -> NDArray[np.int32]:
    """The number (n,) of each row's session."""
    number_of: dict[str, int] = {}
    numbers = (number_of.setdefault(name, len(number_of)) for name in session_names(manifest))
    return np.fromiter(numbers, np.int32, len(manifest))


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
    sessions: Sequence[str] | None = None,
) -> None:
    """Write a manifest; paths in ``wavs`` are absolute, or relative to its folder."""
    durations = [f"{duration:.3f}" for duration in durations_seconds]
    columns = dict(zip(COLUMNS, (ids, wavs, durations, speakers), strict=True))
    text_table.write_table(path, columns if sessions is None else columns | {SESSION: sessions})


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
