"""Score files: trials with their scores, as this and other toolkits write them."""

import dataclasses
import gzip
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simple_spk.data.text_table import FieldTable, misfit, open_text
from simple_spk.data.trials import (
    LineLayout,
    Trials,
    check_distinct,
    name_of,
    pair_numbers,
    read_layouts,
)
from simple_spk.evaluation.error_rates import require_all
from simple_spk.io.atomic_file import atomic_write


@dataclass(frozen=True, eq=False)
class ScoredTrials:
    """Scores (n,) of n trials, in list order, and their origin in words."""

    trials: Trials
    scores: NDArray[np.floating]
    name: str  # of the list: "Vox1-O (cleaned)" if it is a known one, else its file name
    model: str | None = None  # the model folder, or whatever made the scores
    similarity: str | None = None  # in words, such as "generalized inner product, b_theta 0.3"
    threshold: float | None = None  # the model's own decision threshold, SimPLE's -b


ScoreFormat = Literal["wespeaker", "voxceleb", "voxsrc"]
SCORE_FORMATS: tuple[ScoreFormat, ...] = get_args(ScoreFormat)

_LAYOUTS = (
    # Kaldi, WeSpeaker, ours
    LineLayout("enroll test score target|nontarget", 0, 1, 3, ("nontarget", "target"), score=2),
    LineLayout("enroll test 0|1 score", 0, 1, 2, score=3),  # SpeechBrain
    LineLayout("0|1 enroll test score", 1, 2, 0, score=3),  # a VoxCeleb list with scores behind
    LineLayout("enroll test score", 0, 1, score=2),
    LineLayout("score enroll test", 1, 2, score=0),  # VoxSRC
    LineLayout("score", score=0),
)


def read_scores(
    path: str | Path, trials: Trials | None = None
) -> tuple[Trials, NDArray[np.float64]]:
    """The trials of a score file and their scores (n,); plain or gzipped.

    The layout is recognized: one of ``_LAYOUTS``. With ``trials`` these are returned, and the
    scores in their order: the file must name the same pairs, in any order, and bare scores are
    taken line by line. Labels must agree where both have them, and are taken from the file if only
    that has some.
    """
    path = Path(path)
    with open_text(path, "score file") as file:
        layouts, table = read_layouts(file, path, "score file", _LAYOUTS, first_only=False)
    layout = layouts[0] if len(layouts) == 1 else _only_layout(path, layouts, table, trials)
    place = layout.score
    assert place is not None
    scores = table.numbers(place)
    bad = np.count_nonzero(~np.isfinite(scores))
    if bad:
        raise misfit(
            path,
            "score file",
            lambda fields: layout.fits(fields) and math.isfinite(float(fields[place])),
            f"{layout.example!r} with a finite score ({bad} of {len(scores)} lines have none): "
            "score these again",
        )
    if layout.enroll < 0:
        if trials is None:
            raise ValueError(f"{path} holds bare scores: give the trial list with it (--trials)")
        if len(trials) != len(scores):
            raise ValueError(
                f"{path} has {len(scores)} bare scores, but {trials.path} has {len(trials)} trials"
                ": expected one score per trial, in list order"
            )
        return trials, scores
    ids, (enroll, test) = table.index(layout.enroll, layout.test)
    found = Trials(ids, enroll, test, layout.is_target(table), path)
    check_distinct(found, path)
    if trials is None:
        return found, scores
    rows = _rows_of(trials, found)
    if trials.is_target is None and found.is_target is not None:
        trials = dataclasses.replace(trials, is_target=found.is_target[rows])
    return trials, scores[rows]


