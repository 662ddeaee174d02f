"""Pairwise similarities: the one object that both trains and scores.

Every similarity here is an inner product of *lifted* embeddings,
``S(x, z) = <lift_queries(x), lift_keys(z)>``. That is what lets the loss walk a queue of half a
million keys, and scoring a list of half a million trials, with plain products, without knowing
which similarity is in use.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.models.saved_arguments import remember_arguments

ANGULAR_BIAS = 0.3  # b_theta in every experiment of the paper


class Similarity(nn.Module):
    """A symmetric score of two embeddings, written as an inner product of lifted embeddings."""

    def lift_queries(self, queries: Tensor) -> Tensor:
        """Queries (n, dim) as (n, lifted_dim); all learnable parameters act here."""
        raise AssertionError(f"{type(self).__name__} must define lift_queries")

    def lift_keys(self, keys: Tensor) -> Tensor:
        """Keys (m, dim) as (m, lifted_dim); free of parameters, so that stored keys stay valid."""
        raise AssertionError(f"{type(self).__name__} must define lift_keys")

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
    """The cosine between embeddings: the paper's ablation, and what proxy losses score with.

    Training with SimPLE wants scores of more than one unit: a ``scale`` multiplies them.
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
