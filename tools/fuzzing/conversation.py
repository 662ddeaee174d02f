"""JSON files of simple-spk diarize."""

import json
import random
from pathlib import Path

from simple_spk.inference.diarization.conversation import Conversation, Turn, read_conversation
from tools.fuzzing.calibration import DAMAGES
from tools.fuzzing.mutations import write_damaged


def write_originals(folder: Path) -> None:
    """Conversations of one and of two speakers."""
    turns = [Turn(0.0, 1.5, "Ann"), Turn(2.0, 2.5, "SPEAKER_01"), Turn(3.0, 4.0, "Ann")]
    for count in (1, 3):
        found = Conversation(turns[:count], "meeting.wav", 5.0, "energy")
        (folder / f"{count}.json").write_text(json.dumps(found.plain()))


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged conversation."""
    return write_damaged(originals, place, dice, DAMAGES)


def read(path: Path) -> None:
    """Read a conversation, and write it again."""
    found = read_conversation(path)
    assert all(0.0 <= start < end <= 1e9 for start, end, _ in found)
    assert found.rttm().count("\n") >= len(found)
    json.dumps(found.plain())
