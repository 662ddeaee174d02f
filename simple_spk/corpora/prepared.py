"""What preparing a corpus came to."""

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from simple_spk.io.atomic_file import atomic_write


class Quarantined(NamedTuple):
    """A recording that was left out: of which kind (a word or two), and what is wrong with it."""

    source: str  # relative to the folder that was searched
    kind: str
    details: str


def write_quarantine(path: Path, recordings: Iterable[Quarantined]) -> None:
    """Write the list as CSV, in alphabetical order; a list without rows says that all are fine."""
    with (
        atomic_write(path) as partial,
        partial.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Quarantined._fields)
        writer.writerows(sorted(recordings))


def counted(recordings: Sequence[Quarantined]) -> str:
    """How many of each kind, in words.

    >>> counted([Quarantined("a", "empty", ""), Quarantined("b", "silent", "")])
    '1 empty, 1 silent'
    """
    kinds = Counter(recording.kind for recording in recordings)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


class Prepared(NamedTuple):
    """What was made of a corpus."""

    manifest: Path
    speakers: int
    recordings: int
    hours: float
    quarantine: Path
    quarantined: list[Quarantined]
    ignored: Counter[str]  # files that are no recordings, counted by their suffix
    validation_recordings: int = 0
    speakers_are: str = "speakers"  # what the column spk_id names
