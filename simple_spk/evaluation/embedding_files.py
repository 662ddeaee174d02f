"""Embeddings on disk: .npz, .safetensors, .parquet or Kaldi's .ark and .scp; nothing is executed.

A folder of Parquet parts, as the shards of ``simple-spk embed`` write it, is read as one file.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from simple_spk.io import parquet_parts
from simple_spk.io.array_file import open_safetensors, read_arrays
from simple_spk.io.atomic_file import atomic_write
from simple_spk.io.input_file import file_size

PARQUET = parquet_parts.SUFFIX
FORMATS = (".npz", ".safetensors", ".ark", PARQUET)


@dataclass(frozen=True, eq=False)
class Embeddings:
    """n embeddings as one matrix, and whose each row is."""

    ids: list[str]  # (n,), distinct
    matrix: NDArray[np.float32]  # (n, dim)
    path: Path | None = None
    origin: str | None = None  # the model that made them, if the file says so

    def __post_init__(self) -> None:
        source = "embeddings" if self.path is None else self.path
        if self.matrix.ndim != 2 or len(self.ids) != len(self.matrix):
            raise ValueError(
                f"{source}: {len(self.ids)} ids, but an array {self.matrix.shape}, not (ids, dim)"
            )
        if self.matrix.dtype.kind != "f" or not np.isfinite(self.matrix).all():
            raise ValueError(f"{source}: some embeddings are not numbers: make them again")
        if len(self.row_of_id) < len(self.ids):
            twice = next(name for row, name in enumerate(self.ids) if self.row_of_id[name] != row)
            raise ValueError(f"{source}: the id {twice} stands for several embeddings")

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def row_of_id(self) -> dict[str, int]:
        """From an id to its row."""
        return {name: row for row, name in enumerate(self.ids)}

    def missing(self, names: Sequence[str]) -> list[str]:
        """The names that have no embedding here."""
        return [name for name in names if name not in self.row_of_id]

    def of(self, names: Sequence[str], source: Path | str | None = None) -> NDArray[np.float32]:
        """The embeddings (names, dim) of ids, in their order; ``source`` is where they stand."""
        absent = self.missing(names)
        if absent:
            raise ValueError(
                f"{len(absent)} of {len(names)} recordings of {source or 'a list'} are not in "
                f"{self.path} (first: {', '.join(absent[:3])}): embed them, or correct the list"
            )
        rows = map(self.row_of_id.__getitem__, names)
        return self.matrix[np.fromiter(rows, dtype=np.int64, count=len(names))]


def check_format(path: Path, ids: Sequence[str]) -> None:
    """Raise if the format that the suffix names cannot store these ids."""
    if path.suffix not in FORMATS:
        what = ".npz, .safetensors, .parquet or .ark (with an .scp beside it)"
        raise ValueError(f"{path}: expected a name that ends in {what}")
    if path.suffix == PARQUET:
        parquet_parts.check_texts(path, ids)
    if path.suffix == ".ark":
        from simple_spk.data.kaldi_files import check_names  # rarely needed

        check_names(path, ids)
    for name in ids if path.suffix == ".safetensors" else ():
        if "\n" in name:
            raise ValueError(f"{path}: the id {name!r} has a line break: rename it")


def write_embeddings(
    path: str | Path,
    ids: Sequence[str],
    embeddings: NDArray[np.float32],
    origin: str | None = None,
    files: Sequence[str] = (),
    stamp: str | None = None,
) -> None:
    """Write ids and embeddings (n, dim) in the format of the suffix, atomically.

    ``.ark`` for Kaldi, with an .scp beside it; ``.safetensors`` and ``.npz`` with the arrays
    ``ids`` and ``embeddings`` (in safetensors, ids are bytes of UTF-8, one id a line).
    ``.parquet`` with the columns id, embedding, length (the Euclidean norm), model (``origin``) and
    path (``files``, n of them); ``stamp`` tells what it was made of. ``origin`` names the model
    that made them; Kaldi files cannot store it.
    """
    path = Path(path)
    check_format(path, ids)
    named = Embeddings(list(ids), np.ascontiguousarray(embeddings), path)
    if path.suffix == ".ark":
        from simple_spk.data.kaldi_files import write_vectors

        write_vectors(path, named.ids, named.matrix)
        return
    if path.suffix == PARQUET:
        parquet_parts.check_texts(path, files)
        columns: dict[str, Any] = {"length": np.linalg.norm(named.matrix, axis=1)}
        columns |= {"model": [origin] * len(ids)} if origin is not None else {}
        columns |= {"path": list(files)} if files else {}
        parquet_parts.write_vectors(path, named.ids, named.matrix, columns, stamp)
        return
    with atomic_write(path) as partial:
        if path.suffix == ".safetensors":
            text = "\n".join(named.ids).encode(errors="surrogateescape")  # names of files
            lines = np.frombuffer(text, dtype=np.uint8)
            metadata = None if origin is None else {"origin": origin}
            save_file({"ids": lines, "embeddings": named.matrix}, partial, metadata)
        else:
            with partial.open("wb") as file:
                names = np.array(named.ids, dtype=np.str_)
                np.savez(file, ids=names, embeddings=named.matrix, origin=np.array(origin or ""))


def read_embeddings(path: str | Path, names: Sequence[str] | None = None) -> Embeddings:
    """The embeddings of an .npz, .safetensors, .parquet, .ark or .scp file, or a folder of parts.

    ``names`` are the ids that the caller needs: of Parquet, no others are kept in memory.
    """
    path = Path(path)
    if path.suffix == PARQUET or path.is_dir():
        ids, vectors, origin = parquet_parts.read_vectors(path, names)
        return Embeddings(ids, vectors, path, origin)
    if not file_size(path, "embeddings", "make them with simple-spk embed"):
        raise ValueError(f"{path} is empty: make it again")
    if path.suffix in (".ark", ".scp"):
        from simple_spk.data.kaldi_files import read_vectors

        return Embeddings(*read_vectors(path), path)
    is_safe = path.suffix == ".safetensors"
    try:
        ids, matrix, origin = (_read_safetensors if is_safe else _read_npz)(path)
    # numpy, zipfile and safetensors raise many kinds of errors on damaged bytes
    except Exception as error:
        raise ValueError(
            f"{path} is not a {'.safetensors' if is_safe else '.npz'} file with the arrays ids and "
            f"embeddings ({error}): make it again"
        ) from error
    if matrix.dtype.kind != "f":
        raise ValueError(f"{path}: embeddings are of type {matrix.dtype}; expected floats")
    return Embeddings(ids, matrix.astype(np.float32, copy=False), path, origin)


def _read_npz(path: Path) -> tuple[list[str], NDArray[np.generic], str | None]:
    """The ids, embeddings (n, dim) and origin of an .npz file without pickles."""
    arrays = read_arrays(path, ("ids", "embeddings"), ("origin",))
    ids, matrix = arrays["ids"], arrays["embeddings"]
    if ids.shape != matrix.shape[:1] or ids.dtype.kind not in "SU":
        raise ValueError(f"ids are {ids.shape} of {ids.dtype}, embeddings {matrix.shape}")
    origin = str(arrays["origin"]) if "origin" in arrays else ""
    names = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
    return names.tolist(), matrix, origin or None


def _read_safetensors(path: Path) -> tuple[list[str], NDArray[np.generic], str | None]:
    """The ids, embeddings (n, dim) and origin of a safetensors file."""
    with open_safetensors(path, "embeddings", "make it again") as file:
        lines, matrix = file.get_tensor("ids").tobytes(), file.get_tensor("embeddings")
        if matrix.ndim != 2 or lines.count(b"\n") + 1 != len(matrix):
            raise ValueError(f"it has {lines.count(0x0A) + 1} ids, and embeddings {matrix.shape}")
        ids = lines.decode(errors="surrogateescape").split("\n")
        return ids, matrix, (file.metadata() or {}).get("origin")
