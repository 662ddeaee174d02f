"""Losses with one learnable vector per class: what SimPLE is compared with.

Each is called as ``loss(embeddings, labels)`` and has a ``similarity`` that scores at test time.
Class vectors are ordinary parameters: several processes that share a batch average their gradients.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.similarity import CosineSimilarity, Similarity


class ProxyLoss(nn.Module):
    """What losses over class vectors share; ``loss_of`` is the formula of each.

    Arguments:
        embedding_dim: the length of embeddings and of class vectors.
        num_classes: how many labels there are: speakers of the training manifest, times the
            speeds if each speed of a voice is a speaker of its own.
        similarity: what scores pairs at test time.
    """

    def __init__(self, embedding_dim: int, num_classes: int, similarity: Similarity) -> None:
        super().__init__()
        if embedding_dim < 1 or num_classes < 2:
            raise ValueError(
                f"embedding_dim must be at least 1 and num_classes at least 2, not "
                f"{embedding_dim} and {num_classes}"
            )
        self.class_vectors = nn.Parameter(torch.empty(num_classes, embedding_dim))
        nn.init.xavier_uniform_(self.class_vectors)
        self.similarity = similarity

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of embeddings (n, dim) with labels (n,), in the parameters' precision."""
        num_classes, dim = self.class_vectors.shape
        if embeddings.shape[1] != dim:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} components, but the loss was made for "
                f"{dim}: give encoder and loss the same embedding_dim"
            )
        largest = int(labels.max())
        if largest >= num_classes:
            raise ValueError(
                f"label {largest} occurs, but the loss was made for num_classes: {num_classes}; it "
                f"must be the number of training speakers, times the number of speeds if each "
                f"speed of a voice is a speaker of its own"
            )
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.loss_of(embeddings.to(self.class_vectors.dtype), labels)

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean loss; mixed precision is off, labels are known to be classes."""
        raise AssertionError(f"{type(self).__name__} must define loss_of")


class SoftmaxLoss(ProxyLoss):
    """Cross-entropy of ``softmax_j(<w_j, x> + c_j)``, with class vectors w and class biases c.

    Embeddings are scored by their cosine, as is usual for models trained so.
    """

    def __init__(self, embedding_dim: int, num_classes: int) -> None:
        super().__init__(embedding_dim, num_classes, CosineSimilarity())
        self.class_biases = nn.Parameter(torch.zeros(num_classes))

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        logits = functional.linear(embeddings, self.class_vectors, self.class_biases)
        return functional.cross_entropy(logits, labels)
