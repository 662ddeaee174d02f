"""The recordings of open corpora, from a prepared folder or from the downloads."""

import csv
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from recipes.OpenSpeech.corpora import (
    ARABIC_COMMANDS,
    AUDIOMNIST,
    DSPSPEECH20,
    CorpusFiles,
    find_speechocean762,
    find_words,
)
from recipes.OpenSpeech.words import make_recordings
from simple_spk.corpora.inspection import Depth, inspect_files
from simple_spk.corpora.tables import Quarantined, Utterance
from simple_spk.data.audio import duration_seconds

PREPARED_COLUMNS = ("wav", "duration", "spk_id", "corpus", "split")


class OpenSpeech(NamedTuple):
    """Recordings of all corpora (the group is the corpus), test speakers, unusable files."""

    recordings: list[Utterance]
    test_speakers: set[str]
    faults: list[Quarantined]


def read_prepared(folder: Path) -> OpenSpeech:
    """The recordings of a folder with a manifest.csv that says which split each belongs to."""
    path = folder / "manifest.csv"
    if not path.is_file():
        raise FileNotFoundError(f"no {path}: a prepared folder holds manifest.csv")
    recordings: list[Utterance] = []
    test_speakers: set[str] = set()
    train_speakers: set[str] = set()
    for line, row in _rows(path):
        where = f"{path}, line {line}"
        if row["split"] not in ("train", "test"):
            raise ValueError(f"{where}: the split is {row['split']!r}; expected train or test")
        try:
            seconds = float(row["duration"])
        except (TypeError, ValueError) as error:  # TypeError: the row ends before it
            raise ValueError(f"{where}: the duration is {row['duration']!r}") from error
        place = str((folder / row["wav"]).resolve())
        recordings.append(Utterance(row["wav"], place, seconds, row["spk_id"], row["corpus"]))
        (test_speakers if row["split"] == "test" else train_speakers).add(row["spk_id"])
    both = sorted(test_speakers & train_speakers)
    if both:
        raise ValueError(f"{path}: {len(both)} speakers are in train and test, such as {both[0]}")
    absent = [recording.path for recording in recordings if not os.path.isfile(recording.path)]
    if absent:
        raise FileNotFoundError(
            f"{path} names {len(absent)} files that are not there, such as {absent[0]}: fetch the "
            f"folder again"
        )
    return OpenSpeech(recordings, test_speakers, [])


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table of recordings by column, each with the number of its line."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in PREPARED_COLUMNS if name not in (reader.fieldnames or [])]
            if missing:
                raise ValueError(f"{path} lacks the columns {', '.join(missing)}")
            for row in reader:
                yield reader.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {error}") from error


def read_originals(folders: dict[str, Path], data_folder: Path, workers: int) -> OpenSpeech:
    """The recordings of downloaded corpora, words joined below ``data_folder``/audio."""
    finders: dict[str, Callable[[Path], CorpusFiles]] = {
        "speechocean762": find_speechocean762,
        "audiomnist": lambda folder: find_words(folder, AUDIOMNIST),
        "dspspeech20": lambda folder: find_words(folder, DSPSPEECH20),
        "arabic_commands": lambda folder: find_words(folder, ARABIC_COMMANDS),
    }
    corpora = [finders[name](folder) for name, folder in folders.items()]  # mistakes show first
    recordings: list[Utterance] = []
    test_speakers: set[str] = set()
    faults: list[Quarantined] = []
    for corpus in corpora:
        details = "is not named as the corpus's are"
        faults += [Quarantined(str(path), "unknown name", details) for path in corpus.strangers]
        test_speakers |= {speaker.speaker for speaker in corpus.speakers if speaker.is_test}
        if corpus.name == "speechocean762":
            found, bad = list_sentences(corpus, workers)
        else:
            found, bad = join_corpus(corpus, data_folder, workers)
        recordings += found
        faults += bad
    return OpenSpeech(recordings, test_speakers, faults)


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
            recordings.append(Utterance(name, place, facts.seconds, speaker, corpus.name))
    return recordings, faults


def join_corpus(
    corpus: CorpusFiles, data_folder: Path, workers: int
) -> tuple[list[Utterance], list[Quarantined]]:
    """The recordings made of a corpus's words, and the words that cannot be used."""
    audio = data_folder / "audio"
    recordings: list[Utterance] = []
    faults: list[Quarantined] = []
    with ThreadPoolExecutor(workers) as pool:
        results = pool.map(
            lambda speaker: make_recordings(speaker.files, audio / corpus.name / speaker.speaker),
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
