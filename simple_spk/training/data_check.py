"""The check of all recordings of a training before its first step.

All training files must exist: each folder that a manifest names is listed once, which takes
seconds for a million files. Opening a million files would take hours, so at most MOST_INSPECTED of
each table, evenly spread, are opened: none may be unreadable, truncated or silent. simple-spk
doctor --deep reads all files to their end.
"""

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from simple_spk.corpora.inspection import SILENT, Depth, inspect_files
from simple_spk.data.manifest import Manifest
from simple_spk.data.tar_store import MARK

MOST_INSPECTED = 2000
FOLDERS_KEPT = 4096  # listings, for manifests that are not sorted
WORKERS = 8  # threads, which mostly wait for the disk


def check_recordings(dataset: Any, evaluations: Iterable[Any]) -> None:
    """Raise if recordings are missing or of no use, and name them.

    They are those of a dataset of crops, of its noises and rooms, and of evaluations of trial
    lists; other kinds of data are not checked.
    """
    for manifest in _manifests(dataset):
        places = _Places(manifest)
        missing = missing_files(places)
        if missing:
            raise FileNotFoundError(
                f"{len(missing)} of {len(manifest)} recordings of {manifest.path} do not exist "
                f"({_some(missing)}): complete the data, or prepare it again"
            )
        _inspect(str(manifest.path), places)
    for evaluation in evaluations:
        recordings = getattr(evaluation, "recordings", None)
        if recordings is not None:
            _inspect("a trial list", recordings.paths)


def _manifests(dataset: Any) -> Iterator[Manifest]:
    """The manifests that training crops are drawn from."""
    augmentation = getattr(dataset, "augmentation", None)
    for holder, name in ((dataset, "manifest"), (augmentation, "noises"), (augmentation, "rooms")):
        found = getattr(holder, name, None)
        if isinstance(found, Manifest):
            yield found


class _Places(Sequence[str]):
    """The paths of a manifest, made one at a time: a million strings take some room."""

    def __init__(self, manifest: Manifest) -> None:
        self.files, self.folder = manifest.files, str(manifest.path.parent)
        self.manifest = manifest

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: Any) -> Any:
        if MARK in self.files[row]:  # which is checked
            return str(self.manifest.wav(row))
        return os.path.join(self.folder, self.files[row])


def missing_files(paths: Sequence[str]) -> list[str]:
    """The paths at which nothing is; folders are listed, which is faster than asking for files.

    >>> missing_files([__file__, "/nowhere/a.wav"])
    ['/nowhere/a.wav']
    """
    names_in = functools.lru_cache(FOLDERS_KEPT)(_names_in)
    # Places in tar files were checked when they were named.
    places = (os.path.split(path) for path in paths if MARK not in path)
    return [os.path.join(*place) for place in places if place[1] not in names_in(place[0])]


def _names_in(folder: str) -> frozenset[str]:
    """The names in a folder; none if there is no such folder."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return frozenset(os.listdir(folder or os.curdir))
    return frozenset()


def _inspect(table: str, paths: Sequence[str | Path]) -> None:
    """Open some recordings of a table; raise if one of them is of no use."""
    step = max(1, -(-len(paths) // MOST_INSPECTED))
    chosen = [str(paths[row]) for row in range(0, len(paths), step)]
    bad = []
    for path, facts in zip(chosen, inspect_files(chosen, Depth.SILENCE, WORKERS), strict=True):
        fault = SILENT if facts.is_silent else facts.fault
        if fault is not None:
            bad.append(f"{path} {fault[1]}")
    if bad:
        raise ValueError(
            f"{len(bad)} of {len(chosen)} recordings of {table} that were opened are of no use "
            f"({_some(bad)}): repair them, or leave them out; simple-spk doctor --manifest FILE "
            "--deep finds all"
        )


def _some(names: Sequence[str]) -> str:
    """The first few of many."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
