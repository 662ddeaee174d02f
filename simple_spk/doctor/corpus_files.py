"""Which files of a corpus are there, and which should be."""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from simple_spk.data.audio import AUDIO_SUFFIXES
from simple_spk.data.manifest import read_manifest
from simple_spk.data.tar_store import fault_of_part, tar_part
from simple_spk.data.text_table import first_line, misfit, number_of, open_text, read_fields

# A file of each corpus, whose speakers all begin like this one, id1 or id0.
EXAMPLES = {
    "VoxCeleb1": "id10270/5r0dWxy17C8/00001.wav",
    "VoxCeleb2": "id00012/21Uxsk56VDQ/00001.m4a",
}


class CorpusFile(NamedTuple):
    """A file of a corpus that is there, or that a manifest promises."""

    name: str  # without suffix, as lists name utterances
    path: str
    speaker: str
    size_bytes: int  # -1: the file does not exist
    promised_seconds: float = np.nan  # nan: nothing is promised


def read_utterance_list(path: str | Path) -> dict[str, float]:
    """The utterances of a text file, plain or gzipped, without suffix, and their seconds.

    Each line has a name, or a name and seconds; seconds are nan where the list has none.
    """
    path = Path(path)
    with open_text(path, "utterance list") as file:
        first = first_line(file, path)
        if first is None:
            raise ValueError(f"{path} is empty; expected lines of 'utterance [seconds]'")
        columns = min(len(first.split()), 2)
        table = read_fields(file, path, columns, range(1, columns))

    def fits(fields: list[bytes]) -> bool:
        return len(fields) == columns and (columns == 1 or number_of(fields[1]) >= 0.0)

    if table is None or (columns == 2 and not (table.numbers(1) >= 0.0).all()):
        raise misfit(path, "utterance list", fits, "'utterance [seconds]'")
    distinct, (indexes,) = table.index(0)
    names = [without_suffix(distinct[index]) for index in indexes]
    seconds = table.numbers(1).tolist() if columns == 2 else [np.nan] * len(names)
    if len(set(names)) < len(names):
        ((name, count),) = Counter(names).most_common(1)
        raise ValueError(f"{path} names {name} {count} times; expected each utterance once")
    return dict(zip(names, seconds, strict=True))


def without_suffix(name: str) -> str:
    """A name without the suffix of an audio file, which a conversion changes.

    >>> without_suffix("id10270/5r0dWxy17C8/00001.wav"), without_suffix("dr.smith/1")
    ('id10270/5r0dWxy17C8/00001', 'dr.smith/1')
    """
    stem, _, suffix = name.rpartition(".")
    return stem if f".{suffix.lower()}" in AUDIO_SUFFIXES else name


def files_of_folder(folder: Path) -> list[CorpusFile]:
    """All audio files below a folder, named by their path in it; the first part is the speaker."""
    start = len(os.path.join(folder, ""))
    found = [(path[start:], path, size) for path, size in _walked(folder)]
    return [
        CorpusFile(without_suffix(name), path, os.path.dirname(name).partition("/")[0], size)
        for name, path, size in found
    ]


def files_of_voxceleb(corpus: str, folder: Path) -> list[CorpusFile]:
    """The files speaker/video/number of a corpus (VoxCeleb1, VoxCeleb2), wherever below a folder.

    Both the original tree (dev/aac/id00012/..., wav/id10001/...) and a converted one are found.
    """
    example = EXAMPLES[corpus]
    is_utterance = re.compile(example[:3] + r"\d{4}/[^/]+/\d+").fullmatch
    found = _walked(folder)
    named = (
        ("/".join(without_suffix(path).rsplit("/", 3)[1:]), path, size) for path, size in found
    )
    files = [
        CorpusFile(name, path, name[:7], size) for name, path, size in named if is_utterance(name)
    ]
    if not files:
        instead = f"the first audio file is {found[0][0]}" if found else "there is no audio file"
        raise ValueError(
            f"{folder} holds no recording of {corpus}: expected files such as .../{example} below "
            f"it, but {instead}"
        )
    return files


def files_of_manifest(path: Path) -> list[CorpusFile]:
    """The files that a manifest names, with the seconds that it promises."""
    manifest = read_manifest(path)
    speakers = [manifest.speakers[code] for code in manifest.speaker_of_row]
    columns = (manifest.row_of_id, manifest.files, speakers, manifest.durations_seconds.tolist())
    rows = tqdm(zip(*columns, strict=True), "look for files", len(manifest), unit="file")
    places = ((name, os.path.join(manifest.path.parent, wav), *rest) for name, wav, *rest in rows)
    return [
        CorpusFile(without_suffix(name), place, speaker, _size(place), seconds)
        for name, place, speaker, seconds in places
    ]


def _walked(folder: Path) -> list[tuple[str, int]]:
    """Paths and sizes of all audio files below a folder, in alphabetical order."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: correct the path")
    return sorted(tqdm(_walk(str(folder)), unit="file", desc="list files"))


def _walk(folder: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[tuple[str, int]]:
    """The audio files below a folder, with their sizes; ``above`` are the folders around it."""
    status = os.stat(folder)
    itself = (status.st_dev, status.st_ino)
    if itself in above:  # a link that leads in a circle
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _walk(entry.path, (*above, itself))
            elif entry.name.lower().endswith(AUDIO_SUFFIXES):
                yield entry.path, _size(entry.path)


def _size(path: str) -> int:
    """The bytes of a recording; -1 if there is none (or a link to nothing)."""
    part = tar_part(path)
    if part is not None:
        return part.size if fault_of_part(part) is None else -1
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1
