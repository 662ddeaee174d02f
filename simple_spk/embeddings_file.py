"""Embeddings on disk: an .npz with ids (n strings) and embeddings (n, dim)."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def write_embeddings(path: str | Path, ids: Sequence[str], embeddings: NDArray[np.float32]) -> None:
    """Write ids and embeddings (n, dim); a file that exists is whole."""
    assert len(ids) == len(embeddings)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez(file, ids=np.array(ids, dtype=np.str_), embeddings=embeddings)
    partial.rename(path)


def read_embeddings(path: str | Path) -> dict[str, NDArray[np.float32]]:
    """Embeddings (dim,) by id; nothing in the file is executed (no pickles)."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no embeddings at {path}: make them with simple-spk embed")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            ids, embeddings = arrays["ids"], arrays["embeddings"]
    except (ValueError, KeyError, OSError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not an .npz with the arrays ids and embeddings ({error}): make it again"
        ) from error
    if embeddings.ndim != 2 or ids.shape != embeddings.shape[:1]:
        raise ValueError(
            f"{path}: ids {ids.shape} and embeddings {embeddings.shape} must be (n,) and (n, dim)"
        )
    if embeddings.dtype.kind != "f" or not np.isfinite(embeddings).all():
        raise ValueError(f"{path}: some embeddings hold values that are not numbers")
    if len(np.unique(ids)) < len(ids):
        raise ValueError(f"{path}: some ids stand for several embeddings")
    return dict(zip(ids.tolist(), embeddings.astype(np.float32), strict=True))
