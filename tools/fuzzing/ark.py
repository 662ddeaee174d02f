"""Embeddings in Kaldi's .ark files, binary and text, and .scp files."""

import random
from pathlib import Path

import numpy as np

from simple_spk.evaluation.embedding_files import read_embeddings, write_embeddings
from tools.fuzzing.mutations import BYTE_DAMAGES, TEXT_DAMAGES, damaged


def write_originals(folder: Path) -> None:
    """The same vectors as binary and as text, and a list of them."""
    ids = ["a-1", "a-2", "b"]
    matrix = np.random.default_rng(0).standard_normal((len(ids), 8), np.float32)
    write_embeddings(folder / "binary.ark", ids, matrix)
    rows = zip(ids, matrix.tolist(), strict=True)
    text = "".join(f"{name}  [ {' '.join(map(str, row))} ]\n" for name, row in rows)
    (folder / "text.ark").write_text(text)


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged file; an .scp names the sound archive."""
    original = dice.choice(sorted(originals.iterdir()))
    content = original.read_bytes()
    if original.suffix == ".scp":
        content = content.replace(b"binary.ark", bytes(originals / "binary.ark"))
    path = place.with_suffix(original.suffix)
    damages = BYTE_DAMAGES if original.name == "binary.ark" else (*BYTE_DAMAGES, *TEXT_DAMAGES * 2)
    path.write_bytes(damaged(content, dice, damages))
    return path


def read(path: Path) -> None:
    """Read the vectors."""
    try:
        assert len(read_embeddings(path))
    except ValueError as error:
        if path.suffix == ".scp" and ": the entry " in str(error):
            return  # the .scp is as it should be, but names a wrong archive, or place in it
        raise
