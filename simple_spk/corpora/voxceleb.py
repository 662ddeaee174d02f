"""From the archives of VoxCeleb to what training reads: audio, manifests and trial lists.

VoxCeleb2 dev (m4a) is converted and becomes train.csv. VoxCeleb1 (wav) stays where it is and
becomes test.csv, with valid.csv and a validation trial list. IDs are the names in the trial lists:
id10270/5r0dWxy17C8/00001.wav.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from tqdm import tqdm

from simple_spk.corpora.conversion import AudioFormat, Settings, convert
from simple_spk.corpora.inspection import AudioFile, Depth, inspect_files, length_fault
from simple_spk.corpora.speaker_folder import UNFIT_FOR_TABLES
from simple_spk.corpora.tables import (
    PreparedCorpus,
    Quarantined,
    Utterance,
    write_corpus,
    write_utterances,
)
from simple_spk.corpora.trial_lists import choose_recordings, write_validation_trials
from simple_spk.data.audio import SHORTEST_SECONDS
from simple_spk.data.text_table import open_text
from simple_spk.data.trials import read_trials
from simple_spk.io.atomic_file import atomic_write

SPEAKER_FOLDERS = "id[0-9][0-9][0-9][0-9][0-9]"


def prepare_voxceleb2(
    source: Path,
    target: Path,
    audio_format: AudioFormat = "flac",
    workers: int = 1,
    retry_quarantined: bool = False,
) -> PreparedCorpus:
    """Convert VoxCeleb2 dev to 16 kHz below target/flac (or wav), and write target/train.csv.

    source holds dev/aac, or aac, or is one of them. The next run continues one that was stopped in
    whatever way; faulty recordings are listed in target/voxceleb2_quarantine.csv.
    """
    example = "dev/aac/id00012/21Uxsk56VDQ/00001.m4a"
    root = _roots(source, ("dev/aac", "aac", "dev", "."), example)[0]
    sources, faults, ignored = _list_recordings(root, ".m4a")
    settings = Settings(audio_format)
    folders = (target / audio_format, target / f".voxceleb2_{audio_format}")
    outcomes = convert(root, sources, *folders, settings, workers, retry_quarantined)
    del sources  # a million of them take some room, as will their utterances
    utterances = [
        Utterance(
            f"{os.path.splitext(outcome.name)[0]}.wav",
            f"{audio_format}/{settings.target_name(outcome.name)}",
            outcome.samples / settings.sample_rate,
            sys.intern(outcome.name.partition("/")[0]),
        )
        for outcome in outcomes
        if not outcome.fault
    ]
    faults += [Quarantined(o.name, o.fault, o.details) for o in outcomes if o.fault]
    quarantine = target / "voxceleb2_quarantine.csv"
    return write_corpus(target / "train.csv", utterances, quarantine, faults, ignored)


def prepare_voxceleb1(
    source: Path, target: Path, trial_lists: Sequence[Path] = (), workers: int = 8
) -> PreparedCorpus:
    """Write target/test.csv of all of VoxCeleb1 that is there, and the validation tables.

    source holds wav, or dev/wav and test/wav, or is one of them; nothing is copied. Of the dev
    speakers, some make target/valid.csv and valid_trials.txt. The first trial list becomes
    target/test_trials.txt, the others keep their names; all their recordings must be there.
    """
    copies = _names_of_copies(trial_lists)
    names_of_lists = [read_trials(path).ids for path in trial_lists]  # errors come first
    roots = _roots(source, ("dev/wav", "test/wav", "wav", "."), "wav/id10270/5r0dWxy17C8/00001.wav")
    utterances: list[Utterance] = []
    faults: list[Quarantined] = []
    ignored: Counter[str] = Counter()
    for root in roots:
        sources, unfit, others = _list_recordings(root, ".wav")
        faults += unfit
        ignored += others
        place, base = Path(os.path.abspath(root)), os.path.abspath(target)
        if place.is_relative_to(base):  # then the manifest and its files may move together
            place = place.relative_to(base)
        facts = inspect_files([f"{root}/{source.name}" for source in sources], Depth.ENDS, workers)
        for file, fact in zip(sources, facts, strict=True):
            fault = fact.fault or length_fault(fact.seconds, SHORTEST_SECONDS)
            if fault is not None:
                faults.append(Quarantined(file.name, *fault))
            else:
                wav = (place / file.name).as_posix()
                utterances.append(Utterance(file.name, wav, fact.seconds, file.speaker))
    by_id = {utterance.name: utterance for utterance in utterances}
    if len(by_id) < len(utterances):
        raise ValueError(f"{source} holds some recordings twice, below {_listed(roots)}: keep one")
    utterances.sort()
    quarantine = target / "voxceleb1_quarantine.csv"
    prepared = write_corpus(target / "test.csv", utterances, quarantine, faults, ignored)
    valid_ids = choose_recordings(by_id)
    if valid_ids:
        write_utterances(target / "valid.csv", [by_id[name] for name in valid_ids])
        write_validation_trials(target / "valid_trials.txt", valid_ids)
    for path, name, ids in zip(trial_lists, copies, names_of_lists, strict=True):
        _copy_trials(path, target / name, ids, by_id)
    return prepared._replace(validation_recordings=len(valid_ids))


def _roots(source: Path, places: Sequence[str], example: str) -> list[Path]:
    """The folders of speakers at the given places below source, at least one."""
    if not source.is_dir():
        raise FileNotFoundError(f"no folder {source}: name the one that holds {example}")
    roots = [source / place for place in places]
    found = [root for root in roots if any(map(Path.is_dir, root.glob(SPEAKER_FOLDERS)))]
    if found:
        return found
    names = sorted(entry.name for entry in os.scandir(source))
    cure = f"expected {example} in it"
    if any(".zip" in name or "_part" in name for name in names):
        cure = f"join and unpack the archives first; {cure} then"
    elif any((source / place).is_dir() for place in ("mp4", "dev/mp4", "test/mp4")):
        cure = f"mp4 is the archive of videos; fetch the one of audio, and {cure}"
    raise ValueError(f"{source} holds no folders of speakers, but {_listed(names)}: {cure}")


def _list_recordings(
    root: Path, suffix: str
) -> tuple[list[AudioFile], list[Quarantined], Counter[str]]:
    """All speaker/video/recording by name, those that no table can name, and the other files."""
    found: list[AudioFile] = []
    faults: list[Quarantined] = []
    ignored: Counter[str] = Counter()
    for speaker in tqdm(sorted(os.listdir(root)), unit="speaker", desc="list"):
        if not fnmatch(speaker, SPEAKER_FOLDERS):
            ignored[speaker] += 1
            continue
        for video in _entries(root / speaker, ignored):
            for entry in _entries(Path(video.path), ignored):
                name = f"{speaker}/{video.name}/{entry.name}"
                if not entry.name.endswith(suffix):
                    ignored[os.path.splitext(entry.name)[1] or entry.name] += 1
                elif UNFIT_FOR_TABLES.search(name):
                    details = "has a name with control characters or not in UTF-8"
                    faults.append(Quarantined(name, "unfit name", details))
                else:
                    found.append(AudioFile(name, *_size_and_mtime(entry)))
    if not found:
        cure = f"expected speaker/video/recording{suffix}"
        if ".mp4" in ignored:
            cure = f"mp4 is the archive of videos; fetch the one of audio; {cure}"
        kinds = _listed([f"{count} {kind}" for kind, count in ignored.most_common()])
        raise ValueError(f"{root} holds no {suffix} files, but {kinds}: {cure}")
    return sorted(found), faults, ignored


def _size_and_mtime(entry: os.DirEntry[str]) -> tuple[int, int]:
    """Bytes and time of change (ns) of a file; -1 for a link to nothing."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _entries(folder: Path, ignored: Counter[str]) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; anything else is counted as ignored."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except NotADirectoryError:
        ignored[folder.suffix or folder.name] += 1


def _listed(names: Sequence[object], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more or "nothing"


def _names_of_copies(trial_lists: Sequence[Path]) -> list[str]:
    """The names of the copies of trial lists, distinct and unlike the tables'."""
    names = ["test_trials.txt", *(path.name.removesuffix(".gz") for path in trial_lists[1:])]
    for number, name in enumerate(names):
        if name in (*names[:number], "valid_trials.txt", "train.csv", "valid.csv", "test.csv"):
            raise ValueError(
                f"the copy of {trial_lists[number]} would overwrite another {name}: rename the list"
            )
    return names[: len(trial_lists)]


def _copy_trials(source: Path, target: Path, ids: Sequence[str], known: Container[str]) -> None:
    """Copy a trial list, unpacked, once all recordings that it names (``ids``) are known."""
    missing = [name for name in ids if name not in known]
    if missing:
        raise ValueError(
            f"{source} names {len(missing)} of {len(ids)} recordings that cannot be used or are not"
            f" there ({_listed(missing, 3)}): see the quarantine list, or leave this list out"
        )
    with (
        open_text(source, "trial list") as text,
        atomic_write(target) as partial,
        partial.open("wb") as copy,
    ):
        shutil.copyfileobj(text, copy)
