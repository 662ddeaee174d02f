"""Which recording is whose, from a manifest or Kaldi's utt2spk."""

import codecs
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.field_table import cut_fields, read_text, shown
from simple_spk.manifest import read_manifest


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
    content = read_text(path, "speakers").removeprefix(codecs.BOM_UTF8).rstrip()
    table = cut_fields(content, 2) if content else None
    if table is None:
        lines = enumerate(content.split(b"\n"), start=1)
        number, line = next((number, line) for number, line in lines if len(line.split()) != 2)
        raise ValueError(
            f"{path}, line {number}: found {shown(line)}; expected 'recording speaker'"
        )
    recordings, rows = table.index(0)
    if len(recordings) < len(rows):
        twice = int(np.flatnonzero(np.diff(np.maximum.accumulate(rows[:, 0])) == 0)[0]) + 1
        raise ValueError(
            f"{path}, line {twice + 1}: found {recordings[rows[twice, 0]]} again; expected each "
            "recording once: remove the repetition"
        )
    return dict(zip(recordings, table.index(1)[1][:, 0].tolist(), strict=True))
