"""Score normalization with a cohort: S-norm and adaptive S-norm (AS-norm).

A recording that resembles everybody gets high scores with everybody. Scored against a cohort of
speakers that no trial is about, it shows by how much: its own mean and deviation. A trial's
normalized score is the mean of its score as seen from both its recordings, in deviations above
their means. S-norm takes all of the cohort, AS-norm the ``top_n`` most similar members of it.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from simple_spk.models.similarity import Similarity


class CohortStatistics(NamedTuple):
    """Mean and population standard deviation of each recording's cohort scores, both (n,)."""

    means: NDArray[np.float64]
    deviations: NDArray[np.float64]


def speaker_cohort(embeddings: NDArray[np.float32], speakers: ArrayLike) -> NDArray[np.float32]:
    """The mean embedding (speakers, dim) of each speaker, in the order of their sorted names.

    ``embeddings`` (n, dim) are of training speakers, ``speakers`` (n,) their names or numbers. The
    mean is of embeddings as they are, lengths included, as SimPLE builds its templates.
    """
    names = np.asarray(speakers)
    if names.shape != embeddings.shape[:1] or len(names) == 0:
        raise ValueError(
            f"embeddings have shape {embeddings.shape} and speakers {names.shape}; expected "
            "(n, dim) and (n,), with n at least 1"
        )
    _, numbers, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(numbers, kind="stable")  # so that each speaker's rows can be added in a row
    starts = np.append(0, np.cumsum(counts)[:-1])
    sums = np.add.reduceat(embeddings[order].astype(np.float64), starts, axis=0)
    return (sums / counts[:, np.newaxis]).astype(np.float32)


@torch.no_grad()
def cohort_statistics(
    embeddings: NDArray[np.float32],
    cohort: NDArray[np.float32],
    similarity: Similarity,
    top_n: int | None = 300,
    block: int = 2048,
    progress: bool = False,
) -> CohortStatistics:
    """Statistics of the scores of each embedding (n, dim) with its nearest of the cohort (c, dim).

    Those are the ``top_n`` highest scores, or all if that is None (S-norm). Where scores tie at the
    edge it does not matter which are taken. Blocks of recordings go through one product each, as
    every similarity is one of lifted embeddings; numpy's partition then finds the highest, several
    times faster than torch.topk on a CPU.
    """
    _check(embeddings, cohort, top_n)
    device = next((t.device for t in similarity.state_dict().values()), torch.device("cpu"))
    keys = similarity.lift_keys(torch.from_numpy(cohort).to(device)).T
    left_out = 0 if top_n is None else len(cohort) - top_n
    means, deviations = np.empty(len(embeddings)), np.empty(len(embeddings))
    starts = range(0, len(embeddings), block)
    for start in tqdm(starts, "scoring the cohort", disable=not progress):
        rows = slice(start, start + block)
        queries = similarity.lift_queries(torch.from_numpy(embeddings[rows]).to(device))
        scores = (queries @ keys).cpu().numpy()
        if left_out:
            scores.partition(left_out, axis=1)
        highest = scores[:, left_out:]
        means[rows] = highest.mean(axis=1, dtype=np.float64)
        deviations[rows] = highest.std(axis=1, dtype=np.float64)
    flat = np.flatnonzero(~(deviations > 0.0))  # NaN as well
    if len(flat):
        raise ValueError(
            f"{len(flat)} of {len(embeddings)} recordings score alike with all of their cohort, "
            f"the first at index {flat[0]}: check that embeddings and cohort are finite and varied"
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
    """Raise if ``top_n`` members of so large a cohort cannot be taken, or give no deviation."""
    if size < 2:
        raise ValueError(f"the cohort has {size} members; a deviation needs at least 2")
    if top_n is not None and not 2 <= top_n <= size:
        raise ValueError(
            f"top_n must lie between 2 and the {size} members of the cohort, not {top_n}"
        )


def _check(embeddings: NDArray[np.float32], cohort: NDArray[np.float32], top_n: int | None) -> None:
    """Raise if these recordings and this cohort do not fit together."""
    if embeddings.ndim != 2 or cohort.ndim != 2 or embeddings.shape[1] != cohort.shape[1]:
        raise ValueError(
            f"embeddings have shape {embeddings.shape} and the cohort {cohort.shape}; expected "
            "(n, dim) and (c, dim) of one model"
        )
    check_cohort_size(len(cohort), top_n)
