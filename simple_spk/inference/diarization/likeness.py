"""What is clustered, how alike two of them are, and in which order they are joined."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.clustering import Sides
from simple_spk.evaluation.quality_measures import pair_measures, recording_measures
from simple_spk.evaluation.scoring import queries_and_keys
from simple_spk.inference.decisions import log_odds
from simple_spk.inference.model import Model

CANNOT_COUNT = (
    "the model has neither a calibration nor a threshold, so it cannot count speakers: give their "
    "number, or calibrate it"
)

Measures = dict[str, NDArray[np.float64]]  # (n,) by name
Values = NDArray[np.float64]


class Items(NamedTuple):
    """What is clustered: n windows of a recording, or n recordings."""

    embeddings: NDArray[np.float32]  # (n, dim)
    measures: Measures  # what calibrations may need to know of each

    @classmethod
    def of(
        cls,
        embeddings: NDArray[np.float32],
        seconds: NDArray[np.float64],
        sound: dict[str, NDArray[np.float64]],
        model: Model,
    ) -> "Items":
        """The items of a model's embeddings (n, dim), durations (n,) and sound measures (n,)."""
        lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1)
        measures = recording_measures(seconds, lengths, sound)
        return cls(embeddings, measures | typical(embeddings, model))

    def __len__(self) -> int:
        return len(self.embeddings)

    def some(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> "Items":
        """Some of the items."""
        return Items(self.embeddings[rows], {name: x[rows] for name, x in self.measures.items()})


def typical(embeddings: NDArray[np.float32], model: Model) -> Measures:
    """The typicality (n,) of embeddings (n, dim) by its name, if the model's calibration has it."""
    return {} if model.calibration is None else model.calibration.background_measures(embeddings)


class Likeness:
    """How much likelier one speaker is than two, from scores: above 0 for one.

    It is the natural-log likelihood ratio of a calibrated model, plus the log odds of ``prior``,
    the probability of one speaker; or else the score minus the model's own threshold. Without
    either it is the score, whose 0 means nothing.
    """

    def __init__(self, model: Model, prior: float = 0.5) -> None:
        self.model = model
        self.has_zero = model.calibration is not None or model.threshold is not None
        self.log_odds = log_odds(prior)
        if self.log_odds and model.calibration is None:
            raise ValueError("the model is not calibrated, so a prior means nothing: leave it out")

    def sides(self, embeddings: NDArray[np.float32]) -> Sides:
        """Embeddings (n, dim) as queries and keys, whose inner products are scores."""
        queries, keys = queries_and_keys(embeddings, self.model.similarity)
        return queries.cpu().numpy(), keys.cpu().numpy()

    def values(
        self, scores: NDArray[np.floating], first: Measures, second: Measures
    ) -> NDArray[np.float64]:
        """The values (n,) of scores (n,) of sides with measures (n,), or (1,) for all."""
        if self.model.calibration is None:
            return scores.astype(np.float64) - (self.model.threshold or 0.0)
        ratios = self.model.calibration.apply(scores, pair_measures(first, second))
        return ratios + self.log_odds


class Merges(NamedTuple):
    """Groups in the order in which they are joined; item i is group i, merge m makes group n + m.

    There are fewer than n - 1 if the others were not asked for.
    """

    items: int
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    values: Values  # the mean likeness of their pairs

    def above_zero(self) -> int:
        """How many merges, the first ones, are of groups that are likelier of one speaker."""
        below = np.flatnonzero(self.values < 0.0)
        return int(below[0]) if len(below) else len(self.values)

    def groups(self, count: int) -> NDArray[np.int64]:
        """The groups (n,) after the first ``count`` merges, numbered in the order of the items."""
        parent = np.arange(self.items + count)
        for number, (first, second) in enumerate(zip(self.first, self.second, strict=True)):
            if number == count:
                break
            parent[[first, second]] = self.items + number
        for node in range(len(parent) - 1, -1, -1):  # a group has a higher number than its parts
            parent[node] = parent[parent[node]]
        _, places, found = np.unique(parent[: self.items], return_index=True, return_inverse=True)
        return np.argsort(np.argsort(places))[found]

    def large_groups(self, weights: Values, least: float) -> NDArray[np.int64]:
        """How many groups weigh at least ``least`` after 0, 1, 2, ... merges of items (n,)."""
        weight = np.concatenate([weights, np.zeros(len(self.values))])
        counts = np.empty(len(self.values) + 1, np.int64)
        counts[0] = np.count_nonzero(weights >= least)
        for number, pair in enumerate(zip(self.first, self.second, strict=True)):
            parts = weight[list(pair)]
            weight[self.items + number] = parts.sum()
            joined = int(parts.sum() >= least) - int(np.count_nonzero(parts >= least))
            counts[number + 1] = counts[number] + joined
        return counts
