"""Recordings with a wrong speaker, and speakers that are one voice, found by a model's scores.

A recording is judged by its rank: the share of other speakers that are more similar to it than the
rest of its own. Right labels have ranks near 0. A recording of somebody else has any rank with the
same chance, whatever its quality, so twice the number of ranks above one half estimates how many
labels are wrong. A model's own errors add to that: compare with a corpus whose labels are known.

Two speakers are one voice if they are more similar than speakers are: scores are normalized by each
speaker's scores with others, and their upper tail is compared with that of a normal distribution.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from simple_spk.evaluation.scoring import AnySimilarity, as_array, queries_and_keys

MOST_OTHERS = 1000  # speakers that a recording or a speaker is compared with, for ranks and norms
ROWS_AT_ONCE = 1024
SAMPLED_PAIRS = 1_000_000
RANKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)  # above which a recording may be dropped

Rows = NDArray[np.int64]
Matrix = NDArray[np.float32]


class SuspectRecording(NamedTuple):
    """A recording that is less similar to its own speaker than to many others."""

    row: int
    score: float  # mean score with the rest of its speaker
    rank: float


class SuspectPair(NamedTuple):
    """Two speakers, by number, that sound like one."""

    first: int
    second: int
    score: float  # normalized: in standard deviations above the scores with other speakers


class LabelNoise(NamedTuple):
    """What was found, and how much of it the model's own errors explain."""

    judged: int  # recordings whose speaker has another one
    wrong_labels: float  # estimated number
    rank: float  # above which recordings were dropped
    recordings: list[SuspectRecording]
    wrongly_suspected: float  # recordings that a right label is expected to have
    pairs: list[SuspectPair]
    wrongly_paired: float  # pairs that different voices are expected to make


def find_label_noise(
    embeddings: Matrix,
    speakers: Rows,
    similarity: AnySimilarity,
    false_share: float = 0.05,
    seed: int = 0,
) -> LabelNoise:
    """The suspects among recordings with embeddings (n, dim) and speakers (n,), numbered from 0.

    At most about ``false_share`` of the suspects are expected to be right.
    """
    count = int(speakers.max(initial=-1)) + 1
    if count < 3:
        raise ValueError(f"found {count} speakers: labels are judged by comparison with others")
    if not 0.0 < false_share < 1.0:
        raise ValueError(f"the share of false suspects is in (0, 1), not {false_share}")
    queries, keys = map(as_array, queries_and_keys(embeddings, similarity))
    random = np.random.default_rng(seed)
    others = np.sort(random.permutation(count)[:MOST_OTHERS])
    judge = _Judge(queries, keys, speakers, others)
    ranks, _ = judge.ranks(np.arange(len(speakers)))
    judged = int((judge.sizes[speakers] > 1).sum())
    wrong = 2.0 * float((ranks > 0.5).sum())
    rank, wrongly_suspected = _limit(ranks, false_share)
    recordings = judge.drop(rank)
    kept = np.setdiff1d(np.arange(len(speakers)), [suspect.row for suspect in recordings])
    pairs, wrongly_paired = _same_voices(
        _means(queries[kept], speakers[kept], count),
        _means(keys[kept], speakers[kept], count),
        np.bincount(speakers[kept], minlength=count) > 0,
        false_share,
        random,
    )
    return LabelNoise(judged, wrong, rank, recordings, wrongly_suspected, pairs, wrongly_paired)


