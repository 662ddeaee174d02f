"""Who spoke when: turns, and the files RTTM and JSON that keep them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simple_spk.io.input_file import read_file

if TYPE_CHECKING:
    from pyannote.core import Annotation

OVERLAP = "not handled: one speaker is given for each moment"
LARGEST_BYTES = 2**28  # of a JSON file
LONGEST_SECONDS = 1e9  # in one: what is computed from them stays finite


class Turn(NamedTuple):
    """A speaker from one moment to another, in seconds."""

    start: float
    end: float
    speaker: str


class Conversation(list[Turn]):
    """The turns of a recording, rising; ``pandas.DataFrame(conversation)`` is a table of them.

    ``recording`` names it, ``seconds`` is its length, and ``detector`` what found its speech.
    Overlapping speech is not handled: turns do not overlap.
    """

    def __init__(
        self, turns: Iterable[Turn], recording: str, seconds: float, detector: str
    ) -> None:
        super().__init__(turns)
        self.recording, self.seconds, self.detector = recording, seconds, detector

    @property
    def speakers(self) -> list[str]:
        """The speakers, in the order in which they first speak."""
        return list(dict.fromkeys(turn.speaker for turn in self))

    def talk_seconds(self) -> dict[str, float]:
        """How long each speaker speaks."""
        found = dict.fromkeys(self.speakers, 0.0)
        for start, end, speaker in self:
            found[speaker] += end - start
        return found

    def renamed(self, names: dict[str, str]) -> "Conversation":
        """The same with other names for some speakers; two of one name are one."""
        turns = (Turn(t.start, t.end, names.get(t.speaker, t.speaker)) for t in self)
        return Conversation(turns, self.recording, self.seconds, self.detector)

    def rttm(self) -> str:
        """The lines of an RTTM file."""
        return rttm_lines(Path(self.recording).stem, self)

    def plain(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        turns: dict[str, int] = dict.fromkeys(self.speakers, 0)
        for turn in self:
            turns[turn.speaker] += 1
        return {
            "recording": self.recording,
            "seconds": round(self.seconds, 3),
            "speech_detector": self.detector,
            "overlap": OVERLAP,
            "speakers": [
                {"speaker": speaker, "seconds": round(seconds, 3), "turns": turns[speaker]}
                for speaker, seconds in self.talk_seconds().items()
            ],
            "turns": [turn._asdict() for turn in self],
        }

    def annotation(self) -> "Annotation":
        """The turns for pyannote, if pyannote.core is installed."""
        try:
            from pyannote.core import Annotation, Segment
        except ImportError as error:
            raise ValueError("pyannote.core is not installed: pip install pyannote.core") from error
        found = Annotation(uri=Path(self.recording).stem)
        for number, (start, end, speaker) in enumerate(self):
            found[Segment(start, end), number] = speaker
        return found


def rttm_lines(recording: str, turns: Iterable[Turn]) -> str:
    """An RTTM file; spaces, which separate its fields, become underscores in names.

    >>> rttm_lines("a", [Turn(0.5, 2.0, "Ann Lee")])
    'SPEAKER a 1 0.500 1.500 <NA> <NA> Ann_Lee <NA> <NA>\\n'
    """
    name = "_".join(recording.split())
    return "".join(
        f"SPEAKER {name} 1 {start:.3f} {end - start:.3f} <NA> <NA> "
        f"{'_'.join(speaker.split())} <NA> <NA>\n"
        for start, end, speaker in turns
    )


def read_conversation(path: Path) -> Conversation:
    """The conversation of a JSON file of simple-spk diarize; anything else is a ValueError."""
    content = read_file(path, "JSON file", LARGEST_BYTES)
    try:
        plain = json.loads(content.decode())
        turns = [
            Turn(float(t["start"]), float(t["end"]), str(t["speaker"])) for t in plain["turns"]
        ]
        if not all(0.0 <= turn.start < turn.end <= LONGEST_SECONDS for turn in turns):
            raise ValueError("a turn has impossible times")
        recording, detector = str(plain["recording"]), str(plain["speech_detector"])
        return Conversation(sorted(turns), recording, float(plain["seconds"]), detector)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        what = f"is not a file of simple-spk diarize --json ({type(error).__name__}: {error})"
        raise ValueError(f"{path} {what}: make it again") from error
