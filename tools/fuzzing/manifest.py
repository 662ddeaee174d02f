"""Manifests and other CSV tables."""

import random
from pathlib import Path

from simple_spk.data.manifest import read_manifest, write_manifest
from tools.fuzzing.mutations import BYTE_DAMAGES, TEXT_DAMAGES, write_damaged


def write_originals(folder: Path) -> None:
    """Manifests with and without quoted fields."""
    ids = [f"id{n}" for n in range(9)]
    seconds, speakers = [1.5 + n for n in range(9)], [f"s{n % 3}" for n in range(9)]
    write_manifest(folder / "plain.csv", ids, [f"{n}.wav" for n in ids], seconds, speakers)
    write_manifest(folder / "quoted.csv", ids, [f'{n},"x".wav' for n in ids], seconds, speakers)


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged manifest."""
    return write_damaged(originals, place, dice, (*BYTE_DAMAGES, *TEXT_DAMAGES * 3))


def read(path: Path) -> None:
    """Read all rows."""
    manifest = read_manifest(path)
    assert len(manifest.row_of_id) == len(manifest) == len(manifest.durations_seconds)
    assert manifest.wav(len(manifest) - 1)
