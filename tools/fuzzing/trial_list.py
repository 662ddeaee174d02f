"""Trial lists, plain and gzipped."""

import gzip
import random
from pathlib import Path

from simple_spk.data.trials import read_trials, speakers_of_recordings
from tools.fuzzing.mutations import BYTE_DAMAGES, TEXT_DAMAGES, damaged, write_damaged

PAIRS = [
    (f"s{i % 4}/{i}.wav", f"s{j % 4}/{j}.wav", i % 4 == j % 4)
    for i in range(5)
    for j in range(9, 12)
]


def write_originals(folder: Path) -> None:
    """A list in all formats."""
    kaldi = [f"{a} {b} {'target' if same else 'nontarget'}\n" for a, b, same in PAIRS]
    (folder / "kaldi.txt").write_text("".join(kaldi))
    (folder / "voxceleb.txt").write_text("".join(f"{int(s)} {a} {b}\n" for a, b, s in PAIRS))
    (folder / "bare.txt").write_text("".join(f"{a} {b}\n" for a, b, _ in PAIRS))
    (folder / "packed.txt.gz").write_bytes(gzip.compress("".join(kaldi).encode(), mtime=0))


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged list."""
    return damaged_text(originals, place, dice)


def damaged_text(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged text; gzipped ones are damaged before or after they are packed."""
    path = write_damaged(originals, place, dice, (*BYTE_DAMAGES, *TEXT_DAMAGES * 3))
    if path.suffix == ".gz" and dice.random() < 0.7:
        text = gzip.decompress((originals / "packed.txt.gz").read_bytes())
        path.write_bytes(gzip.compress(damaged(text, dice, TEXT_DAMAGES), mtime=0))
    return path


def read(path: Path) -> None:
    """Read the trials, and find out whose recordings they compare."""
    trials = read_trials(path)
    if trials.is_target is not None:
        assert len(speakers_of_recordings(trials)) == len(trials.ids)
