"""Losses of pytorch-metric-learning, over the queue or within the batch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from simple_spk.models.similarity import CosineSimilarity

PairIndices = tuple[Tensor, Tensor, Tensor, Tensor]


class MetricLearningLoss(nn.Module):
    """A loss of pytorch-metric-learning (an extra: ``pip install 'simple_spk[metric]'``), called as
    SimPLE is.

    Any of its losses fits that takes pairs or triplets of a batch and a set of references:
    ``ContrastiveLoss``, ``TripletMarginLoss``, ``SupConLoss``, ``NTXentLoss``,
    ``MultiSimilarityLoss``. Each query is paired with all keys but its own. That library keeps
    several numbers for each pair, and for each triplet: queues of some thousands, not of half a
    million. Embeddings are scored by their cosine; all of these losses normalize by default.
    """

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss
        self.similarity = CosineSimilarity()

    def forward(
        self, queries: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor, own_keys: Tensor
    ) -> Tensor:
        """The loss of queries (n, dim) with labels (n,) against keys (m, dim) with key_labels (m,).

        own_keys (n,) names for each query the key made from the same crop: that pair is left out.
        """
        pairs = pairs_without_own(labels, key_labels, own_keys)
        with torch.autocast(queries.device.type, enabled=False):
            return self.loss(queries.to(keys.dtype), labels, pairs, keys, key_labels)


class BatchMetricLearningLoss(nn.Module):
    """A loss of pytorch-metric-learning within the batch, without a queue, as its benchmarks have
    it: also those with a vector per class, and those that cannot compare with other embeddings.

    miner: one of that library's, which chooses the pairs or triplets; None: all of them. With
    several processes each sees its own part of the batch only.
    """

    def __init__(
        self, loss: Callable[..., Tensor], miner: Callable[..., tuple[Tensor, ...]] | None = None
    ) -> None:
        super().__init__()
        self.loss = loss
        self.miner = miner
        self.similarity = CosineSimilarity()

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss of embeddings (n, dim) with labels (n,)."""
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.float()
            chosen = None if self.miner is None else self.miner(embeddings, labels)
            return self.loss(embeddings, labels, chosen)


def pairs_without_own(labels: Tensor, key_labels: Tensor, own_keys: Tensor) -> PairIndices:
    """Queries and keys of all positive pairs, then of all negative ones, as four index tensors."""
    same = labels[:, None] == key_labels[None, :]
    other = torch.ones_like(same).scatter_(1, own_keys[:, None], False)
    positives, negatives = (same & other).nonzero().T, (~same & other).nonzero().T
    return positives[0], positives[1], negatives[0], negatives[1]
