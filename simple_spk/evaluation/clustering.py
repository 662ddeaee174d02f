"""How well one threshold separates all speakers: the paper's desideratum (Eq. 1), and clustering.

Eq. 1 requires the least similarity within a speaker to exceed the greatest between speakers. Where
it holds, any hierarchical clustering that is cut between the two recovers the speakers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy

from simple_spk.evaluation.scoring import AnySimilarity, as_array, queries_and_keys

LINKAGES = ("average", "complete", "single")
# Clustering keeps two numbers of 8 bytes for each pair: 0.8 gigabytes for this many recordings.
MOST_CLUSTERED = 10_000
PAIRS_AT_ONCE = 2**24
# Queries and keys, both (n, dim + extra): the similarity of i and j is queries[i] @ keys[j].
Sides = tuple[NDArray[np.float32], NDArray[np.float32]]
# From a row and its scores with all later rows to the values by which they are joined.
PairValues = Callable[[int, NDArray[np.float32]], NDArray[np.floating]]


def cluster_summary(
    names: Sequence[str],
    embeddings: NDArray[np.float32],
    speakers: NDArray[np.int64],
    similarity: AnySimilarity,
    threshold: float | None = None,
    most_clustered: int = MOST_CLUSTERED,
) -> dict[str, Any]:
    """How well recordings with embeddings (n, dim) and speakers (n,) separate, as plain data.

    ``threshold`` is the model's own, -b, or None. All pairs are compared; of more than
    ``most_clustered`` recordings, only those of some random speakers are clustered.
    """
    counts = np.unique(speakers, return_counts=True)[1]
    if len(counts) < 2 or counts.max() < 2:
        raise ValueError(
            f"found {len(speakers)} recordings of {len(counts)} speakers; clusters need two "
            f"speakers, and one with two recordings"
        )
    queries, keys = map(as_array, queries_and_keys(embeddings, similarity))
    chosen = _whole_speakers(speakers, most_clustered)
    pairs, greatest = dissimilarities((queries[chosen], keys[chosen]))
    labels = speakers[chosen]
    return {
        "recordings": len(speakers),
        "speakers": len(counts),
        **_extremes(names, (queries, keys), speakers),
        "clustered_recordings": len(chosen),
        "clustered_speakers": len(np.unique(labels)),
        "linkage": {
            method: _clustering(hierarchy.linkage(pairs, method), greatest, labels, threshold)
            for method in LINKAGES
        },
    }


def _extremes(names: Sequence[str], sides: Sides, speakers: NDArray[np.int64]) -> dict[str, Any]:
    """The least similarity within speakers, the greatest between them, and the pairs beyond."""
    lowest_within, lowest_between = [], []  # of each block; those between with the other sign
    for start, block, same, other in _pairs(sides, speakers):
        lowest_within.append(_lowest(np.where(same, block, np.inf), start))
        lowest_between.append(_lowest(np.where(other, -block, np.inf), start))
    (least, *least_pair), (greatest, *greatest_pair) = min(lowest_within), min(lowest_between)
    greatest = -greatest
    within = between = below = above = 0
    for _, block, same, other in _pairs(sides, speakers):
        within += int(np.count_nonzero(same))
        between += int(np.count_nonzero(other))
        below += int(np.count_nonzero(same & (block <= greatest)))
        above += int(np.count_nonzero(other & (block >= least)))
    return {
        "smallest_within": least,
        "smallest_within_pair": [names[row] for row in least_pair],
        "largest_between": greatest,
        "largest_between_pair": [names[row] for row in greatest_pair],
        "gap": least - greatest,
        "share_within_below_largest_between": below / within,
        "share_between_above_smallest_within": above / between,
    }


def _lowest(values: NDArray[np.float32], start: int) -> tuple[float, int, int]:
    """The lowest value of a block, with its row and column in the whole."""
    row, column = np.unravel_index(int(values.argmin()), values.shape)
    return float(values[row, column]), start + int(row), start + int(column)


def _pairs(
    sides: Sides, speakers: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]]:
    """Blocks of similarities, with masks of the pairs (each once) of one and of two speakers."""
    for start, block in _blocks(sides):
        rows = np.arange(start, start + len(block))
        later = rows[:, None] < np.arange(start, len(speakers))
        same = speakers[rows][:, None] == speakers[start:]
        yield start, block, same & later, ~same & later


def _whole_speakers(speakers: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The rows, rising, of all speakers, or of random ones with at most ``most`` rows together."""
    if len(speakers) <= most:
        return np.arange(len(speakers))
    numbers, inverse, counts = np.unique(speakers, return_inverse=True, return_counts=True)
    order = np.random.default_rng(0).permutation(len(numbers))
    fitting = order[np.cumsum(counts[order]) <= most]
    if len(fitting) < 2:
        raise ValueError(f"two speakers have over {most} recordings, which is too many to cluster")
    return np.flatnonzero(np.isin(inverse, fitting))