def write_scores(
    path: str | Path, trials: Trials, scores: ArrayLike, layout: ScoreFormat = "wespeaker"
) -> None:
    """A text file with a line per trial, in the order of the list.

    The layout is ``enroll test score [target|nontarget]`` (wespeaker), ``[0|1] enroll test score``
    (voxceleb) or ``score enroll test`` (voxsrc). Scores (n,) have as many digits as it takes to
    read back the same numbers. A path that ends in .gz is compressed; the file is written whole.
    """
    path = Path(path)
    values = np.asarray(scores)
    if values.shape != (len(trials),):
        raise ValueError(
            f"scores have shape {values.shape}; expected ({len(trials)},), one per trial"
        )
    require_all(np.isfinite(values), values, "every score must be finite")
    number = "{2:.9g}" if values.dtype == np.float32 else "{2:.17g}"
    line, words = {
        "wespeaker": ("{0} {1} " + number + "{3}\n", (" nontarget", " target")),
        "voxceleb": ("{3}{0} {1} " + number + "\n", ("0 ", "1 ")),
        "voxsrc": (number + " {0} {1}\n", ("", "")),
    }[layout]
    sides = (map(trials.ids.__getitem__, side.tolist()) for side in (trials.enroll, trials.test))
    labels: Iterable[str] = repeat("")
    if trials.is_target is not None:
        labels = map(words.__getitem__, trials.is_target.tolist())
    opener = gzip.open if path.suffix == ".gz" else open
    with (
        atomic_write(path) as partial,
        opener(partial, "wt", encoding="utf-8", newline="\n") as file,
    ):
        file.writelines(map(line.format, *sides, values.tolist(), labels))


def _only_layout(
    path: Path, layouts: list[LineLayout], table: FieldTable, trials: Trials | None
) -> LineLayout:
    """The layout of a file whose names look like numbers, as all lines or the list tell it."""
    fitting, names = [], set(() if trials is None else trials.ids)
    for layout in layouts:
        fits = layout.score is not None and not np.isnan(table.numbers(layout.score)).any()
        if fits and trials is not None and layout.enroll >= 0:
            fits = names.issuperset(table.index(layout.enroll, layout.test)[0])
        if fits:
            fitting.append(layout)
    if len(fitting) > 1:
        raise ValueError(
            f"{path}: its lines may be {fitting[0].example!r} or {fitting[1].example!r}, as "
            "their names look like numbers: give the trial list with it (--trials)"
        )
    return (fitting or layouts)[0]


def _rows_of(trials: Trials, found: Trials) -> NDArray[np.int64]:
    """The row (n,) of ``found``, a score file, for each trial of a list."""
    place = {name: number for number, name in enumerate(trials.ids)}
    numbers = np.array([place.get(name, -1) for name in found.ids], dtype=np.int64)
    enroll, test = numbers[found.enroll], numbers[found.test]
    has = np.where((enroll < 0) | (test < 0), -1, pair_numbers(enroll, test, len(trials.ids)))
    wants = pair_numbers(trials.enroll, trials.test, len(trials.ids))
    order = np.argsort(has)
    rows = order[np.minimum(np.searchsorted(has[order], wants), len(has) - 1)]
    missing = np.flatnonzero(has[rows] != wants)
    if len(missing):
        raise ValueError(
            f"{found.path} has no score for {len(missing)} of {len(trials)} trials of "
            f"{trials.path}, the first in line {missing[0] + 1}: {name_of(trials, missing[0])}: "
            "score this list, or name the list that was scored"
        )
    surplus = np.flatnonzero(np.bincount(rows, minlength=len(found)) == 0)
    if len(surplus):
        raise ValueError(
            f"{found.path}, line {surplus[0] + 1}: found a score for {name_of(found, surplus[0])}, "
            f"which is not a trial of {trials.path} ({len(surplus)} such lines): name the "
            "scored list"
        )
    if trials.is_target is not None and found.is_target is not None:
        wrong = np.flatnonzero(found.is_target[rows] != trials.is_target)
        if len(wrong):
            raise ValueError(
                f"{found.path}, line {rows[wrong[0]] + 1}: found another label of "
                f"{name_of(trials, wrong[0])} than in {trials.path}, line {wrong[0] + 1} "
                f"({len(wrong)} such lines): expected the same: correct one of them"
            )
    return rows
