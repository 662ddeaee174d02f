"""Retrieval metrics: Precision@1, R-Precision, MAP@R, Recall@K, NMI.

Every item is a query once, and all others are its gallery, ranked by the model's own similarity.
With tied scores, a metric is its mean over all orders of the tied items: a model that gives all
pairs the same score is at chance level. Items without another of their class are in the gallery
only. The matrix of all pairs is never in memory.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

BLOCK_NUMBERS = 4_000_000  # scores in memory at a time: a block fits into the CPU cache
CLUSTERING_STEPS = 20  # as in the benchmarks of metric learning
CHUNKS_PER_RANK = 4  # below this, searching chunks first is not faster


class Neighbors(NamedTuple):
    """The k nearest items of some queries, nearest first; ties with the last one may be cut off."""

    queries: Tensor  # (m,) rows
    rows: Tensor  # (m, k)
    scores: Tensor  # (m, k)
    tied_last: Tensor  # (m,) number of all items with the score of rank k
    tied_last_right: Tensor  # (m,) number of those that are of the query's class


def retrieval_metrics(
    queries: Tensor, keys: Tensor, labels: Tensor, recall_at: Sequence[int] = (1, 2, 4, 8)
) -> dict[str, Any]:
    """All metrics but NMI, in percent, as plain data.

    queries, keys (n, product_dim): embeddings mapped by a ``Similarity`` so that the score of query
    i and item j is the inner product of row i and row j. labels (n,): the class of each.
    """
    _, inverse, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    others = sizes[inverse] - 1
    if not (others > 0).any():
        raise ValueError("no class has two items: no query has a relevant item")
    if not (torch.isfinite(queries).all() and torch.isfinite(keys).all()):
        raise ValueError("embeddings hold values that are not finite: training diverged")
    if any(k < 1 for k in recall_at):
        raise ValueError(f"recall_at are numbers of neighbors, 1 or more, not {recall_at}")
    most = min(max(int(others.max()), *recall_at), len(labels) - 1)
    sums = torch.zeros(3 + len(recall_at), dtype=torch.float64)
    count = 0
    for found in neighbors(queries, keys, labels, most, others > 0):
        relevant = others[found.queries]
        ties = _Ties(found, labels)
        # The probability that a rank holds a relevant item, and the expected precision if it does.
        in_range = ties.places < relevant[:, None]
        chance = ties.right / ties.size
        precision = ties.expected_precision()
        metrics = [
            chance[:, 0],
            (chance * in_range).sum(1) / relevant,
            (chance * precision * in_range).sum(1) / relevant,
            *(ties.chance_of_any(min(k, most)) for k in recall_at),
        ]
        sums += torch.stack([one.sum() for one in metrics]).double()
        count += len(found.queries)
    first, r_precision, map_at_r, *recalls = (100.0 * sums / count).tolist()
    return {
        "precision_at_1": first,
        "r_precision": r_precision,
        "map_at_r": map_at_r,
        "recall": {str(k): value for k, value in zip(recall_at, recalls, strict=True)},
        "queries": count,
    }


def neighbors(
    queries: Tensor, keys: Tensor, labels: Tensor, k: int, wanted: Tensor | None = None
) -> Iterator[Neighbors]:
    """The k nearest other items of all queries, or of those ``wanted`` (n,), block by block."""
    rows = torch.arange(len(labels)) if wanted is None else wanted.nonzero()[:, 0]
    block = max(1, BLOCK_NUMBERS // (len(labels) + 16 * k))
    for part in rows.split(block):
        scores = queries[part] @ keys.T
        scores[torch.arange(len(part)), part] = -torch.inf  # no item retrieves itself
        values, found = _largest(scores, min(k + 1, len(labels)))
        values, found, next_values = values[:, :k], found[:, :k], values[:, k:]
        tied = (values == values[:, -1:]).sum(1)
        tied_right = ((values == values[:, -1:]) & (labels[found] == labels[part][:, None])).sum(1)
        # If the next score is tied with the last one, all tied items of the row are counted.
        for number in (next_values == values[:, -1:]).any(1).nonzero()[:, 0].tolist():
            equal = (scores[number] == values[number, -1]).nonzero()[:, 0]
            tied[number] = len(equal)
            tied_right[number] = (labels[equal] == labels[part[number]]).sum()
        yield Neighbors(part, found, values, tied, tied_right)


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest (m, k) of scores (m, n) in descending order, and their columns.

    They lie in the k chunks of columns with the largest maxima. For small k, searching only these
    chunks saves most of the work.
    """
    depth = int((scores.shape[1] / (CHUNKS_PER_RANK * k)) ** 0.5)
    if depth < 2:
        return torch.topk(scores, k, dim=1)
    # Chunk j has the columns j, j + count, j + 2 count, ...: maxima over strides are fast. The
    # remaining columns are always searched.
    count = scores.shape[1] // depth
    chunks = scores[:, : depth * count].unflatten(1, (depth, count))
    best = torch.topk(chunks.amax(1), k, dim=1, sorted=False).indices
    candidates = chunks.gather(2, best[:, None].expand(-1, depth, -1)).flatten(1)
    values, places = torch.topk(torch.cat([candidates, scores[:, depth * count :]], 1), k, dim=1)
    inside = places // k * count + best.gather(1, places % k)
    return values, torch.where(places < depth * k, inside, places - depth * k + depth * count)


