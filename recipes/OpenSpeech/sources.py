"""The recordings of open corpora, from a prepared folder or from the downloads."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from recipes.OpenSpeech.corpora import (
    ARABIC_COMMANDS,
    AUDIOMNIST,
    DSPSPEECH20,
    SPEECH_COMMANDS,
    CorpusFiles,
    find_librispeech,
    find_speechocean762,
    find_words,
)
from recipes.OpenSpeech.words import make_recordings
from simple_spk.corpora.inspection import Depth, inspect_files
from simple_spk.corpora.tables import Quarantined, Utterance, read_rows
from simple_spk.data.audio import duration_seconds
from simple_spk.data.manifest import read_manifest

FINDERS: dict[str, Callable[[Path], CorpusFiles]] = {
    "speechocean762": find_speechocean762,
    "audiomnist": partial(find_words, corpus=AUDIOMNIST),
    "dspspeech20": partial(find_words, corpus=DSPSPEECH20),
    "arabic_commands": partial(find_words, corpus=ARABIC_COMMANDS),
    "librispeech": find_librispeech,
    "speech_commands": partial(find_words, corpus=SPEECH_COMMANDS),
}
PREPARED_COLUMNS = ("wav", "duration", "spk_id", "corpus", "split")


class OpenSpeech(NamedTuple):
    """Recordings (the group is the corpus), test speakers, unusable files, and noises."""

    recordings: list[Utterance]
    test_speakers: set[str]
    faults: list[Quarantined]
    noises: list[Utterance]


def join_sources(sources: Sequence[OpenSpeech], without: Iterable[str] = ()) -> OpenSpeech:
    """The recordings of several sources, ``without`` some corpora; their names must differ."""
    for of_recording, what in (
        (lambda recording: recording.group, "corpus"),
        (lambda recording: recording.speaker, "speaker"),
        (lambda recording: recording.name, "recording"),
    ):
        seen: set[str] = set()
        for source in sources:
            names = {of_recording(recording) for recording in source.recordings}
            if again := sorted(seen & names):
                raise ValueError(
                    f"{len(again)} names are in two of the given folders, such as the {what} "
                    f"{again[0]!r}: give each corpus once, or rename one"
                )
            seen |= names
    recordings = [recording for source in sources for recording in source.recordings]
    corpora = {recording.group for recording in recordings}
    if unknown := sorted(set(without) - corpora):
        raise ValueError(
            f"there is no corpus {unknown[0]!r} to leave out: {', '.join(sorted(corpora))} are read"
        )
    return OpenSpeech(
        [recording for recording in recordings if recording.group not in set(without)],
        set().union(*(source.test_speakers for source in sources)),
        [fault for source in sources for fault in source.faults],
        [noise for source in sources for noise in source.noises],
    )


def read_prepared(folder: Path) -> OpenSpeech:
    """The recordings of a folder with a manifest.csv that says which split each belongs to."""
    path = folder / "manifest.csv"
    if not path.is_file():
        raise FileNotFoundError(f"no {path}: a prepared folder holds manifest.csv")
    recordings: list[Utterance] = []
    test_speakers: set[str] = set()
    train_speakers: set[str] = set()
    for line, row in read_rows(path, PREPARED_COLUMNS):
        where = f"{path}, line {line}"
        if empty := [name for name in PREPARED_COLUMNS if not row[name]]:
            raise ValueError(f"{where}: there is no {empty[0]}")
        if row["split"] not in ("train", "test"):
            raise ValueError(f"{where}: the split is {row['split']!r}; expected train or test")
        try:
            seconds = float(row["duration"])
        except ValueError as error:
            raise ValueError(f"{where}: the duration is {row['duration']!r}") from error
        place = str((folder / row["wav"]).resolve())
        recordings.append(
            Utterance(
                row["wav"], place, seconds, row["spk_id"], row["corpus"], row.get("session") or ""
            )
        )
        (test_speakers if row["split"] == "test" else train_speakers).add(row["spk_id"])
    both = sorted(test_speakers & train_speakers)
    if both:
        raise ValueError(f"{path}: {len(both)} speakers are in train and test, such as {both[0]}")
    _check_files(path, recordings)
    return OpenSpeech(recordings, test_speakers, [], [])


def read_common_voice(folder: Path) -> OpenSpeech:
    """The recordings of a folder that recipes/CommonVoice made; each language is a corpus.

    IDs are ACCOUNT/SESSION/CLIP, and accounts LANGUAGE-HASH; clean labels may give several accounts
    one speaker. Its test speakers stay such.
    """
    recordings: list[Utterance] = []
    test_speakers: set[str] = set()
    for part in ("train", "valid", "test"):
        path = folder / f"{part}.csv"
        if not path.is_file():
            if part == "train":
                raise FileNotFoundError(f"no {path}: run recipes/CommonVoice/prepare.py first")
            continue
        manifest = read_manifest(path)
        for name, row in manifest.row_of_id.items():
            speaker = manifest.speakers[manifest.speaker_of_row[row]]
            fields = name.split("/")
            if len(fields) != 3 or "-" not in fields[0]:
                raise ValueError(f"{path}: {name} is not LANGUAGE-HASH/SESSION/CLIP")
            recordings.append(
                Utterance(
                    name=f"common_voice/{name}",
                    path=str(manifest.wav(row).resolve()),
                    duration_seconds=float(manifest.durations_seconds[row]),
                    speaker=speaker,
                    group=f"common_voice_{fields[0].rpartition('-')[0]}",
                    session=fields[1] if fields[0] == speaker else "/".join(fields[:2]),
                )
            )
            if part == "test":
                test_speakers.add(speaker)
        _check_files(path, recordings)
    return OpenSpeech(recordings, test_speakers, [], [])


def _check_files(table: Path, recordings: Sequence[Utterance]) -> None:
    """Raise if files that a table names are not there."""
    absent = [recording.path for recording in recordings if not os.path.isfile(recording.path)]
    if absent:
        raise FileNotFoundError(
            f"{table} names {len(absent)} files that are not there, such as {absent[0]}: fetch the "
            f"folder again"
        )


def read_originals(folders: dict[str, Path], data_folder: Path, workers: int) -> OpenSpeech:
    """The recordings of downloaded corpora, words joined below ``data_folder``/audio."""
    if unknown := sorted(set(folders) - set(FINDERS)):
        raise ValueError(f"there is no corpus {unknown[0]!r}: expected {', '.join(FINDERS)}")
    corpora = [FINDERS[name](folder) for name, folder in folders.items()]  # mistakes show first
    recordings: list[Utterance] = []
    test_speakers: set[str] = set()
    faults: list[Quarantined] = []
    noises: list[Utterance] = []
    for corpus in corpora:
        details = "is not named as the corpus's are"
        faults += [Quarantined(str(path), "unknown name", details) for path in corpus.unmatched]
        test_speakers |= {speaker.speaker for speaker in corpus.speakers if speaker.is_test}
        if corpus.recording_seconds is None:
            found, bad = list_sentences(corpus, workers)
        else:
            found, bad = join_corpus(corpus, data_folder, workers)
        recordings += found
        faults += bad
        for path in corpus.noises:
            name, place = f"{corpus.name}/{path.name}", str(path.resolve())
            noises.append(Utterance(name, place, duration_seconds(path), "noise", corpus.name))
    return OpenSpeech(recordings, test_speakers, faults, noises)


def list_sentences(corpus: CorpusFiles, workers: int) -> tuple[list[Utterance], list[Quarantined]]:
    """The files of a corpus as recordings, and those that cannot be read."""
    files = [(speaker.speaker, path) for speaker in corpus.speakers for path in speaker.files]
    recordings: list[Utterance] = []
    faults: list[Quarantined] = []
    inspected = inspect_files([str(path) for _, path in files], Depth.ENDS, workers)
    for (speaker, path), facts in zip(files, inspected, strict=True):
        if facts.fault is not None:
            faults.append(Quarantined(str(path), *facts.fault))
        else:
            name = f"{corpus.name}/{speaker}/{path.name}"
            place = str(path.resolve())
            session = path.parent.name if corpus.folders_are_sessions else ""
            recordings.append(Utterance(name, place, facts.seconds, speaker, corpus.name, session))
    return recordings, faults


def join_corpus(
    corpus: CorpusFiles, data_folder: Path, workers: int
) -> tuple[list[Utterance], list[Quarantined]]:
    """The recordings made of a corpus's words, and the words that cannot be used."""
    audio = data_folder / "audio"
    assert corpus.recording_seconds is not None
    seconds = corpus.recording_seconds
    recordings: list[Utterance] = []
    faults: list[Quarantined] = []
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(
            lambda speaker: make_recordings(
                speaker.files, audio / corpus.name / speaker.speaker, seconds
            ),
            corpus.speakers,
        )
        bar = tqdm(results, total=len(corpus.speakers), unit="speaker", desc=corpus.name)
        for speaker, bad in zip(corpus.speakers, bar, strict=True):
            faults += bad
            for path in sorted((audio / corpus.name / speaker.speaker).glob("*.flac")):
                recordings.append(
                    Utterance(
                        name=path.relative_to(audio).as_posix(),
                        path=path.relative_to(data_folder).as_posix(),
                        duration_seconds=duration_seconds(path),
                        speaker=speaker.speaker,
                        group=corpus.name,
                    )
                )
    return recordings, faults
