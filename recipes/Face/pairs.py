"""Lists of face pairs: which image is compared with which, and in which fold."""

import codecs
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.field_table import cut_fields, read_text, shown
from simple_spk.data.trials import Trials

LAYOUT = "0|1 image image fold"


@dataclass(frozen=True, eq=False)
class FacePairs:
    """n pairs of images as trials, and the fold that each belongs to."""

    trials: Trials
    folds: NDArray[np.int64]  # (n,), from 1

    @property
    def is_target(self) -> NDArray[np.bool_]:
        """Which pairs (n,) are of one person."""
        assert self.trials.is_target is not None
        return self.trials.is_target


def read_face_pairs(path: str | Path) -> FacePairs:
    """The pairs of a text file with a line ``label image_a image_b fold`` each, label 1: the same.

    Unlike a trial of speakers, a pair may stand there twice: published lists have such pairs.
    """
    path = Path(path)
    content = read_text(path, "list of pairs").removeprefix(codecs.BOM_UTF8).rstrip()
    table = cut_fields(content, 4) if content else None
    if table is None:
        raise ValueError(_misfit(path, content))
    is_other, is_same = table.are(0, b"0"), table.are(0, b"1")
    folds = table.numbers(3)
    if not ((is_other | is_same) & (folds >= 1) & (folds % 1 == 0)).all():
        raise ValueError(_misfit(path, content))
    ids, sides = table.index(1, 2)
    trials = Trials(ids, sides[:, 0].copy(), sides[:, 1].copy(), is_same, path)
    return FacePairs(trials, folds.astype(np.int64))


def _misfit(path: Path, content: bytes) -> str:
    """What to say about the first line that is no pair."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        fields = line.split()
        fits = len(fields) == 4 and fields[0] in (b"0", b"1")
        if not (fits and fields[3].isdigit() and int(fields[3]) > 0):
            return f"{path}, line {number}: found {shown(line)}; expected {LAYOUT!r}, folds from 1"
    raise AssertionError("called on a list whose lines are all pairs")
