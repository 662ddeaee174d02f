"""Losses over class vectors that weight hard examples, or also train on past embeddings."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from simple_spk.distributed import mean_over_ranks
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.margin import ArcFaceLoss, SphericalLoss, at, cosine_of_wider_angle, put


class CircleLoss(SphericalLoss):
    """Cross-entropy of ``s [1 + m - cos theta_y]_+ (cos theta_y - 1 + m)`` for the true class, and
    ``s [cos theta_j + m]_+ (cos theta_j - m)`` for the others; brackets carry no gradient.

    Sun et al., Circle Loss: A Unified Perspective of Pair Similarity Optimization, 2020, with class
    vectors. Their scale for faces is 256.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        margin: float = 0.25,
        logit_scale: float = 64.0,
        margin_ramp: Sequence[int] | None = None,
    ) -> None:
        super().__init__(embedding_dim, num_classes, margin, logit_scale, margin_ramp)

    def logits(self, embeddings: Tensor, labels: Tensor, class_vectors: Tensor) -> Tensor:
        cosines = self.cosines(embeddings, class_vectors)
        targets = at(cosines, labels)
        target_weights = (1.0 + self.margin - targets.detach()).clamp(min=0.0)
        weights = (cosines.detach() + self.margin).clamp(min=0.0)
        return self.logit_scale * put(
            weights * (cosines - self.margin),
            labels,
            target_weights * (targets - 1.0 + self.margin),
        )


class CurricularFaceLoss(SphericalLoss):
    """ArcFace in which hard classes, ``cos theta_j > cos(theta_y + m)``, count as
    ``cos theta_j (t + cos theta_j)``; t is the moving average of the mean ``cos theta_y``.

    Huang et al., CurricularFace: Adaptive Curriculum Learning Loss for Deep Face Recognition, 2020.
    ``newest_weight`` is the share of a batch in t.
    """

    mean_target: Tensor

    def __init__(self, *arguments: Any, newest_weight: float = 0.01, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if not 0.0 < newest_weight <= 1.0:
            raise ValueError(f"newest_weight must lie in (0, 1], not {newest_weight}")
        self.newest_weight = newest_weight
        self.register_buffer("mean_target", torch.zeros(()))

    def logits(self, embeddings: Tensor, labels: Tensor, class_vectors: Tensor) -> Tensor:
        cosines = self.cosines(embeddings, class_vectors)
        targets = at(cosines, labels)
        if self.training:
            self.mean_target.lerp_(mean_over_ranks(targets.mean()), self.newest_weight)
        with_margin = cosine_of_wider_angle(targets, self.margin)
        hard = cosines > with_margin[:, None]
        weighted = torch.where(hard, cosines * (self.mean_target.clone() + cosines), cosines)
        return self.logit_scale * put(weighted, labels, with_margin)


class BroadFaceLoss(ArcFaceLoss):
    """ArcFace whose class vectors learn from many past embeddings besides those of the batch.

    The encoder is trained on the batch with fixed class vectors, the class vectors on a queue of
    ``memory_size`` embeddings including the batch. Past embeddings are moved along with their
    class: ``x + |x| / |w_y old| (w_y - w_y old)``. Kim et al., BroadFace: Looking at Tens of
    Thousands of People at Once for Face Recognition, 2020.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        margin: float = 0.2,
        logit_scale: float = 32.0,
        memory_size: int = 8192,
        margin_ramp: Sequence[int] | None = None,
    ) -> None:
        super().__init__(embedding_dim, num_classes, margin, logit_scale, margin_ramp)
        # Each key is an embedding followed by its class vector of that time.
        self.memory = KeyQueue(memory_size, 2 * embedding_dim)

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        held_vectors = self.class_vectors.detach()
        self.memory.enqueue(torch.cat([embeddings, held_vectors[labels]], dim=1), labels)
        remembered, remembered_labels = self.memory.contents()
        past, past_vectors = remembered.chunk(2, dim=1)
        stretch = torch.linalg.vector_norm(past, dim=1, keepdim=True) / (
            torch.linalg.vector_norm(past_vectors, dim=1, keepdim=True)
        )
        moved = past + stretch * (held_vectors[remembered_labels] - past_vectors)
        of_encoder = self.logits(embeddings, labels, held_vectors)
        of_classes = self.logits(moved, remembered_labels, self.class_vectors)
        return functional.cross_entropy(of_encoder, labels) + functional.cross_entropy(
            of_classes, remembered_labels
        )
