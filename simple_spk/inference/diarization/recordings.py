"""Recordings sorted by speaker without labels, and how sure each of them is."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.inference.diarization.likeness import CANNOT_COUNT, Items, Likeness, Values
from simple_spk.inference.diarization.linkage import linked

SCORES_AT_ONCE = 2**24  # in memory: 64 MB
LEAST_EVIDENCE = float(np.log(2.0))  # below it, there is no evidence either way


class Sorted(NamedTuple):
    """The groups of n recordings, one for each speaker, the largest first."""

    groups: NDArray[np.int64]  # (n,)
    # How much likelier each is of its group than of the likeliest other one, or of nobody else: a
    # natural-log likelihood ratio (n,). That of a recording alone is against the likeliest group.
    evidence: Values
    others: NDArray[np.int64]  # (n,), the likeliest other group; -1 if there is none


def sort_recordings(items: Items, likeness: Likeness, speakers: int | None = None) -> Sorted:
    """Groups of recordings by average linkage, cut where one speaker is as likely as two.

    Or, with a number of ``speakers``, into so many groups.
    """
    n = len(items)
    if speakers is not None and not 1 <= speakers <= n:
        raise ValueError(f"{n} recordings cannot be of {speakers} speakers: give 1 to {n}")
    if speakers is None and not likeness.has_zero:
        raise ValueError(CANNOT_COUNT)
    merges = linked(items, likeness, below_zero=speakers is not None)
    groups = merges.groups(merges.above_zero() if speakers is None else n - speakers)
    order = np.argsort(-np.bincount(groups), kind="stable")
    groups = np.argsort(order)[groups]
    return Sorted(groups, *_evidence(items, groups, likeness))


def _evidence(
    items: Items, groups: NDArray[np.int64], likeness: Likeness
) -> tuple[Values, NDArray[np.int64]]:
    """The evidence (n,) and the likeliest other groups (n,), by mean likenesses to groups.

    A mean score is exact; quality measures of a group are the means of its recordings'.
    """
    n, count = len(items), int(groups.max()) + 1
    sizes = np.bincount(groups).astype(np.float64)
    queries, keys = likeness.sides(items.embeddings)
    means = np.zeros((count, keys.shape[1]))
    np.add.at(means, groups, keys)
    mean_keys = (means / sizes[:, None]).astype(np.float32)
    measures = {name: np.bincount(groups, x) / sizes for name, x in items.measures.items()}
    evidence, others = np.empty(n), np.full(n, -1)
    at_once = max(1, SCORES_AT_ONCE // count)
    for start in range(0, n, at_once):
        block = queries[start : start + at_once] @ mean_keys.T
        for row, scores in enumerate(block, start):
            one = items.some(np.array([row])).measures
            values = likeness.values(scores, one, measures)
            group, size = groups[row], sizes[groups[row]]
            own = 0.0  # somebody new
            if size > 1:
                itself = likeness.values((queries[row : row + 1] * keys[row]).sum(1), one, one)
                own = (size * values[group] - itself[0]) / (size - 1)
            values[group] = -np.inf
            best = int(values.argmax())
            if count > 1:
                others[row] = best
            evidence[row] = own - (max(values[best], 0.0) if size > 1 else values[best])
    return np.where(np.isinf(evidence), np.inf, evidence), others