class _Judge:
    """Ranks of recordings among the means of other speakers, as recordings are dropped."""

    def __init__(self, queries: Matrix, keys: Matrix, speakers: Rows, others: Rows) -> None:
        self.queries, self.keys, self.speakers, self.others = queries, keys, speakers, others
        count = int(speakers.max()) + 1
        self.sizes = np.bincount(speakers, minlength=count)
        means = _means(keys, speakers, count)
        self.sums = means * self.sizes[:, None]
        self.keys_of_others = means[others]

    def ranks(self, rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Ranks (rows,) and scores with the rest of the own speaker; 0 and inf without a rest."""
        ranks, scores = np.zeros(len(rows)), np.full(len(rows), np.inf)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            own = self.speakers[some]
            rest = (self.sums[own] - self.keys[some]) / np.maximum(self.sizes[own] - 1, 1)[:, None]
            score = np.einsum("ij,ij->i", self.queries[some], rest)
            with_others = self.queries[some] @ self.keys_of_others.T
            foreign = self.others[None] != own[:, None]
            higher = ((with_others > score[:, None]) & foreign).sum(axis=1)
            alone = self.sizes[own] < 2
            place = slice(start, start + len(some))
            ranks[place] = np.where(alone, 0.0, higher / np.maximum(foreign.sum(axis=1), 1))
            scores[place] = np.where(alone, np.inf, score)
        return ranks, scores

    def drop(self, limit: float) -> list[SuspectRecording]:
        """Drop each speaker's worst recording of a rank above the limit until there is none.

        Of two recordings that disagree, none can be trusted, and both go.
        """
        suspects: list[SuspectRecording] = []
        rows = np.arange(len(self.speakers))
        while len(rows):
            ranks, scores = self.ranks(rows)
            order = np.lexsort((scores, -ranks, self.speakers[rows]))
            first = np.flatnonzero(np.diff(self.speakers[rows[order]], prepend=-1))
            worst = order[first]
            worst = worst[ranks[worst] > limit]
            two = np.isin(self.speakers[rows], self.speakers[rows[worst]])
            two &= self.sizes[self.speakers[rows]] == 2
            chosen = np.union1d(worst, np.flatnonzero(two))
            suspects += [
                SuspectRecording(int(rows[i]), float(scores[i]), float(ranks[i])) for i in chosen
            ]
            np.subtract.at(self.sums, self.speakers[rows[chosen]], self.keys[rows[chosen]])
            np.subtract.at(self.sizes, self.speakers[rows[chosen]], 1)
            touched = np.isin(self.speakers[rows], self.speakers[rows[worst]])
            touched[chosen] = False
            rows = rows[touched]
        return sorted(suspects)


def _means(sides: Matrix, speakers: Rows, count: int) -> Matrix:
    """The mean (count, dim) of the rows of each speaker; zeros without any."""
    sums = np.zeros((count, sides.shape[1]), np.float64)
    np.add.at(sums, speakers, sides)
    sizes = np.bincount(speakers, minlength=count)
    return (sums / np.maximum(sizes, 1)[:, None]).astype(np.float32)


def _limit(ranks: NDArray[np.float64], false_share: float) -> tuple[float, float]:
    """The lowest limit of ranks with few enough false suspects, and how many are expected.

    Wrong labels have as many ranks in each interval of one length. What an interval below one half
    has beyond that, by more than a standard deviation of both counts, are right ones.
    """
    upper = float((ranks > 0.5).sum())
    for limit in RANKS:
        lower = float((ranks > limit).sum()) - upper
        expected = upper * (0.5 - limit) / 0.5
        deviation = np.sqrt(expected + expected**2 / max(upper, 1.0))
        false = max(0.0, lower - expected)
        if false <= false_share * (lower + upper) + deviation:
            return limit, false
    return RANKS[-1], 0.0


def _same_voices(
    queries: Matrix,
    keys: Matrix,
    is_there: NDArray[np.bool_],
    false_share: float,
    random: np.random.Generator,
) -> tuple[list[SuspectPair], float]:
    """The pairs of speakers, with mean queries and keys (speakers, dim), that sound like one."""
    numbers = np.flatnonzero(is_there)
    queries, keys, count = queries[numbers], keys[numbers], len(numbers)
    if count < 2:  # nearly all recordings were dropped
        return [], 0.0
    others = np.sort(random.permutation(count)[:MOST_OTHERS])
    center, spread = np.empty(count), np.empty(count)
    for start in range(0, count, ROWS_AT_ONCE):
        block = (queries[start : start + ROWS_AT_ONCE] @ keys[others].T).astype(np.float64)
        rows = np.arange(start, start + len(block))
        block[rows[:, None] == others[None]] = np.nan
        center[rows], spread[rows] = np.nanmean(block, axis=1), np.nanstd(block, axis=1)
    spread = np.maximum(spread, 1e-9)

    def normalized(scores: NDArray[np.floating], first: Rows, second: Rows) -> NDArray[np.float64]:
        by_first = (scores - center[first]) / spread[first]
        return 0.5 * (by_first + (scores - center[second]) / spread[second])

    total = count * (count - 1) // 2
    if total <= SAMPLED_PAIRS:
        first, second = np.triu_indices(count, k=1)
    else:
        first, second = random.integers(count, size=(2, SAMPLED_PAIRS))
        first, second = first[first != second], second[first != second]
    sample = np.concatenate(
        [
            normalized(np.einsum("ij,ij->i", queries[i], keys[j]), i, j)
            for i, j in zip(_parts(first), _parts(second), strict=True)
        ]
    )
    mean, sigma = _normal_of_tail(sample, count)
    found: list[SuspectPair] = []
    lowest = mean + sigma * float(norm.isf(min(0.5, count / total)))
    for start in range(0, count, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, count))
        scores = normalized(queries[rows] @ keys.T, rows[:, None], np.arange(count)[None])
        for i, j in np.argwhere((scores > lowest) & (rows[:, None] < np.arange(count))).tolist():
            pair = numbers[start + i], numbers[j]
            found.append(SuspectPair(int(pair[0]), int(pair[1]), float(scores[i, j])))
    found.sort(key=lambda pair: -pair.score)
    expected = total * norm.sf([(pair.score - mean) / sigma for pair in found])
    fine = np.flatnonzero(expected <= false_share * np.arange(1, len(found) + 1))
    kept = int(fine[-1]) + 1 if len(fine) else 0
    return found[:kept], float(expected[kept - 1]) if kept else 0.0


def _normal_of_tail(sample: NDArray[np.float64], speakers: int) -> tuple[float, float]:
    """Mean and deviation of a normal distribution through two quantiles of the upper tail.

    Few pairs are of one voice: if one speaker in twenty has a second name, 0.1 pairs per speaker,
    against 3 above the quantile.
    """
    tails = np.minimum([3.0 / speakers, 30.0 / speakers], [0.05, 0.3])
    high, low = np.quantile(sample, 1.0 - tails)
    high_deviate, low_deviate = norm.isf(tails)
    sigma = max(float((high - low) / (high_deviate - low_deviate)), 1e-9)
    return float(high - high_deviate * sigma), sigma


def _parts(rows: Rows) -> list[Rows]:
    """Rows in parts whose embeddings fit into memory."""
    return np.array_split(rows, max(1, len(rows) // 65536))
