"""From the archives of noises and rooms to the manifests that augmentation reads.

Nothing is copied. The column spk_id holds the kind of sound.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from simple_spk.corpora.speaker_folder import find_usable, list_speaker_folder
from simple_spk.corpora.tables import PreparedCorpus, Utterance, write_corpus
from simple_spk.data.augmentation import MUSAN

ROOMS = ("smallroom", "mediumroom")  # speech hardly occurs in larger halls


def prepare_musan(source: Path, target: Path, workers: int = 4) -> PreparedCorpus:
    """Write target/musan.csv of MUSAN's noise, music and speech."""
    return _prepare(source, tuple(MUSAN), target / "musan.csv", 0.1, workers)


def prepare_rooms(source: Path, target: Path, workers: int = 4) -> PreparedCorpus:
    """Write target/rooms.csv of the simulated responses of RIRS_NOISES.

    source is RIRS_NOISES, the folder simulated_rirs in it, or any with a folder per kind of room.
    """
    inner = source / "simulated_rirs"
    source = inner if inner.is_dir() else source
    return _prepare(source, ROOMS, target / "rooms.csv", 0.0, workers)


def _prepare(
    root: Path, kinds: Sequence[str], manifest: Path, shortest_seconds: float, workers: int
) -> PreparedCorpus:
    """Write the manifest of the sounds below a folder per kind; short ones are useful here."""
    missing = ", ".join(kind for kind in kinds if not (root / kind).is_dir())
    if missing:
        cure = f"give the unpacked archive, which has {', '.join(kinds)}"
        raise ValueError(f"{root} lacks the folders {missing}: {cure}")
    contents = list_speaker_folder(root)
    wanted = [file for file in contents.files if file.speaker in kinds]
    journal = manifest.with_name(f".{manifest.stem}_files.jsonl")
    usable = find_usable(root, wanted, journal, shortest_seconds, workers=workers)
    utterances = [
        Utterance(name, str(root.resolve() / name), max(seconds, 0.001), name.partition("/")[0])
        for name, seconds in usable.durations_seconds.items()
    ]
    empty = ", ".join(sorted(set(kinds) - {utterance.speaker for utterance in utterances}))
    if empty:
        raise ValueError(f"{root} has no usable recordings of {empty}: unpack it again")
    faults = [f for f in contents.faults if f.source.split("/")[0] in kinds] + usable.faults
    ignored = Counter({"files without sound": contents.other_files} if contents.other_files else {})
    quarantine = manifest.with_name(f"{manifest.stem}_quarantine.csv")
    return write_corpus(manifest, utterances, quarantine, faults, ignored)
