"""The files of a corpus that are there: in a folder, in a copy of VoxCeleb, or by a manifest."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from simple_spk.data.audio import AUDIO_SUFFIXES
from simple_spk.data.manifest import read_manifest
from simple_spk.doctor.utterance_list import without_suffix

# A file of each corpus, and how its speakers begin.
EXAMPLES = {
    "VoxCeleb1": ("id10270/5r0dWxy17C8/00001.wav", "id1"),
    "VoxCeleb2": ("id00012/21Uxsk56VDQ/00001.m4a", "id0"),
}


@dataclass(frozen=True)
class Copy:
    """The n files of a corpus that are there (or that a manifest promises)."""

    names: list[str]  # (n,), without suffix, as lists name utterances
    paths: list[str]  # (n,)
    speakers: list[str]  # (n,)
    sizes: NDArray[np.int64]  # (n,) in bytes; -1: the file does not exist
    promised_seconds: NDArray[np.float64]  # (n,); nan where nothing is promised


def copy_of_folder(folder: Path, progress: bool = True) -> Copy:
    """All audio files below a folder, named by their path in it."""
    paths, sizes = _list_audio(folder, progress)
    start = len(os.path.join(folder, ""))
    names = [without_suffix(path[start:]) for path in paths]
    return _copy(names, paths, sizes)


def copy_of_voxceleb(corpus: str, folder: Path, progress: bool = True) -> Copy:
    """The files speaker/video/number of a corpus (VoxCeleb1, VoxCeleb2), wherever below a folder.

    So the original tree (dev/aac/id00012/..., wav/id10001/...) will do, and a converted one.
    """
    paths, sizes = _list_audio(folder, progress)
    example, first_digits = EXAMPLES[corpus]
    is_utterance = re.compile(r"id\d{5}/[^/]+/\d+").fullmatch
    names = ["/".join(without_suffix(path).rsplit("/", 3)[1:]) for path in paths]
    kept = [
        row
        for row, name in enumerate(names)
        if is_utterance(name) and name.startswith(first_digits)
    ]
    if not kept:
        instead = (
            f"the first audio file is {paths[0]}" if paths else "there is no audio file at all"
        )
        raise ValueError(
            f"{folder} holds no recording of {corpus}: expected files such as "
            f".../{example} below it, but {instead}"
        )
    return _copy([names[row] for row in kept], [paths[row] for row in kept], sizes[kept])


def copy_of_manifest(path: Path, progress: bool = True) -> Copy:
    """The files that a manifest names, with the seconds that it promises."""
    manifest = read_manifest(path)
    assert manifest.ids is not None  # they were asked for
    folder = str(manifest.path.parent)
    paths = [os.path.join(folder, wav) for wav in manifest.wavs]
    names = [without_suffix(name) for name in manifest.ids]
    bar = tqdm(paths, unit="file", desc="look for files", disable=not progress)
    sizes = np.fromiter(map(_size, bar), dtype=np.int64, count=len(paths))
    speakers = [manifest.speakers[number] for number in manifest.speaker_of_row.tolist()]
    return Copy(names, paths, speakers, sizes, manifest.durations_seconds.astype(np.float64))


def _copy(names: list[str], paths: list[str], sizes: NDArray[np.int64]) -> Copy:
    """A copy of which nothing is promised; the first folder of a name is the speaker."""
    speakers = [name.rpartition("/")[0].partition("/")[0] for name in names]
    return Copy(names, paths, speakers, sizes, np.full(len(names), np.nan))


def rows_of(copy: Copy, kept: ArrayLike) -> Copy:
    """The files of a copy for which ``kept`` (n,) is true."""
    rows = np.flatnonzero(kept)
    return Copy(
        [copy.names[row] for row in rows],
        [copy.paths[row] for row in rows],
        [copy.speakers[row] for row in rows],
        copy.sizes[rows],
        copy.promised_seconds[rows],
    )


def _list_audio(folder: Path, progress: bool) -> tuple[list[str], NDArray[np.int64]]:
    """Paths and sizes of all audio files below a folder, in alphabetical order of folders."""
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}: correct the path")
    bar = tqdm(_walk(str(folder)), unit="file", desc="list files", disable=not progress)
    found = sorted(bar)
    sizes = np.fromiter((size for _, size in found), dtype=np.int64, count=len(found))
    return [path for path, _ in found], sizes


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
    """The bytes of a file; -1 if there is none (or a link to nothing)."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return -1
