"""From the archives of VoxCeleb to what training reads: audio, manifests and trial lists.

VoxCeleb2 dev (m4a) is converted and becomes train.csv. VoxCeleb1 (wav) stays where it is and
becomes test.csv, with valid.csv and a validation trial list. IDs are the names in the trial lists:
id10270/5r0dWxy17C8/00001.wav.
"""

import gzip
import os
import re
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
from simple_spk.data.trials import read_trials
from simple_spk.io.atomic_file import atomic_write

SPEAKER_FOLDER = re.compile(r"id\d{5}")


class _Listing(NamedTuple):
    """The recordings of a tree by name, those that no table can name, and the other files."""

    sources: list[AudioFile]
    faults: list[Quarantined]
    ignored: Counter[str]


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
    journal_folder = target / f".voxceleb2_{audio_format}"
    outcomes = convert(
        root, sources, target / audio_format, journal_folder, settings, workers, retry_quarantined
    )
    del sources  # a million of them take some room, as will their utterances
    utterances = [
        Utterance(
            f"{os.path.splitext(outcome.name)[0]}.wav",
            f"{audio_format}/{settings.target_name(outcome.name)}",
            outcome.samples / settings.sample_rate,
            _speaker(outcome.name),
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
    roots = _roots(source, ("dev/wav", "test/wav", "wav", "."), "wav/id10270/5r0dWxy17C8/00001.wav")
    utterances: list[Utterance] = []
    faults: list[Quarantined] = []
    ignored: Counter[str] = Counter()
    for root in roots:
        listing = _list_recordings(root, ".wav")
        faults += listing.faults
        ignored += listing.ignored
        paths = [str(root / found.name) for found in listing.sources]
        facts = inspect_files(paths, Depth.ENDS, workers)
        for found, place, fact in zip(listing.sources, paths, facts, strict=True):
            fault = fact.fault or length_fault(fact.seconds, SHORTEST_SECONDS)
            if fault is not None:
                faults.append(Quarantined(found.name, *fault))
            else:
                wav = _path_from(target, Path(place))
                speaker = _speaker(found.name)
                utterances.append(Utterance(found.name, wav, fact.seconds, speaker))
    by_id = {utterance.name: utterance for utterance in utterances}
    if len(by_id) < len(utterances):
        raise ValueError(f"{source} holds some recordings twice, below {_listed(roots)}: keep one")
    utterances.sort()
    quarantine = target / "voxceleb1_quarantine.csv"
    prepared = write_corpus(target / "test.csv", utterances, quarantine, faults, ignored)
    valid_ids = choose_recordings(by_id)
    if valid_ids:
        write_utterances(target / "valid.csv", [by_id[identifier] for identifier in valid_ids])
        write_validation_trials(target / "valid_trials.txt", valid_ids)
    for path, name in zip(trial_lists, copies, strict=True):
        _copy_trials(path, target / name, by_id)
    return prepared._replace(validation_recordings=len(valid_ids))


def _roots(source: Path, places: Sequence[str], example: str) -> list[Path]:
    """The folders of speakers at the given places below source, at least one."""
    if not source.is_dir():
        raise FileNotFoundError(f"no folder {source}: name the one that holds {example}")
    found = [source / place for place in places if _has_speakers(source / place)]
    if found:
        return found
    names = sorted(entry.name for entry in os.scandir(source))
    cure = f"expected {example} in it"
    if any(".zip" in name or "_part" in name for name in names):
        cure = f"join and unpack the archives first; {cure} then"
    elif any((source / place).is_dir() for place in ("mp4", "dev/mp4", "test/mp4")):
        cure = f"mp4 is the archive of videos; fetch the one of audio, and {cure}"
    raise ValueError(
        f"{source} holds no folders of speakers, but {_listed(names) or 'nothing'}: {cure}"
    )


def _has_speakers(folder: Path) -> bool:
    """Whether a folder holds folders named like speakers."""
    return folder.is_dir() and any(
        SPEAKER_FOLDER.fullmatch(entry.name) and entry.is_dir() for entry in os.scandir(folder)
    )


def _list_recordings(root: Path, suffix: str) -> _Listing:
    """All speaker/video/recording below a folder, and what else is there."""
    found: list[AudioFile] = []
    faults: list[Quarantined] = []
    ignored: Counter[str] = Counter()
    for speaker in tqdm(sorted(os.listdir(root)), unit="speaker", desc="list"):
        if not SPEAKER_FOLDER.fullmatch(speaker):
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
        raise ValueError(f"{root} holds no {suffix} files, but {kinds or 'nothing'}: {cure}")
    return _Listing(sorted(found), faults, ignored)


def _size_and_mtime(entry: os.DirEntry[str]) -> tuple[int, int]:
    """Bytes and time of change (ns) of a file; -1 for a link to nothing."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _entries(folder: Path, ignored: Counter[str]) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; what is no folder is counted as ignored."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except NotADirectoryError:
        ignored[folder.suffix or folder.name] += 1


def _listed(names: Sequence[object], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def _path_from(target: Path, path: Path) -> str:
    """How a manifest in target names a file: relative if it lies below target."""
    path, base = Path(os.path.abspath(path)), Path(os.path.abspath(target))
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)


def _speaker(name: str) -> str:
    """The speaker of speaker/video/recording, as one string for all recordings of a speaker."""
    return sys.intern(name.partition("/")[0])


def _names_of_copies(trial_lists: Sequence[Path]) -> list[str]:
    """The names of the copies of trial lists, distinct and unlike the tables'."""
    names = ["test_trials.txt", *(path.name.removesuffix(".gz") for path in trial_lists[1:])]
    for number, name in enumerate(names):
        if name in (*names[:number], "valid_trials.txt", "train.csv", "valid.csv", "test.csv"):
            raise ValueError(
                f"the copy of {trial_lists[number]} would overwrite another {name}: rename the list"
            )
    return names[: len(trial_lists)]


def _copy_trials(source: Path, target: Path, known: Container[str]) -> None:
    """Copy a trial list, unpacked, once all recordings that it names are known."""
    ids = read_trials(source).ids
    missing = [identifier for identifier in ids if identifier not in known]
    if missing:
        raise ValueError(
            f"{source} names {len(missing)} recordings, of {len(ids)}, that are not among the "
            f"usable ones ({_listed(missing, 3)}): fetch what is missing, see the quarantine list, "
            f"or leave this list out"
        )
    content = source.read_bytes()
    with atomic_write(target) as partial:
        partial.write_bytes(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
