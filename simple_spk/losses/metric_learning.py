"""Losses of pytorch-metric-learning, over the queue or within the batch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from simple_spk.models.similarity import CosineSimilarity


class MetricLearningLoss(nn.Module):
    """A loss of pytorch-metric-learning over the queue, called like SimPLE's.

    It needs the package pytorch-metric-learning. Any loss fits that compares a batch with reference
    embeddings: ``ContrastiveLoss``, ``TripletMarginLoss``, ``SupConLoss``, ``NTXentLoss``,
    ``MultiSimilarityLoss``. Each query is paired with all keys but its own. The library keeps
    several numbers per pair and per triplet: use queues of some thousands. Embeddings are scored
    by their cosine, as all of these losses normalize by default.
    """

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        super().__init__()
        self.loss = loss
        self.similarity = CosineSimilarity()

    def forward(
        self, queries: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor, own_keys: Tensor
    ) -> Tensor:
        """The loss of queries (n, dim) with labels (n,) against keys (m, dim) with key_labels (m,).

        own_keys (n,) is the index of the key of the same crop: that pair is left out.
        """
        pairs = pairs_without_own(labels, key_labels, own_keys)
        with torch.autocast(queries.device.type, enabled=False):
            return self.loss(queries.to(keys.dtype), labels, pairs, keys, key_labels)


class BatchMetricLearningLoss(nn.Module):
    """A loss of pytorch-metric-learning within the batch, without a queue, as in its benchmarks.

    miner: a miner of that library, which chooses pairs or triplets; None: all of them. With several
    processes each uses its own part of the batch only.
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


def pairs_without_own(labels: Tensor, key_labels: Tensor, own_keys: Tensor) -> tuple[Tensor, ...]:
    """Queries and keys of all positive pairs, then of all negative ones, as four index tensors."""
    same = labels[:, None] == key_labels[None, :]
    other = torch.ones_like(same).scatter_(1, own_keys[:, None], False)
    positives, negatives = (same & other).nonzero().T, (~same & other).nonzero().T
    return positives[0], positives[1], negatives[0], negatives[1]
