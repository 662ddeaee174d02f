"""Embeddings in .npz and .safetensors files."""

import io
import random
import zipfile
from pathlib import Path

import numpy as np

from simple_spk.evaluation.embedding_files import read_embeddings, write_embeddings
from tools.fuzzing.mutations import BYTE_DAMAGES, ODD_NUMBERS, Damage, damaged, odd_field
from tools.fuzzing.voices import change_header

IDS = ["a/1.wav", "a/2.wav", "b ü"]


def write_originals(folder: Path) -> None:
    """The same embeddings in several ways."""
    matrix = np.random.default_rng(0).standard_normal((len(IDS), 192), np.float32)
    write_embeddings(folder / "plain.npz", IDS, matrix, "origin")
    write_embeddings(folder / "safe.safetensors", IDS, matrix, "origin")
    names = np.array([name.encode() for name in IDS])
    np.savez_compressed(folder / "packed.npz", ids=names, embeddings=matrix.astype(np.float64))


def unzipped(content: bytes) -> dict[str, bytes]:
    """The members of an archive by name; none if an earlier damage has made it unreadable."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except Exception:
        return {}


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of members, with the right checksums."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return packed.getvalue()


def change_member(content: bytes, dice: random.Random) -> bytes:
    """Damage an array within the archive, whose checksums are right again."""
    members = unzipped(content)
    if not members:
        return content
    name = dice.choice(list(members))
    damages = (odd_field, odd_field, change_shape, *BYTE_DAMAGES)
    if len(members[name]) > 20:  # an earlier damage may have emptied it
        members[name] = dice.choice(damages)(members[name], dice)
    if dice.random() < 0.1 and len(members) > 1:
        members[dice.choice(sorted({*members} - {name}))] = members.pop(name)
    methods = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2
    return zipped(members, dice.choice(methods))


def change_shape(content: bytes, dice: random.Random) -> bytes:
    """An array of the same bytes with another shape or type in its header."""
    shape = tuple(dice.choice((*ODD_NUMBERS, 3, 8)) for _ in range(dice.randrange(4)))
    types = ("<f4", "<f8", "<f2", "|O", "<U0", "<U1", "<U7", "|S0", "<i8", "|V8", "<c16", "<M8[s]")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": dice.choice(types), "fortran_order": False, "shape": shape}
    )
    return header.getvalue() + content[128:]


DAMAGES: tuple[Damage, ...] = (*BYTE_DAMAGES, *[change_member] * 4)


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged file of embeddings."""
    original = dice.choice(sorted(originals.iterdir()))
    damages = (*BYTE_DAMAGES, change_header) if original.suffix == ".safetensors" else DAMAGES
    path = place.with_suffix(original.suffix)
    path.write_bytes(damaged(original.read_bytes(), dice, damages))
    return path


def read(path: Path) -> None:
    """Read embeddings, and look some up."""
    embeddings = read_embeddings(path)
    assert embeddings.of(embeddings.ids).shape == embeddings.matrix.shape
