"""Lists of recordings, of speakers, of enrollments, and tables of metadata."""

import random
from pathlib import Path

from simple_spk.data.manifest import read_speakers
from simple_spk.data.recording_lists import find_recordings
from simple_spk.evaluation.enrollment import read_enrollments
from simple_spk.report.metadata import read_metadata
from tools.fuzzing.mutations import BYTE_DAMAGES, TEXT_DAMAGES, write_damaged


def write_originals(folder: Path) -> None:
    """One file of each; the suffix says which reader is meant."""
    (folder / "wav.scp").write_text("".join(f"id{n} /data/{n}.wav\n" for n in range(9)))
    (folder / "paths.txt").write_text("".join(f"/data/{n}.wav\n" for n in range(9)))
    (folder / "speakers.utt2spk").write_text("".join(f"id{n} s{n % 3}\n" for n in range(9)))
    (folder / "models.enroll").write_text("".join(f"m{n} {n}.wav {n + 1}.wav\n" for n in range(9)))
    rows = "".join(f's{n},{"mf"[n % 2]},"x, {n}"\n' for n in range(9))
    (folder / "speakers.meta").write_text(f"ID,gender,place\n{rows}")


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged list."""
    return write_damaged(originals, place, dice, (*BYTE_DAMAGES, *TEXT_DAMAGES * 3))


def read(path: Path) -> None:
    """Read a list as the file that its suffix names."""
    match path.suffix:
        case ".utt2spk":
            read_speakers(path, ["id1", "id2"])
        case ".enroll":
            read_enrollments(path)
        case ".meta":
            read_metadata(path)
        case _:
            assert find_recordings([path]).ids
