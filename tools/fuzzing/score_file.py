"""Score files of all layouts, plain and gzipped, with and without a trial list."""

import gzip
import random
from pathlib import Path

import numpy as np

from simple_spk.data.trials import Trials
from simple_spk.evaluation.score_files import SCORE_FORMATS, read_scores, write_scores
from tools.fuzzing.trial_list import PAIRS, damaged_text


def _trials() -> Trials:
    """The scored trials."""
    ids = sorted({name for a, b, _ in PAIRS for name in (a, b)})
    enroll = np.array([ids.index(a) for a, _, _ in PAIRS], np.int32)
    test = np.array([ids.index(b) for _, b, _ in PAIRS], np.int32)
    return Trials(ids, enroll, test, np.array([same for *_, same in PAIRS]), Path("list"))


def write_originals(folder: Path) -> None:
    """The same scores in all layouts."""
    trials, scores = _trials(), np.random.default_rng(0).standard_normal(len(PAIRS))
    for layout in SCORE_FORMATS:
        write_scores(folder / f"{layout}.txt", trials, scores, layout)
    (folder / "bare.txt").write_text("".join(f"{score}\n" for score in scores))
    text = (folder / "wespeaker.txt").read_bytes()
    (folder / "packed.txt.gz").write_bytes(gzip.compress(text, mtime=0))


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged score file."""
    return damaged_text(originals, place, dice)


def read(path: Path) -> None:
    """Read the scores of a list, and then those of any."""
    for trials in (_trials(), None):
        try:
            found, scores = read_scores(path, trials)
            assert np.isfinite(scores).all() and len(found) == len(scores)
        except ValueError:
            if trials is None:
                raise
