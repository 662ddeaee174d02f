"""A list of trials to validate with, from speakers who are neither trained on nor in Vox1-O.

Many recipes choose their checkpoint by Vox1-O and then report Vox1-O. Here 40 speakers of VoxCeleb1
dev are set aside for that choice: VoxCeleb2 knows none of them, so they are new to the model. They
do appear among the 1,251 speakers of Vox1-E and Vox1-H, which matters little, and is to be known.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from simple_spk.voxceleb_totals import part_of
from simple_spk.whole_file import whole_file


def choose_recordings(
    ids: Iterable[str], speakers: int = 40, recordings_per_speaker: int = 20
) -> list[str]:
    """IDs (speaker/video/number) to validate with, in alphabetical order; none of Vox1-O.

    The choice follows a hash of the names, so it stays the same wherever it is made, and nearly so
    where recordings are missing. A speaker's recordings are spread over as many videos as can be.
    """
    of_speaker: defaultdict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for identifier in ids:
        speaker, video, _ = identifier.split("/")
        if part_of(speaker) != "VoxCeleb1 test":  # whose trials are Vox1-O
            of_speaker[speaker][video].append(identifier)
    eligible = [speaker for speaker, videos in of_speaker.items() if len(videos) > 1]
    chosen: list[str] = []
    for speaker in sorted(eligible, key=_lot)[:speakers]:
        turns = [
            (turn, _lot(identifier), identifier)
            for recordings in of_speaker[speaker].values()
            for turn, identifier in enumerate(sorted(recordings, key=_lot))
        ]
        chosen += [identifier for *_, identifier in sorted(turns)[:recordings_per_speaker]]
    return sorted(chosen)


def _lot(name: str) -> bytes:
    """A place in an order that has nothing to do with the name's meaning."""
    return hashlib.sha256(name.encode()).digest()


def write_validation_trials(path: Path, ids: Sequence[str]) -> int:
    """Write ``0|1 enrol test`` for all pairs but those of one video; returns how many there are.

    (Recordings of one video share microphone, room and day: pairs of them are too easy.)
    """
    speakers = np.array([identifier.split("/")[0] for identifier in ids])
    videos = np.array([identifier.rpartition("/")[0] for identifier in ids])
    enrol, test = np.triu_indices(len(ids), k=1)
    is_far = videos[enrol] != videos[test]
    enrol, test = enrol[is_far], test[is_far]
    labels = (speakers[enrol] == speakers[test]).astype(int)
    trials = zip(labels.tolist(), enrol.tolist(), test.tolist(), strict=True)
    with (
        whole_file(path) as partial,
        partial.open("w", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(f"{label} {ids[left]} {ids[right]}\n" for label, left, right in trials)
    return len(enrol)
