"""Embeddings in Kaldi's .ark and .scp files, read without running or unpickling what they hold.

kaldiio alone would run an .scp entry that ends in | as a shell command, and unpickle an archive
entry that begins with PKL; so entries are looked at before it sees them.
"""

import itertools
import os
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.text_table import numbered_lines, shown
from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import open_file


def read_vectors(path: Path) -> tuple[list[str], NDArray[np.float32]]:
    """The ids (n,) and vectors (n, dim) of an .ark file, or of those that an .scp file names."""
    entries = _scp_entries(path) if path.suffix == ".scp" else _ark_entries(path)
    ids: list[str] = []
    vectors: list[NDArray[np.floating]] = []
    for name, vector in entries:
        if vector.ndim == 2 and vector.shape[0] == 1:  # some toolkits write matrices of one row
            vector = vector[0]
        if vector.ndim != 1 or (vectors and vector.shape != vectors[0].shape):
            expected = f"({len(vectors[0])},)" if vectors else "one dimension"
            raise ValueError(f"{path}: {name} has shape {vector.shape}; expected {expected}")
        ids.append(name)
        vectors.append(vector)
    if not ids:
        raise ValueError(f"{path} holds no vectors: make it again")
    return ids, np.array(vectors, dtype=np.float32)


def check_names(path: Path, ids: Sequence[str]) -> None:
    """Raise if vectors of these names could not be written to an .ark."""
    encoded = [name.encode(errors="replace") for name in ids]  # ? for what is not UTF-8
    for name, text in zip(ids, encoded, strict=True):
        if text.split() != [text] or text.decode() != name:
            what = "Kaldi's ids are UTF-8 without spaces"
            raise ValueError(f"{path}: {what}, but one is {name!r}: rename it")
    _kaldiio()


def write_vectors(path: Path, ids: Sequence[str], vectors: NDArray[np.float32]) -> None:
    """Write vectors (n, dim) of checked ids as a binary .ark, and an .scp beside it, atomically."""
    kaldiio = _kaldiio()
    places = []
    with atomic_write(path) as partial, partial.open("wb") as file:
        for name, vector in zip(ids, vectors, strict=True):
            places.append(file.tell() + len(name.encode()) + 1)
            kaldiio.save_ark(file, {name: vector})
    with atomic_write(path.with_suffix(".scp")) as partial:
        lines = (f"{name} {path.name}:{place}\n" for name, place in zip(ids, places, strict=True))
        partial.write_text("".join(lines), encoding="utf-8", newline="\n")


def _ark_entries(path: Path) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """The names and arrays of an archive, in its order."""
    kaldiio = _kaldiio()
    with open_file(path, "archive") as file:
        while True:
            try:
                name = kaldiio.matio.read_token(file)
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path} is not a Kaldi archive ({error}): make it again"
                ) from error
            if name is None:
                return
            name = name.strip(" \t\r\n")  # in text archives, the end of the line before
            if name:
                yield name, _array(path, name, file)


def _scp_entries(path: Path) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """The names and arrays that a script file names, in its order; each archive is opened once."""
    arks: dict[str, Path] = {}
    entries = [_scp_entry(path, *line, arks) for line in numbered_lines(path, "script file")]
    for ark, group in itertools.groupby(entries, key=lambda entry: entry[1]):
        with open_file(ark, "archive") as file:
            for name, _, place in group:
                file.seek(place)
                yield name, _array(ark, name, file)


def _scp_entry(
    path: Path, number: int, line: bytes, arks: dict[str, Path]
) -> tuple[str, Path, int]:
    """A line of a script file: the name, the archive (``arks`` has those found), the place."""
    fields = [field.decode() for field in line.split(maxsplit=1)]
    target = fields[1].strip() if len(fields) == 2 else ""
    if not target or "|" in (target[0], target[-1]) or target.endswith("]"):
        raise ValueError(
            f"{path}, line {number}: found {shown(line, number)}; expected 'id file.ark:place': "
            "commands (|) are never run, and ranges ([]) are not read"
        )
    name, (file, _, place) = fields[0], target.rpartition(":")
    if not file or not place.isdecimal() or len(place) > 18:  # digits of the largest file
        file, place = target, "0"
    if file not in arks:
        # As Kaldi does, from the current directory; or else beside the script file, as ours are.
        found = [ark for ark in (Path(file), path.parent / file) if os.path.isfile(ark)]
        if len(found) == 2 and not found[0].samefile(found[1]):
            raise ValueError(
                f"{path}, line {number}: {file} lies both in {Path.cwd()} and beside the .scp: "
                "move one away, or start from another folder"
            )
        if not found:
            raise FileNotFoundError(
                f"{path}, line {number}: {reprlib.repr(file)} does not exist in {Path.cwd()} nor "
                "beside the .scp"
            )
        arks[file] = found[0]
    return name, arks[file], int(place)


def _array(path: Path, name: str, file: IO[bytes]) -> NDArray[np.floating]:
    """The numbers at the current place of an archive, if they are numbers."""
    place = file.tell()
    start = file.read(64)
    file.seek(place)
    if not (start.startswith(b"\0B") or start.lstrip().startswith(b"[")):
        raise ValueError(
            f"{path}: the entry {name} is not a vector of Kaldi: pickles, audio and other things "
            "are not opened"
        )
    try:
        array = _kaldiio().matio.read_kaldi(file)
    except Exception as error:  # kaldiio raises whatever the bytes lead to, even AssertionError
        raise ValueError(f"{path}: the entry {name} is damaged ({error}): make it again") from error
    if array.dtype.kind != "f":
        raise ValueError(f"{path}: the entry {name} holds {array.dtype}; expected floats")
    return array


def _kaldiio() -> ModuleType:
    """The library kaldiio, which not everybody needs."""
    try:
        import kaldiio
    except ImportError as error:
        raise ValueError(".ark and .scp need kaldiio: pip install kaldiio") from error
    return kaldiio
