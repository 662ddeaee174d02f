"""Pairwise similarities, used by the loss and by scoring alike.

Every similarity is an inner product of *lifted* embeddings, that is of embeddings with a further
component: ``S(x, z) = <lift_queries(x), lift_keys(z)>``. So the loss over a queue of half a million
keys, and the scores of half a million trials, are matrix products for any similarity.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk import ANGULAR_BIAS
from simple_spk.models.saved_arguments import remember_arguments


class Similarity(nn.Module):
    """A symmetric score of two embeddings, written as an inner product of lifted embeddings."""

    def lift_queries(self, queries: Tensor) -> Tensor:
        """Queries (n, dim) as (n, lifted_dim); learnable parameters belong here."""
        raise NotImplementedError

    def lift_keys(self, keys: Tensor) -> Tensor:
        """Keys (m, dim) as (m, lifted_dim), without parameters, so that stored keys stay valid."""
        raise NotImplementedError

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """All scores (n, m) of queries (n, dim) against keys (m, dim)."""
        return self.lift_queries(queries) @ self.lift_keys(keys).T

    def pairs(self, enroll: Tensor, test: Tensor) -> Tensor:
        """Scores (n,) of row i of ``enroll`` (n, dim) against row i of ``test`` (n, dim)."""
        return (self.lift_queries(enroll) * self.lift_keys(test)).sum(dim=-1)


@remember_arguments
class GeneralizedInnerProduct(Similarity):
    """The paper's Eq. 6: ``S(x, z) = <x, z> - b_theta |x| |z| = |x| |z| (cos(x, z) - b_theta)``.

    ``angular_bias`` is the paper's b_theta: the cosine at which the score changes sign. Every
    experiment of the paper keeps it fixed; ``learnable=True`` is the reading of its text.

    >>> similarity = GeneralizedInnerProduct(angular_bias=0.5)
    >>> similarity(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([[ 3.0000, -1.5000]])
    """

    angular_bias: Tensor

    def __init__(self, angular_bias: float = ANGULAR_BIAS, learnable: bool = False) -> None:
        super().__init__()
        if not -1.0 <= angular_bias <= 1.0:
            raise ValueError(
                f"angular_bias is a cosine and must lie in [-1, 1], not {angular_bias}"
            )
        value = torch.tensor(float(angular_bias))
        if learnable:
            self.angular_bias = nn.Parameter(value)
        else:
            self.register_buffer("angular_bias", value)

    def lift_queries(self, queries: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(queries, dim=-1, keepdim=True)
        return torch.cat([queries, -self.angular_bias * lengths], dim=-1)

    def lift_keys(self, keys: Tensor) -> Tensor:
        return torch.cat([keys, torch.linalg.vector_norm(keys, dim=-1, keepdim=True)], dim=-1)


@remember_arguments
class CosineSimilarity(Similarity):
    """``scale`` times the cosine: the paper's ablation, and the score of losses over class vectors.

    SimPLE needs a scale above 1, as its scores must exceed one unit.
    """

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        if scale <= 0.0:
            raise ValueError(f"scale must be positive, not {scale}")
        self.scale = scale

    def lift_queries(self, queries: Tensor) -> Tensor:
        return self.scale * functional.normalize(queries, dim=-1)

    def lift_keys(self, keys: Tensor) -> Tensor:
        return functional.normalize(keys, dim=-1)
