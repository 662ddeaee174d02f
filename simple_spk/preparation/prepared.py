"""What preparing a corpus came to."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from simple_spk.preparation.quarantine import Quarantined


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