class _Ties:
    """The group of tied scores of each rank among neighbors; attributes are (m, k).

    size, right: number of items and of relevant items, including those beyond rank k.
    start, before: first rank, from 0, and number of relevant items before the group.
    """

    def __init__(self, found: Neighbors, labels: Tensor) -> None:
        matches = (labels[found.rows] == labels[found.queries][:, None]).double()
        self.places = torch.arange(matches.shape[1]).expand_as(matches)
        begins = torch.ones_like(matches, dtype=torch.bool)
        begins[:, 1:] = found.scores[:, 1:] != found.scores[:, :-1]
        group = begins.cumsum(1) - 1
        sizes = torch.zeros_like(matches).scatter_add_(1, group, torch.ones_like(matches))
        right = torch.zeros_like(matches).scatter_add_(1, group, matches)
        last = group[:, -1:]
        before = right.cumsum(1) - right
        sizes.scatter_(1, last, found.tied_last[:, None].double())
        right.scatter_(1, last, found.tied_last_right[:, None].double())
        self.size, self.right = sizes.gather(1, group), right.gather(1, group)
        self.before = before.gather(1, group)
        self.start = torch.where(begins, self.places, 0).cummax(1).values

    def expected_precision(self) -> Tensor:
        """The expected precision at each rank (m, k), given that the rank holds a relevant item."""
        inside = (self.places - self.start) * (self.right - 1.0) / (self.size - 1.0).clamp(min=1.0)
        return (self.before + 1.0 + inside) / (self.places + 1.0)

    def chance_of_any(self, k: int) -> Tensor:
        """The probability (m,) of a relevant item among the first k."""
        size, right, before, start = (
            x[:, k - 1].double() for x in (self.size, self.right, self.before, self.start)
        )
        drawn = k - start  # of the last group, without replacement
        wrong = size - right
        log_none = (
            torch.lgamma(wrong + 1.0)
            - torch.lgamma((wrong - drawn).clamp(min=0.0) + 1.0)
            - torch.lgamma(size + 1.0)
            + torch.lgamma(size - drawn + 1.0)
        )
        none = torch.where(wrong >= drawn, log_none.exp(), 0.0)
        none = torch.where(right == 0, 1.0, none)
        return torch.where(before > 0, 1.0, 1.0 - none)


def clustering_nmi(embeddings: Tensor, labels: Tensor) -> float:
    """Normalized mutual information, in percent, of the classes and as many k-means clusters.

    As in the benchmarks, embeddings (n, dim) are scaled to unit length first.
    """
    clusters = k_means(functional.normalize(embeddings, dim=1), len(labels.unique()))
    return 100.0 * normalized_mutual_information(labels.numpy(), clusters.numpy())


def k_means(points: Tensor, clusters: int) -> Tensor:
    """The cluster (n,) of each point (n, dim), by Lloyd's algorithm from random points."""
    generator = torch.Generator().manual_seed(0)
    centers = points[torch.randperm(len(points), generator=generator)[:clusters]].clone()
    block = max(1, BLOCK_NUMBERS // clusters)
    # |x - c|^2 / 2 = |x|^2 / 2 - <(x, 1), (c, -|c|^2 / 2)>
    extended = functional.pad(points, (0, 1), value=1.0)
    closeness = torch.empty(len(points))
    nearest = torch.empty(len(points), dtype=torch.long)
    products = torch.empty(min(block, len(points)), clusters)
    for _ in range(CLUSTERING_STEPS):
        targets = torch.cat([centers, -centers.square().sum(1, keepdim=True) / 2.0], dim=1)
        for start in range(0, len(points), block):
            part = slice(start, min(start + block, len(points)))
            rows = torch.mm(extended[part], targets.T, out=products[: part.stop - start])
            torch.max(rows, dim=1, out=(closeness[part], nearest[part]))
        distances = points.square().sum(1) / 2.0 - closeness
        counts = torch.bincount(nearest, minlength=clusters)
        centers = torch.zeros_like(centers).index_add_(0, nearest, points)
        centers /= counts.clamp(min=1)[:, None]
        empty = (counts == 0).nonzero()[:, 0]
        # Empty clusters restart at the points farthest from their centers.
        centers[empty] = points[distances.topk(len(empty)).indices]
    return nearest


def normalized_mutual_information(one: NDArray[np.integer], other: NDArray[np.integer]) -> float:
    """Mutual information of two labelings (n,) over the mean of their entropies, in [0, 1]."""
    _, first = np.unique(one, return_inverse=True)
    _, second = np.unique(other, return_inverse=True)
    joint = np.unique(first * (second.max() + 1) + second, return_counts=True)[1]
    entropies = [_entropy(np.bincount(labels)) for labels in (first, second)]
    mean = sum(entropies) / 2.0
    return 1.0 if mean == 0.0 else float(max(0.0, sum(entropies) - _entropy(joint)) / mean)


def _entropy(counts: NDArray[np.integer]) -> float:
    """The entropy of a labeling with these counts."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
