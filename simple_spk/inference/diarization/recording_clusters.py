"""Recordings sorted by speaker without labels, and how sure each of them is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.quality_measures import SOUND_MEASURES
from simple_spk.inference.batch_embedding import embedding_bar
from simple_spk.inference.diarization.likeness import CANNOT_COUNT, Items, Likeness, Values
from simple_spk.inference.diarization.linkage import linked
from simple_spk.inference.diarization.neighbor_graph import best_columns
from simple_spk.inference.extractor import Extractor

SCORES_AT_ONCE = 2**22  # in memory: 16 MB, and some times as much while they are calibrated
MOST_COMPARED = 200  # groups for a recording, those of the highest mean scores
LEAST_EVIDENCE = float(np.log(2.0))  # below it, there is no evidence either way
# Prior of one speaker for two recordings, as if they were of 10 speakers. Of 0.02 to 0.5, this one
# sorted lists of many validation speakers best (RESULTS.md).
SAME_PRIOR = 0.1


class Sorted(NamedTuple):
    """The groups of n recordings, one for each speaker, the largest first."""

    groups: NDArray[np.int64]  # (n,)
    # How much likelier each is of its group than of the likeliest other one, or of nobody else: a
    # natural-log likelihood ratio (n,). That of a recording alone is against the likeliest group.
    evidence: Values
    others: NDArray[np.int64]  # (n,), the likeliest other group; -1 if there is none


def sorted_rows(
    extractor: Extractor,
    ids: Sequence[str],
    paths: Sequence[Path],
    speakers: int | None = None,
    same_prior: float | None = None,
    workers: int = 0,
    progress: bool = True,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """A row for each recording, by speaker, those of the largest first; why others have none.

    same_prior: the prior probability that two recordings have the same speaker. By default it is
    ``SAME_PRIOR``, or without a calibration none.
    """
    if same_prior is None:
        same_prior = 0.5 if extractor.model.calibration is None else SAME_PRIOR
    likeness = Likeness(extractor.model, same_prior)
    _check_number(speakers, len(paths))
    kept, items, failed = _embedded(extractor, paths, workers, progress)
    result = sort_recordings(items, likeness, speakers)
    count = int(result.groups.max()) + 1
    digits = max(2, len(str(count)))
    names = [f"SPEAKER_{number:0{digits}d}" for number in range(1, count + 1)]
    rows = []
    for place in np.lexsort((np.arange(len(kept)), result.groups)).tolist():
        other = int(result.others[place])
        rows.append(
            {
                "id": ids[kept[place]],
                "path": str(paths[kept[place]]),
                "speaker": names[result.groups[place]],
                "evidence": float(result.evidence[place]),
                "other": "" if other < 0 else names[other],
                "doubtful": bool(result.evidence[place] < LEAST_EVIDENCE),
            }
        )
    return rows, {ids[index]: message for index, message in failed.items()}


def _check_number(speakers: int | None, recordings: int) -> None:
    """Raise if so many recordings cannot be of so many speakers."""
    if speakers is not None and not 1 <= speakers <= recordings:
        raise ValueError(
            f"{recordings} recordings cannot be of {speakers} speakers: give 1 to {recordings}"
        )


def _embedded(
    extractor: Extractor, paths: Sequence[Path], workers: int, progress: bool
) -> tuple[list[int], Items, dict[int, str]]:
    """The indexes of usable recordings, these as items, and why others are not, by index."""
    found: dict[int, tuple[Any, Any]] = {}
    failed: dict[int, str] = {}
    with embedding_bar(len(paths), progress) as bar:
        for batch in extractor.embed_each(
            paths, with_quality=True, workers=workers, progress=progress
        ):
            pairs = zip(batch.embeddings, batch.qualities, strict=True)
            found |= dict(zip(batch.indexes, pairs, strict=True))
            failed |= {index: str(error) for index, error in batch.errors.items()}
            bar.update(len(batch.indexes) + len(batch.errors))
    if not found:
        first = next(iter(failed.values()))
        raise ValueError(f"none of {len(paths)} recordings could be used; the first: {first}")
    kept = sorted(found)
    qualities = [found[index][1] for index in kept]
    sound = np.array([quality.sound_measures() for quality in qualities])
    items = Items.of(
        np.stack([found[index][0] for index in kept]),
        np.array([quality.seconds for quality in qualities]),
        dict(zip(SOUND_MEASURES, sound.T, strict=True)),
        extractor.model,
    )
    return kept, items, failed


def sort_recordings(items: Items, likeness: Likeness, speakers: int | None = None) -> Sorted:
    """Groups of recordings by average linkage, cut where one speaker is as likely as two.

    Or, with a number of ``speakers``, into so many groups.
    """
    n = len(items)
    _check_number(speakers, n)
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

    A mean score is exact; quality measures of a group are the means of its recordings'. Of many
    groups, only those of the highest scores are compared.
    """
    n, count = len(items), int(groups.max()) + 1
    sizes = np.bincount(groups).astype(np.float64)
    queries, keys = likeness.sides(items.embeddings)
    means = np.zeros((count, keys.shape[1]))
    np.add.at(means, groups, keys)
    mean_keys = (means / sizes[:, None]).astype(np.float32)
    measures = {name: np.bincount(groups, x) / sizes for name, x in items.measures.items()}
    itself = likeness.values((queries * keys).sum(axis=1), items.measures, items.measures)
    evidence, others = np.empty(n), np.full(n, -1)
    compared = min(count, MOST_COMPARED)
    at_once = max(1, SCORES_AT_ONCE // count)
    for start in range(0, n, at_once):
        rows = np.arange(start, min(n, start + at_once))
        scores = queries[rows] @ mean_keys.T
        best = best_columns(scores, compared)
        # The last column is the own group.
        columns = np.concatenate([best, groups[rows, None]], axis=1)
        first = {name: np.repeat(x[rows], compared + 1) for name, x in items.measures.items()}
        second = {name: x[columns.ravel()] for name, x in measures.items()}
        picked = np.take_along_axis(scores, columns, axis=1)
        values = likeness.values(picked.ravel(), first, second).reshape(columns.shape)
        size, own = sizes[groups[rows]], values[:, -1]
        with np.errstate(divide="ignore", invalid="ignore"):
            # Without the recording itself; alone, it would be of somebody new.
            own = np.where(size > 1, (size * own - itself[rows]) / (size - 1), 0.0)
        values[columns == groups[rows, None]] = -np.inf
        place = values.argmax(axis=1)
        other = values[np.arange(len(rows)), place]
        if count > 1:
            others[rows] = columns[np.arange(len(rows)), place]
        evidence[rows] = own - np.where(size > 1, np.maximum(other, 0.0), other)
    return np.where(np.isinf(evidence), np.inf, evidence), others
