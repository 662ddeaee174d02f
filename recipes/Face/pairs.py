"""Lists of face pairs: which image is compared with which, and in which fold."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.text_table import misfit, open_text, read_fields
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
    with open_text(path, "list of pairs") as file:
        table = read_fields(file, path, 4, numeric=[3])
    if table is not None:
        is_other, is_same = table.equals(0, "0"), table.equals(0, "1")
        folds = table.numbers(3)
        if len(folds) and ((is_other | is_same) & (folds >= 1) & (folds % 1 == 0)).all():
            ids, (enroll, test) = table.index(1, 2)
            return FacePairs(Trials(ids, enroll, test, is_same, path), folds.astype(np.int64))
    raise misfit(path, "list of pairs", _is_pair, f"{LAYOUT!r}, folds from 1")


def _is_pair(fields: list[bytes]) -> bool:
    """Whether the fields of a line are a pair."""
    return (
        len(fields) == 4
        and fields[0] in (b"0", b"1")
        and fields[3].isdigit()
        and int(fields[3]) > 0
    )
