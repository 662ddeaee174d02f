"""Embeddings on disk: .npz, .safetensors, or the .ark and .scp of Kaldi; nothing is executed."""

import functools
import hashlib
import io
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from simple_spk.evaluation.kaldi_files import check_names, read_vectors, write_vectors
from simple_spk.io.atomic_file import atomic_write, write_text


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
                f"{source}: found {len(self.ids)} ids and an array {self.matrix.shape}; expected "
                "n ids and an array (n, dim)"
            )
        if self.matrix.dtype.kind != "f" or not np.isfinite(self.matrix).all():
            raise ValueError(
                f"{source}: some embeddings hold values that are not numbers: make them again"
            )
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

    def of(self, names: Sequence[str], source: Path | None = None) -> NDArray[np.float32]:
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
    """Raise if embeddings of these names could not be written to a file of this name."""
    if path.suffix == ".scp":
        raise ValueError(f"{path}: name the .ark instead; its .scp is written beside it")
    if path.suffix == ".ark":
        check_names(path, ids)
    if path.suffix == ".safetensors":
        broken = [name for name in ids if "\n" in name]
        if broken:
            raise ValueError(f"{path}: the id {broken[0]!r} has a line break: rename it")


def write_embeddings(
    path: str | Path,
    ids: Sequence[str],
    embeddings: NDArray[np.float32],
    origin: str | None = None,
) -> None:
    """Write ids and embeddings (n, dim) as the name ends; a file that exists is whole.

    ``.ark`` for Kaldi, with an .scp beside it; ``.safetensors``, and anything else as .npz, with
    the arrays ``ids`` and ``embeddings`` (in safetensors, ids are bytes of UTF-8, one id a line).
    ``origin`` tells which model made them; Kaldi has no place for it.
    """
    path = Path(path)
    check_format(path, ids)
    named = Embeddings(list(ids), np.ascontiguousarray(embeddings), path)
    if path.suffix == ".ark":
        write_vectors(path, named.ids, named.matrix)
        return
    with atomic_write(path) as partial:
        if path.suffix == ".safetensors":
            lines = np.frombuffer("\n".join(named.ids).encode(), dtype=np.uint8)
            metadata = None if origin is None else {"origin": origin}
            save_file({"ids": lines, "embeddings": named.matrix}, partial, metadata)
        else:
            with partial.open("wb") as file:
                names = np.array(named.ids, dtype=np.str_)
                np.savez(file, ids=names, embeddings=named.matrix, origin=np.array(origin or ""))


def read_embeddings(path: str | Path) -> Embeddings:
    """The embeddings of an .npz, .safetensors, .ark or .scp file, as its name ends."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no embeddings at {path}: make them with simple-spk embed")
    ids: list[str]
    matrix: NDArray[np.generic]
    origin = None
    if path.suffix in (".ark", ".scp"):
        ids, matrix = read_vectors(path)
    elif path.suffix == ".safetensors":
        ids, matrix, origin = _read_safetensors(path)
    else:
        ids, matrix, origin = _read_npz(path)
    if matrix.dtype.kind != "f":
        raise ValueError(f"{path}: embeddings are of type {matrix.dtype}; expected floats")
    return Embeddings(ids, matrix.astype(np.float32, copy=False), path, origin)


def _read_npz(path: Path) -> tuple[list[str], NDArray[np.generic], str | None]:
    """The ids, embeddings (n, dim) and origin in an .npz file without pickles."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            origin = str(arrays["origin"]) if "origin" in arrays else ""
            ids = arrays["ids"]
            names = np.char.decode(ids, "utf-8") if ids.dtype.kind == "S" else ids
            return names.astype(np.str_).ravel().tolist(), arrays["embeddings"], origin or None
    except Exception as error:  # numpy and zipfile raise whatever damaged bytes lead to
        raise ValueError(
            f"{path} is not an .npz with the arrays ids and embeddings ({error}): make it again"
        ) from error


def _read_safetensors(path: Path) -> tuple[list[str], NDArray[np.generic], str | None]:
    """The ids, embeddings (n, dim) and origin in a safetensors file."""
    try:
        with safe_open(path, framework="numpy") as file:
            ids = file.get_tensor("ids").tobytes().decode().split("\n")
            return ids, file.get_tensor("embeddings"), (file.metadata() or {}).get("origin")
    # TypeError, AttributeError: kinds of numbers that numpy does not know
    except (SafetensorError, KeyError, ValueError, OSError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a .safetensors with the arrays ids and embeddings ({error}): make it "
            "again"
        ) from error


PLAN = "plan.txt"


class EmbeddingParts:
    """The parts (index, embedding) of the embeddings of a list of recordings."""

    def __init__(
        self, output: Path, fingerprint: str, ids: Sequence[str], paths: Sequence[Path]
    ) -> None:
        self.folder = output.with_name(output.name + ".parts")
        self.paths = paths
        names = (f"{name}\n{path}" for name, path in zip(ids, paths, strict=True))
        listed = hashlib.sha256("\n".join(names).encode(errors="surrogateescape"))
        self.plan = f"model {fingerprint}\nrecordings {listed.hexdigest()}\n"

    def begin(self) -> bool:
        """Make the folder ready; False if it held parts of something else, which are gone now."""
        plan = self.folder / PLAN
        is_ours = plan.is_file() and plan.read_text(encoding="utf-8") == self.plan
        was_other = self.folder.exists() and not is_ours
        if was_other:
            if not plan.is_file() and any(p.suffix != ".partial" for p in self.folder.iterdir()):
                raise ValueError(
                    f"{self.folder}, where parts are kept, holds something else: move it away, or "
                    "name another output"
                )
            shutil.rmtree(self.folder)
        if not is_ours:
            write_text(plan, self.plan)
        return not was_other

    def read(self) -> dict[int, NDArray[np.float32]]:
        """The embeddings (dim,) that are there already, by the places of their recordings."""
        found: dict[int, NDArray[np.float32]] = {}
        for path in sorted(self.folder.glob("*.npz")):
            content = path.read_bytes()  # that nobody may read it is not its fault
            try:
                with np.load(io.BytesIO(content), allow_pickle=False) as part:
                    indexes, stamps, rows = (part[k] for k in ("indexes", "stamps", "embeddings"))
                    for index, stamp, row in zip(indexes.tolist(), stamps, rows, strict=True):
                        if tuple(stamp.tolist()) == self._stamp(index):
                            found[index] = row
            except Exception as error:  # numpy raises whatever damaged bytes lead to
                raise ValueError(f"{path} is damaged ({error}): delete it") from error
        return found

    def write(self, embeddings: dict[int, NDArray[np.float32]]) -> None:
        """Keep some more embeddings, in a part of their own: no index is in two that are valid."""
        indexes = list(embeddings)
        path = self.folder / f"{min(indexes)}-{uuid.uuid4().hex}.npz"
        with atomic_write(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                indexes=np.array(indexes, np.int64),
                stamps=np.array([self._stamp(index) for index in indexes], np.int64),
                embeddings=np.stack(list(embeddings.values())),
            )

    def remove(self) -> None:
        """Forget all parts."""
        shutil.rmtree(self.folder)

    def _stamp(self, index: int) -> tuple[int, int]:
        """What tells whether a recording has changed: its size and its time."""
        try:
            state = self.paths[index].stat()
        except OSError:
            return (-1, -1)
        return state.st_size, state.st_mtime_ns
