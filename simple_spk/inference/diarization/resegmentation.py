"""From windows and groups of them to turns: every moment of speech is given to a speaker again.

The windows that cover a moment vote for it, near ones most. The best path through the speakers is
found by Viterbi's algorithm: a change costs something, within speech more than after a pause.
"""

import numpy as np
from numpy.typing import NDArray

from simple_spk.evaluation.quality_measures import DURATION, at_length
from simple_spk.inference.diarization.likeness import Items, Likeness, typical
from simple_spk.inference.diarization.segmentation import WINDOW_SECONDS, Spans, Windows
from simple_spk.inference.model import Model

STEP_SECONDS = 0.05
CHANGE_COST, PAUSE_COST = 3.0, 1.0  # log likelihood ratios, of a change within speech and after it
SUMS = (DURATION, "log_speech", "log_recordings")  # measures that add up; the mean of the others

Values = NDArray[np.float64]


def templates(items: Items, groups: NDArray[np.int64], count: int, model: Model) -> Items:
    """The mean embedding of each of the groups 0 to count - 1, as long as those of its items."""
    embeddings, measures = [], []
    for group in range(count):
        own = items.some(groups == group)
        mean = own.embeddings.astype(np.float64).mean(axis=0, keepdims=True)
        lengths = np.linalg.norm(own.embeddings.astype(np.float64), axis=1)
        template = at_length(mean, lengths.mean(keepdims=True))
        embeddings.append(template[0])
        measures.append(
            [
                np.logaddexp.reduce(x) if name in SUMS else x.mean()
                for name, x in own.measures.items()
            ]
        )
    found = dict(zip(items.measures, np.array(measures).T, strict=True))
    table = np.stack(embeddings).astype(np.float32)
    return Items(table, found | typical(table, model))


def likeness_to(items: Items, voices: Items, likeness: Likeness) -> Values:
    """The likeness (n, k) of n items and k voices."""
    scores = likeness.sides(items.embeddings)[0] @ likeness.sides(voices.embeddings)[1].T
    columns = [
        likeness.values(scores[:, k], items.measures, voices.some(np.array([k])).measures)
        for k in range(len(voices))
    ]
    return np.stack(columns, axis=1)


def speaker_spans(
    speech: Spans, windows: Windows, values: Values
) -> list[tuple[float, float, int]]:
    """Start, end and speaker of turns, rising, from the values (n, k) of n windows, k speakers."""
    counts = np.maximum(1, np.rint((speech[:, 1] - speech[:, 0]) / STEP_SECONDS)).astype(np.int64)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    steps = (speech[:, 1] - speech[:, 0]) / counts  # seconds, about STEP_SECONDS
    votes, weights = np.zeros((firsts[-1], values.shape[1])), np.zeros(firsts[-1])
    for (start, end), row, value in zip(windows.spans, windows.speech, values, strict=True):
        begin, step = speech[row, 0], steps[row]
        low = round((start - begin) / step)
        high = min(max(low + 1, round((end - begin) / step)), counts[row])
        times = begin + (np.arange(low, high) + 0.5) * step
        near = 1.0 - np.abs(2.0 * times - start - end) / (end - start + 2.0 * step)
        places = slice(firsts[row] + low, firsts[row] + high)
        votes[places] += near[:, None] * value
        weights[places] += near
    votes *= (STEP_SECONDS / WINDOW_SECONDS / weights)[:, None]
    costs = np.full(len(votes), CHANGE_COST)
    costs[firsts[:-1]] = PAUSE_COST
    path = best_path(votes, costs)
    found = []
    for row, (begin, end) in enumerate(speech.tolist()):
        own = path[firsts[row] : firsts[row + 1]]
        changes = np.flatnonzero(np.diff(own)) + 1
        edges = [begin, *(begin + changes * steps[row]).tolist(), end]
        speakers = own[np.concatenate([[0], changes])].tolist()
        found += list(zip(edges[:-1], edges[1:], speakers, strict=True))
    return found


def best_path(votes: Values, costs: Values) -> NDArray[np.int64]:
    """The states (n,) with the greatest sum of votes (n, k), less the costs (n,) of changes.

    >>> votes = np.array([[1.0, 0.0], [0.0, 0.6], [1.0, 0.0], [0.0, 3.0]])
    >>> best_path(votes, np.full(4, 1.0)).tolist()
    [0, 0, 0, 1]
    """
    n, k = votes.shape
    came_from = np.empty((n, k), np.int32)
    stay = np.arange(k)
    total = votes[0].copy()
    for step in range(1, n):
        best = int(total.argmax())
        changed = total[best] - costs[step]
        came_from[step] = np.where(total >= changed, stay, best)
        total = np.maximum(total, changed) + votes[step]
    path = np.empty(n, np.int64)
    path[-1] = total.argmax()
    for step in range(n - 1, 0, -1):
        path[step - 1] = came_from[step, path[step]]
    return path
