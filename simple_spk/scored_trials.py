"""A trial list with its scores and where they came from: what metrics, reports and files are of."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simple_spk.trials import Trials


@dataclass(frozen=True, eq=False)
class ScoredTrials:
    """Scores (n,) of n trials, in list order, and their origin in words."""

    trials: Trials
    scores: NDArray[np.floating]
    name: str  # of the list: "Vox1-O (cleaned)" if it is a known one, else its file name
    model: str | None = None  # the model folder, or whatever made the scores
    similarity: str | None = None  # in words, such as "generalized inner product, b_theta 0.3"
    threshold: float | None = None  # the model's own decision threshold, SimPLE's -b
