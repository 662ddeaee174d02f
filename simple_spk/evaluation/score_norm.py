"""Score normalization with a cohort: S-norm and adaptive S-norm (AS-norm).

Each recording is scored against a cohort of speakers that occur in no trial. The mean and standard
deviation of these scores standardize the score of a trial, once for each of its two sides; the
result is the mean of both. S-norm takes the whole cohort, AS-norm the ``top_n`` nearest members.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from simple_spk.evaluation.scoring import AnySimilarity, as_array, queries_and_keys


class CohortStatistics(NamedTuple):
    """Mean and population standard deviation of each recording's cohort scores, both (n,)."""

    means: NDArray[np.float64]
    deviations: NDArray[np.float64]


def speaker_cohort(embeddings: NDArray[np.float32], speakers: ArrayLike) -> NDArray[np.float32]:
    """The mean embedding (speakers, dim) of each speaker, in the order of their sorted names.

    ``embeddings`` (n, dim) are of training speakers, ``speakers`` (n,) their names or numbers.
    Embeddings are not normalized before averaging, as in SimPLE's templates.
    """
    names = np.asarray(speakers)
    if names.shape != embeddings.shape[:1] or len(names) == 0:
        raise ValueError(
            f"embeddings have shape {embeddings.shape} and speakers {names.shape}; expected "
            "(n, dim) and (n,), with n at least 1"
        )
    _, numbers, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(numbers, kind="stable")  # rows of one speaker become adjacent
    starts = np.append(0, np.cumsum(counts)[:-1])
    sums = np.add.reduceat(embeddings[order].astype(np.float64), starts, axis=0)
    return (sums / counts[:, np.newaxis]).astype(np.float32)


def cohort_statistics(
    embeddings: NDArray[np.float32],
    cohort: NDArray[np.float32],
    similarity: AnySimilarity,
    top_n: int | None = 300,
    block: int = 2048,
    progress: bool = False,
) -> CohortStatistics:
    """Statistics of the ``top_n`` highest scores of each embedding (n, dim) with a cohort (c, dim).

    All scores count if ``top_n`` is None (S-norm). numpy's partition finds the highest scores of a
    block several times faster than torch.topk on a CPU.
    """
    if embeddings.ndim != 2 or cohort.ndim != 2 or embeddings.shape[1] != cohort.shape[1]:
        raise ValueError(
            f"embeddings have shape {embeddings.shape} and the cohort {cohort.shape}; expected "
            "(n, dim) and (c, dim) of one model"
        )
    check_cohort_size(len(cohort), top_n)
    _, keys = queries_and_keys(cohort, similarity)
    left_out = 0 if top_n is None else len(cohort) - top_n
    means, deviations = np.empty(len(embeddings)), np.empty(len(embeddings))
    starts = range(0, len(embeddings), block)
    for start in tqdm(starts, "scoring the cohort", disable=not progress):
        rows = slice(start, start + block)
        queries, _ = queries_and_keys(embeddings[rows], similarity)
        scores = as_array(queries @ keys.T)
        if left_out:
            scores.partition(left_out, axis=1)
        highest = scores[:, left_out:]
        means[rows] = highest.mean(axis=1, dtype=np.float64)
        deviations[rows] = highest.std(axis=1, dtype=np.float64)
    constant = np.flatnonzero(~(deviations > 0.0))  # NaN as well
    if len(constant):
        raise ValueError(
            f"{len(constant)} of {len(embeddings)} recordings have equal scores with their cohort, "
            f"the first at index {constant[0]}: are embeddings and cohort finite and varied?"
        )
    return CohortStatistics(means, deviations)


def normalize(
    scores: ArrayLike,
    enroll: NDArray[np.integer],
    test: NDArray[np.integer],
    statistics: CohortStatistics,
) -> NDArray[np.float64]:
    """Normalized scores (n,) of trials whose sides (n,) are rows of the statistics' recordings."""
    values = np.asarray(scores, dtype=np.float64)
    means, deviations = statistics
    sides = [(values - means[side]) / deviations[side] for side in (enroll, test)]
    return (sides[0] + sides[1]) / 2


def check_cohort_size(size: int, top_n: int | None) -> None:
    """Raise if a cohort of this size has no ``top_n`` members, or too few for a deviation."""
    if size < 2:
        raise ValueError(f"the cohort has {size} members; a deviation needs at least 2")
    if top_n is not None and not 2 <= top_n <= size:
        raise ValueError(
            f"top_n must be between 2 and the {size} members of the cohort, not {top_n}"
        )