def _blocks(sides: Sides) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Blocks of similarities (rows, n - start), each with its first row and column, start."""
    queries, keys = sides
    size = max(1, PAIRS_AT_ONCE // len(keys))
    for start in range(0, len(keys), size):
        yield start, queries[start : start + size] @ keys[start:].T


def dissimilarities(
    sides: Sides, values_of: PairValues | None = None
) -> tuple[NDArray[np.float64], float]:
    """The greatest similarity minus those of all pairs (n (n - 1) / 2,), and that greatest one.

    They are in scipy's order: i < j, row by row. Similarities are scores, or what ``values_of``
    makes of them.
    """
    n = len(sides[0])
    values = np.empty(n * (n - 1) // 2)
    filled = 0
    for start, block in _blocks(sides):
        for row, similarities in enumerate(block):
            later = similarities[row + 1 :]
            if values_of is not None and len(later):
                later = values_of(start + row, later)
            values[filled : filled + len(later)] = later
            filled += len(later)
    greatest = float(values.max())
    np.subtract(greatest, values, out=values)
    return values, greatest


def _clustering(
    tree: NDArray[np.float64], greatest: float, speakers: NDArray[np.int64], threshold: float | None
) -> dict[str, Any]:
    """The clusters of a tree of scipy's linkage at the own and at the best threshold."""
    heights = greatest - tree[:, 2]  # similarities at which clusters merge, falling
    indices = rand_indices(tree, speakers)
    # A threshold lies between two merges of different heights, or beyond all of them.
    possible = np.append(heights, -np.inf) < np.insert(heights, 0, np.inf)
    best = int(np.where(possible, indices, -np.inf).argmax())
    own = None if threshold is None else _cut(int((heights > threshold).sum()), threshold, indices)
    # Half way between the last merge that is made and the first that is not.
    middle = float(heights[max(0, best - 1) : best + 1].mean())
    return {"at_own_threshold": own, "at_best_threshold": _cut(best, middle, indices)}


def _cut(merges: int, threshold: float, indices: NDArray[np.float64]) -> dict[str, Any]:
    """The clusters after a number of merges."""
    return {
        "threshold": threshold,
        "clusters": len(indices) - merges,
        "adjusted_rand_index": float(indices[merges]),
    }


def rand_indices(tree: NDArray[np.float64], speakers: NDArray[np.int64]) -> NDArray[np.float64]:
    """The adjusted Rand index (n,) after 0, 1, ... n - 1 merges of a tree of scipy's linkage.

    Each merge adds to the pairs that share a cluster, and to those that share a speaker too; the
    smaller cluster is counted into the larger.
    """
    n = len(speakers)
    members: dict[int, Counter[int]] = {i: Counter([s]) for i, s in enumerate(speakers.tolist())}
    together, right = np.zeros(n), np.zeros(n)
    for number, (first, second) in enumerate(tree[:, :2].astype(np.int64).tolist()):
        large, small = members.pop(first), members.pop(second)
        if len(large) < len(small):
            large, small = small, large
        together[number + 1] = large.total() * small.total()
        right[number + 1] = sum(count * large[speaker] for speaker, count in small.items())
        large.update(small)
        members[n + number] = large
    together, right = together.cumsum(), right.cumsum()
    counts = np.unique(speakers, return_counts=True)[1]
    of_speakers, all_pairs = (counts * (counts - 1) / 2).sum(), n * (n - 1) / 2
    expected = together * of_speakers / all_pairs
    largest = (together + of_speakers) / 2
    indices = (right - expected) / np.maximum(largest - expected, 1e-300)
    return np.where(largest == expected, 1.0, indices)
