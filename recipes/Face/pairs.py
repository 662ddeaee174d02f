"""Lists of face pairs: the plain form with folds, and the forms in which others publish them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipes.Face.alignment import without_suffix
from simple_spk.corpora.trial_lists import make_trials, plain_id
from simple_spk.data.text_table import misfit, open_text, read_fields
from simple_spk.data.trials import Trials
from simple_spk.io.atomic_file import atomic_write

LAYOUT = "0|1 image image fold"
FOLDS = 10  # of all published sets
STYLES = "LFW's pairs.txt, CALFW's and CPLFW's 'image number' lines, or '0|1 image image' lines"


@dataclass(frozen=True, eq=False)
class FacePairs:
    """n pairs of images as trials, and the fold of each."""

    trials: Trials
    folds: NDArray[np.int64]  # (n,), from 1

    @property
    def is_target(self) -> NDArray[np.bool_]:
        """Which pairs (n,) are of one person."""
        assert self.trials.is_target is not None
        return self.trials.is_target


def read_face_pairs(path: str | Path) -> FacePairs:
    """The pairs of a text file of lines ``label image_a image_b fold``; label 1: one person.

    Unlike a trial of speakers, a pair may occur twice: published lists have such pairs.
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


class PairList(NamedTuple):
    """n pairs: the names of their images, which pairs (n,) are of one person, and the folds (n,).

    Folds are numbered from 1: thresholds are chosen on nine folds and tested on the tenth.
    """

    first: list[str]
    second: list[str]
    is_same: NDArray[np.bool_]
    folds: NDArray[np.int64]


def even_folds(is_same: ArrayLike, count: int = FOLDS) -> NDArray[np.int64]:
    """The fold (n,) of each pair: the first tenth of the pairs of each kind, the second, ...

    For pairs in the order of their folds, as in published sets, these are those folds.

    >>> even_folds([True, True, False, False], count=2).tolist()
    [1, 2, 1, 2]
    """
    is_same = np.asarray(is_same, dtype=np.bool_)
    folds = np.empty(len(is_same), dtype=np.int64)
    for kind in (True, False):
        rows = np.flatnonzero(is_same == kind)
        if len(rows) < count:
            what = "one person" if kind else "two persons"
            raise ValueError(f"{len(rows)} pairs of {what} cannot make {count} folds: add more")
        for number, part in enumerate(np.array_split(rows, count), start=1):
            folds[part] = number
    return folds


def read_pair_list(path: str | Path) -> PairList:
    """The pairs of a published list, with image names without suffixes such as .jpg.

    Supported are LFW's pairs.txt (the numbers of folds and pairs in line 1; then names of persons
    and numbers of images), the lists of CALFW and CPLFW (two lines per pair; the fold of a positive
    pair, or 1, and 0 for a negative one), and lines of a label and two images, in either order.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no list of pairs at {path}: correct the path")
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8-sig").splitlines()]
        lines = [fields for fields in lines if fields]
        if not lines:
            raise ValueError("it is empty")
        if len(lines[0]) <= 2 and all(field.isdigit() for field in lines[0]):
            return _lfw_pairs(lines)
        if len(lines[0]) == 2:
            return _two_line_pairs(lines)
        return _labeled_pairs(lines)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; expected {STYLES}") from error


def _lfw_pairs(lines: Sequence[Sequence[str]]) -> PairList:
    """The pairs of LFW's list: in each fold some pairs of one person, then as many of two."""
    folds, per_kind = (1, *map(int, lines[0]))[-2:]
    if folds < 1 or per_kind < 1 or len(lines) - 1 != 2 * folds * per_kind:
        raise ValueError(
            f"line 1 announces {2 * folds * per_kind} pairs, and {len(lines) - 1} follow"
        )
    first, second, is_same = [], [], []
    for number, fields in enumerate(lines[1:]):
        same = number // per_kind % 2 == 0
        if len(fields) != (3 if same else 4):
            raise ValueError(f"line {number + 2} is not a pair of {'one' if same else 'two'}")
        one, other = (fields[0], fields[1]), (fields[-2] if not same else fields[0], fields[-1])
        first.append(_lfw_name(*one))
        second.append(_lfw_name(*other))
        is_same.append(same)
    if folds == 1:
        return PairList(first, second, np.array(is_same), even_folds(is_same))
    numbers = 1 + np.arange(len(first)) // (2 * per_kind)
    return PairList(first, second, np.array(is_same), numbers)


def _lfw_name(person: str, number: str) -> str:
    """The path of an image of LFW."""
    return f"{person}/{person}_{int(number):04d}"


def _two_line_pairs(lines: Sequence[Sequence[str]]) -> PairList:
    """The pairs of a list with a line for each image."""
    if len(lines) % 2 or not all(len(fields) == 2 and fields[1].isdigit() for fields in lines):
        raise ValueError("not every pair has two lines of an image and a number")
    for number, (one, other) in enumerate(zip(lines[::2], lines[1::2], strict=True)):
        if one[1] != other[1]:
            raise ValueError(f"lines {2 * number + 1} and {2 * number + 2} disagree on a pair")
    names = [without_suffix(name) for name, _ in lines]
    numbers = np.array([int(number) for _, number in lines[::2]])
    # If positives have fold numbers, these are even folds; negatives never have any.
    return PairList(names[::2], names[1::2], numbers > 0, even_folds(numbers > 0))


def _labeled_pairs(lines: Sequence[Sequence[str]]) -> PairList:
    """The pairs of a list with a label and two images in each line."""
    label = 0 if lines[0][0] in ("0", "1") else -1
    for number, fields in enumerate(lines, start=1):
        if len(fields) != 3 or fields[label] not in ("0", "1"):
            raise ValueError(f"line {number} is not a label and two images")
    is_same = np.array([fields[label] == "1" for fields in lines])
    places = (1, 2) if label == 0 else (0, 1)
    first, second = ([without_suffix(fields[place]) for fields in lines] for place in places)
    return PairList(first, second, is_same, even_folds(is_same))


def make_pair_list(
    ids: Sequence[str], persons: Sequence[str], maximum: int = 6000, seed: int = 0
) -> PairList:
    """Equally many pairs of one person and of two, at most ``maximum`` in total, in ten folds."""
    trials = make_trials(ids, persons, maximum, seed=seed)
    assert trials.is_target is not None
    first, second = ([trials.ids[row] for row in side] for side in (trials.enroll, trials.test))
    return PairList(first, second, trials.is_target, even_folds(trials.is_target))


def write_pair_list(path: str | Path, pairs: PairList) -> None:
    """Write lines ``label image_a image_b fold``, sorted by fold."""
    with atomic_write(path) as partial, partial.open("w", encoding="utf-8") as file:
        for row in np.argsort(pairs.folds, kind="stable"):
            names = f"{plain_id(pairs.first[row])} {plain_id(pairs.second[row])}"
            file.write(f"{int(pairs.is_same[row])} {names} {pairs.folds[row]}\n")
