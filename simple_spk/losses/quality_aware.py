"""Losses over class vectors in which the embedding length measures the quality of a recording.

They need an embedding head whose length is free from the first step.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from simple_spk.distributed import gather_in_rank_order
from simple_spk.losses.margin import (
    SMALLEST_GAP,
    ArcFaceLoss,
    SphericalLoss,
    angles_of,
    at,
    cosine_of_wider_angle,
    put,
)


def log_bessel_i(order: float, values: Tensor) -> Tensor:
    """``log I_order`` of positive values (n,), by the power series, in double precision.

    Written by hand because SciPy's underflows for large orders. All terms are positive; their
    number grows with half of the largest value.

    >>> log_bessel_i(0.5, torch.tensor([1.0]))  # I_1/2(x) = sqrt(2 / (pi x)) sinh x
    tensor([-0.0644])
    """
    halves = values.double()[:, None] / 2.0
    largest = float(halves.detach().max())
    peak = math.hypot(order / 2.0, largest) - order / 2.0  # the number of the largest term
    terms = torch.arange(
        int(peak + 12.0 * math.sqrt(peak)) + 30, dtype=torch.float64, device=values.device
    )
    logs = 2.0 * terms * halves.log() - torch.lgamma(terms + 1.0)
    logs = logs - torch.lgamma(terms + order + 1.0)
    return (torch.logsumexp(logs, dim=1) + order * halves[:, 0].log()).to(values.dtype)


class MagFaceLoss(SphericalLoss):
    """ArcFace whose margin rises with the length a of the embedding, plus a regularizer of a.

    The margin rises linearly from the first of ``margins`` to the second while a goes from the
    first of ``lengths`` to the second, u; a is clamped to them. The regularizer is
    ``length_weight (1 / a + a / u^2)``. Meng et al., MagFace: A Universal Representation for Face
    Recognition and Quality Assessment, 2021. The defaults are theirs except for scale and margins,
    which are smaller, as is usual for speakers.

    Below ``least_length_weight`` the shortest length can be optimal for all recordings (the
    authors' weight is 1.5 times that of their setting).
    """

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        margins: Sequence[float] = (0.1, 0.3),
        lengths: Sequence[float] = (10.0, 110.0),
        length_weight: float = 35.0,
        logit_scale: float = 32.0,
    ) -> None:
        super().__init__(embedding_dim, num_classes, 0.0, logit_scale)
        if len(margins) != 2 or not 0.0 <= margins[0] <= margins[1]:
            raise ValueError(f"margins must be two rising numbers, not {margins}")
        if len(lengths) != 2 or not 0.0 < lengths[0] < lengths[1]:
            raise ValueError(f"lengths must be two rising positive numbers, not {lengths}")
        if length_weight < 0.0:
            raise ValueError(f"length_weight must not be negative, but is {length_weight}")
        self.margins = margins
        self.lengths = lengths
        self.length_weight = length_weight

    @property
    def least_length_weight(self) -> float:
        """``s K l^2 u^2 / (u^2 - l^2)`` for lengths from l to u and margins that rise by K."""
        shortest, longest = self.lengths
        rise = (self.margins[1] - self.margins[0]) / (longest - shortest)
        return self.logit_scale * rise / (shortest**-2 - longest**-2)

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        shortest, longest = self.lengths
        lengths = torch.linalg.vector_norm(embeddings, dim=1).clamp(shortest, longest)
        shares = (lengths - shortest) / (longest - shortest)
        margins = self.margins[0] + shares * (self.margins[1] - self.margins[0])
        cosines = self.cosines(embeddings, self.class_vectors)
        targets = cosine_of_wider_angle(at(cosines, labels), margins)
        logits = self.logit_scale * put(cosines, labels, targets)
        regularizers = 1.0 / lengths + lengths / longest**2
        return functional.cross_entropy(logits, labels) + self.length_weight * regularizers.mean()


class AdaFaceLoss(SphericalLoss):
    """NormFace with ``s (cos(theta_y - m z) - m z - m)`` for the true class, where z in [-1, 1] is
    the embedding's length, standardized: the margin is angular for short, additive for long ones.

    ``z = h (|x| - mean) / standard deviation``, clamped to [-1, 1], without gradient; both moments
    are moving averages with the weight ``newest_weight`` for the newest batch, as in the authors'
    code. ``concentration`` is h. Kim et al., AdaFace: Quality Adaptive Margin for Face Recognition,
    2022; their margin is 0.4, their scale 64.
    """

    length_mean: Tensor
    length_deviation: Tensor

    def __init__(
        self,
        *arguments: Any,
        concentration: float = 0.333,
        newest_weight: float = 0.01,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        if concentration < 0.0 or not 0.0 < newest_weight <= 1.0:
            raise ValueError(
                f"concentration {concentration} must not be negative, newest_weight "
                f"{newest_weight} must lie in (0, 1]"
            )
        self.concentration = concentration
        self.newest_weight = newest_weight
        self.register_buffer("length_mean", torch.tensor(20.0))
        self.register_buffer("length_deviation", torch.tensor(100.0))

    def logits(self, embeddings: Tensor, labels: Tensor, class_vectors: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(embeddings.detach(), dim=1)
        if self.training:
            of_all_ranks = gather_in_rank_order(lengths)
            self.length_mean.lerp_(of_all_ranks.mean(), self.newest_weight)
            if len(of_all_ranks) > 1:
                self.length_deviation.lerp_(of_all_ranks.std(), self.newest_weight)
        # The small number keeps rounding of equal lengths from being amplified.
        standardized = (lengths - self.length_mean) / (self.length_deviation + 1e-3)
        qualities = (self.concentration * standardized).clamp(-1.0, 1.0)
        cosines = self.cosines(embeddings, class_vectors)
        angles = angles_of(at(cosines, labels)) - self.margin * qualities
        smallest = math.sqrt(2.0 * SMALLEST_GAP)
        turned = torch.cos(angles.clamp(smallest, math.pi - smallest))
        return self.logit_scale * put(cosines, labels, turned - self.margin * (qualities + 1.0))


class SCFArcFaceLoss(ArcFaceLoss):
    """ArcFace for the direction of an embedding, and for its length the negative log density of the
    true class in a von Mises-Fisher distribution around it.

    With d components, radius s and concentration k, a multiple of the length: ``-k cos theta_y -
    (d / 2 - 1) log k + log I_{d/2 - 1}(k) + d / 2 log(2 pi s^2)``, where theta_y carries no
    gradient. Its minimum is at ``I_{d/2}(k) / I_{d/2 - 1}(k) = cos theta_y``: embeddings near their
    class vector grow long. Li et al., Spherical Confidence Learning for Face Recognition, 2021;
    there a separate network, trained last, gives k. The plain mean of such embeddings is that
    paper's confidence pooling.

    Arguments beyond ArcFace's:
        confidence_weight: weight of the second part.
        concentration_per_length: k for an embedding of length 1.
    """

    def __init__(
        self,
        *arguments: Any,
        confidence_weight: float = 0.1,
        concentration_per_length: float = 10.0,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        if confidence_weight < 0.0 or concentration_per_length <= 0.0:
            raise ValueError(
                f"confidence_weight {confidence_weight} must not be negative, "
                f"concentration_per_length {concentration_per_length} must be positive"
            )
        self.confidence_weight = confidence_weight
        self.concentration_per_length = concentration_per_length

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        dim = embeddings.shape[1]
        with torch.no_grad():
            targets = at(self.cosines(embeddings, self.class_vectors), labels)
        lengths = torch.linalg.vector_norm(embeddings, dim=1)
        concentrations = (self.concentration_per_length * lengths).clamp(min=SMALLEST_GAP)
        order = dim / 2.0 - 1.0
        surprise = (
            log_bessel_i(order, concentrations)
            - order * concentrations.log()
            - concentrations * targets
            + dim * math.log(math.sqrt(2.0 * math.pi) * self.logit_scale)
        )
        return super().loss_of(embeddings, labels) + self.confidence_weight * surprise.mean()
