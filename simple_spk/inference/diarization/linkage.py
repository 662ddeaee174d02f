"""Average linkage of embeddings: which of them are of one speaker, without knowing any speaker.

Two groups are as alike as their pairs on average; the most alike are joined first. Up to MOST_EXACT
embeddings all pairs are compared, and the result is that of scipy. Of more, the pairs that are
joined are found through the nearest neighbors (``neighbor_graph``).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy

from simple_spk.evaluation.clustering import MOST_CLUSTERED, dissimilarities
from simple_spk.inference.diarization.likeness import Items, Likeness, Merges, Values
from simple_spk.inference.diarization.neighbor_graph import graph_merges

MOST_EXACT = MOST_CLUSTERED  # two numbers of 8 bytes for each pair: 0.8 gigabytes


def linked(
    items: Items, likeness: Likeness, below_zero: bool = True, most_exact: int = MOST_EXACT
) -> Merges:
    """The merges of items by average linkage; those below zero may be left out.

    With more than ``most_exact`` items, a merge need not be the best of all at that moment, and the
    quality measures of a group are the means of its items'. But as long as two groups are likelier
    of one speaker than of two, some are joined.
    """
    n = len(items)
    if n > most_exact:
        return graph_merges(items, likeness, below_zero)
    if n < 2:
        nothing = np.empty(0, np.int64)
        return Merges(n, nothing, nothing, np.empty(0))

    def values_of(row: int, scores: NDArray[np.float32]) -> Values:
        own, later = items.some(np.array([row])), items.some(np.arange(row + 1, n))
        return likeness.values(scores, own.measures, later.measures)

    distances, greatest = dissimilarities(likeness.sides(items.embeddings), values_of)
    tree = hierarchy.linkage(distances, "average")
    first, second = tree[:, :2].astype(np.int64).T
    return Merges(n, first, second, greatest - tree[:, 2])
