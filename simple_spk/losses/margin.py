"""Losses with a learnable vector per class: the baselines of SimPLE.

Each is called as ``loss(embeddings, labels)`` and has a ``similarity`` that scores at test time.
Class vectors are ordinary parameters: processes that train together average their gradients.
In formulas w_j is the vector of class j, x an embedding, y its label, and theta_j the angle between
x and w_j.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk import ANGULAR_BIAS
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

# Cosines keep this distance from 1 and -1 where angles are taken: there their slope is infinite.
SMALLEST_GAP = 1e-6
SphereFaceVersion = Literal["v0", "v1", "v2"]


class ProxyLoss(nn.Module):
    """Base class of losses over class vectors; subclasses implement ``loss_of``.

    Arguments:
        num_classes: the number of labels: training speakers, times the number of speeds if each
            speed of a voice counts as another speaker.
        similarity: scores pairs at test time.
        vectors_per_class: those of class j are rows j * vectors_per_class and following.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        similarity: Similarity,
        vectors_per_class: int = 1,
    ) -> None:
        super().__init__()
        if embedding_dim < 1 or num_classes < 2 or vectors_per_class < 1:
            raise ValueError(
                f"embedding_dim {embedding_dim}, num_classes {num_classes} or {vectors_per_class} "
                f"vectors per class: expected at least 1, 2 and 1"
            )
        self.num_classes = num_classes
        self.class_vectors = nn.Parameter(
            torch.empty(num_classes * vectors_per_class, embedding_dim)
        )
        nn.init.xavier_uniform_(self.class_vectors)
        self.similarity = similarity

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of embeddings (n, dim) with labels (n,), in the parameters' precision."""
        dim = self.class_vectors.shape[1]
        if embeddings.shape[1] != dim:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} components, but the loss was made for "
                f"{dim}: give encoder and loss the same embedding_dim"
            )
        largest = int(labels.max())
        if largest >= self.num_classes:
            raise ValueError(
                f"label {largest} occurs, but the loss was made for num_classes: "
                f"{self.num_classes}; it must be the number of training speakers, times the number "
                f"of speeds if each speed of a voice is a speaker of its own"
            )
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.loss_of(embeddings.to(self.class_vectors.dtype), labels)

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The mean loss; mixed precision is off, and all labels are below num_classes."""
        raise NotImplementedError


class SoftmaxLoss(ProxyLoss):
    """Cross-entropy of ``softmax_j(<w_j, x> + c_j)``, with class vectors w and class biases c.

    Embeddings are scored by their cosine, as is usual for softmax models.
    """

    def __init__(self, embedding_dim: int, num_classes: int) -> None:
        super().__init__(embedding_dim, num_classes, CosineSimilarity())
        self.class_biases = nn.Parameter(torch.zeros(num_classes))

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        logits = functional.linear(embeddings, self.class_vectors, self.class_biases)
        return functional.cross_entropy(logits, labels)


class GeneralizedSoftmaxLoss(ProxyLoss):
    """Cross-entropy over ``S(x, w_j) = |x| |w_j| (cos theta_j - b_theta)``: the SimPLE paper's CE*.

    With a margin m, the target's is ``|x| |w_y| (cos theta_y - b_theta - m)``: CosFace*. (The
    paper's appendix prints the margin in the other terms, where it would make the task easier.)
    """

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        angular_bias: float = ANGULAR_BIAS,
        margin: float = 0.0,
    ) -> None:
        super().__init__(embedding_dim, num_classes, GeneralizedInnerProduct(angular_bias))
        if margin < 0.0:
            raise ValueError(f"margin must not be negative, but is {margin}")
        self.margin = margin

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        logits = self.similarity(embeddings, self.class_vectors)
        lengths = torch.linalg.vector_norm(embeddings, dim=1)
        target_lengths = torch.linalg.vector_norm(self.class_vectors, dim=1)[labels]
        targets = at(logits, labels) - self.margin * lengths * target_lengths
        return functional.cross_entropy(put(logits, labels, targets), labels)


class SphericalLoss(ProxyLoss):
    """Base class of losses over cosines: cross-entropy of ``softmax_j(s cos theta_j)``.

    Subclasses implement ``with_margin``, the value that replaces the cosine of the true class, or
    all ``logits``.

    Arguments beyond those of ``ProxyLoss``:
        margin: m, as the formula of the subclass uses it.
        logit_scale: s.
        margin_ramp: two training steps between which the margin rises linearly from none to its
            full value; None: it has its full value from the start.
    """

    no_margin = 0.0

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        margin: float = 0.2,
        logit_scale: float = 32.0,
        margin_ramp: Sequence[int] | None = None,
        vectors_per_class: int = 1,
    ) -> None:
        super().__init__(embedding_dim, num_classes, CosineSimilarity(), vectors_per_class)
        if logit_scale <= 0.0 or margin < self.no_margin:
            raise ValueError(
                f"logit_scale is {logit_scale} and margin {margin}; expected a positive scale and "
                f"a margin of at least {self.no_margin}"
            )
        if margin_ramp is not None and not (
            len(margin_ramp) == 2 and 0 <= margin_ramp[0] < margin_ramp[1]
        ):
            raise ValueError(f"margin_ramp must be two rising steps, not {margin_ramp}")
        self.logit_scale = logit_scale
        self.full_margin = self.margin = margin
        self.margin_ramp = margin_ramp

    def at_step(self, step: int) -> None:
        """Set the margin of a training step."""
        if self.margin_ramp is not None:
            start, end = self.margin_ramp
            share = min(1.0, max(0.0, (step - start) / (end - start)))
            self.margin = self.no_margin + share * (self.full_margin - self.no_margin)

    def cosines(self, embeddings: Tensor, class_vectors: Tensor) -> Tensor:
        """Cosines (n, classes) to the nearest vector of each class."""
        all_cosines = self.similarity(embeddings, class_vectors)
        return all_cosines.view(len(embeddings), self.num_classes, -1).amax(dim=2)

    def with_margin(self, target_cosines: Tensor) -> Tensor:
        """What replaces the cosines (n,) to the true classes."""
        raise NotImplementedError

    def logits(self, embeddings: Tensor, labels: Tensor, class_vectors: Tensor) -> Tensor:
        """Logits (n, classes) of the cross-entropy."""
        cosines = self.cosines(embeddings, class_vectors)
        targets = at(cosines, labels)
        return self.logit_scale * put(cosines, labels, self.with_margin(targets))

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(self.logits(embeddings, labels, self.class_vectors), labels)


class NormFaceLoss(SphericalLoss):
    """Cross-entropy of ``softmax_j(s cos theta_j)``, with s fixed: softmax on the sphere.

    Wang et al., NormFace: L2 Hypersphere Embedding for Face Verification, 2017.
    """

    def __init__(self, embedding_dim: int, num_classes: int, logit_scale: float = 32.0) -> None:
        super().__init__(embedding_dim, num_classes, 0.0, logit_scale)

    def with_margin(self, target_cosines: Tensor) -> Tensor:
        return target_cosines


class CosFaceLoss(SphericalLoss):
    """NormFace with ``s (cos theta_y - m)`` for the true class: AM-Softmax.

    Wang et al., CosFace: Large Margin Cosine Loss for Deep Face Recognition, 2018; Wang et al.,
    Additive Margin Softmax for Face Verification, 2018.
    """

    def with_margin(self, target_cosines: Tensor) -> Tensor:
        return target_cosines - self.margin


class ArcFaceLoss(SphericalLoss):
    """NormFace with ``s cos(theta_y + m)`` for the true class: AAM-Softmax.

    Deng et al., ArcFace: Additive Angular Margin Loss for Deep Face Recognition, 2019. Where
    ``theta_y + m`` exceeds pi, ``cos theta_y - m sin m`` takes over, as in the authors' code. With
    several ``vectors_per_class`` the nearest counts: Deng et al., Sub-center ArcFace, 2020.

    With ``hard_classes`` k, the k nearest other classes get ``s cos(theta_j - m')``, m' being
    ``hard_margin``: the inter-topk penalty of Zhao et al., Multi-Query Multi-Head Attention Pooling
    and Inter-TopK Penalty for Speaker Verification, 2022. It grows with the margin of a ramp.
    """

    def __init__(
        self, *arguments: Any, hard_classes: int = 0, hard_margin: float = 0.06, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        if not 0 <= hard_classes < self.num_classes or hard_margin < 0.0:
            raise ValueError(
                f"hard_classes {hard_classes}, hard_margin {hard_margin}: expected a number below "
                f"that of the {self.num_classes} classes, and a margin of at least 0"
            )
        self.hard_classes, self.hard_margin = hard_classes, hard_margin

    def with_margin(self, target_cosines: Tensor) -> Tensor:
        return cosine_of_wider_angle(target_cosines, self.margin)

    def logits(self, embeddings: Tensor, labels: Tensor, class_vectors: Tensor) -> Tensor:
        logits = super().logits(embeddings, labels, class_vectors)
        if self.hard_classes == 0:
            return logits
        others = put(logits, labels, logits.new_full(labels.shape, -torch.inf))
        hardest, places = others.topk(self.hard_classes, dim=1)
        margin = self.hard_margin * (self.margin / self.full_margin if self.full_margin else 1.0)
        nearer = cosine_of_narrower_angle(hardest / self.logit_scale, margin)
        return logits.scatter(1, places, self.logit_scale * nearer)


class SphereFaceLoss(SphericalLoss):
    """NormFace with a function of ``m theta_y`` for the true class: A-Softmax.

    Version v0 is ``(-1)^k cos(m theta_y) - 2 k``, k being the integer part of ``m theta_y / pi``:
    it decreases monotonically with the angle. Liu et al., SphereFace: Deep Hypersphere Embedding
    for Face Recognition, 2017. The others are SphereFace-R: v1 is ``cos(min(m theta_y, pi))``; v2
    is ``cos theta_y``, but ``cos(theta_j / m)`` for the other classes. Liu et al., SphereFace
    Revived: Unifying Hyperspherical Face Recognition, 2022.

    Arguments beyond those of ``SphericalLoss``:
        logit_scale: None takes each embedding's own length for s, as in 2017.
        detached: the difference between those functions and ``cos theta`` carries no gradient
            ("characteristic gradient detachment"). SphereFace-R trains so, because the slope of
            ``cos(m theta)`` vanishes at some angles and explodes at others.
    """

    no_margin = 1.0

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        margin: float = 1.5,
        logit_scale: float | None = 32.0,
        version: SphereFaceVersion = "v0",
        margin_ramp: Sequence[int] | None = None,
        detached: bool = False,
    ) -> None:
        if version not in get_args(SphereFaceVersion):
            raise ValueError(
                f"version must be one of {get_args(SphereFaceVersion)}, not {version!r}"
            )
        scale = 1.0 if logit_scale is None else logit_scale
        super().__init__(embedding_dim, num_classes, margin, scale, margin_ramp)
        self.scale_is_length = logit_scale is None
        self.detached = detached
        self.version = version

    def with_margin(self, target_cosines: Tensor) -> Tensor:
        if self.version == "v2":
            return target_cosines
        angles = self.margin * angles_of(target_cosines)
        if self.version == "v1":
            return torch.cos(angles.clamp(max=math.pi))
        turns = (angles.detach() / math.pi).floor()
        signs = 1.0 - 2.0 * torch.remainder(turns, 2.0)
        return signs * torch.cos(angles) - 2.0 * turns

    def logits(self, embeddings: Tensor, labels: Tensor, class_vectors: Tensor) -> Tensor:
        cosines = self.cosines(embeddings, class_vectors)
        targets = self.with_margin(at(cosines, labels))
        others = torch.cos(angles_of(cosines) / self.margin) if self.version == "v2" else cosines
        turned = put(others, labels, targets)
        if self.detached:
            turned = with_gradient_of(cosines, turned)
        logits = self.logit_scale * turned
        if self.scale_is_length:
            logits = logits * torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
        return logits


def angles_of(cosines: Tensor) -> Tensor:
    """Angles with finite gradients, also where a cosine is 1 or -1."""
    return torch.arccos(cosines.clamp(SMALLEST_GAP - 1.0, 1.0 - SMALLEST_GAP))


def cosine_of_wider_angle(cosines: Tensor, margin: float | Tensor) -> Tensor:
    """``cos(theta + m)`` for cosines and margins (n,); beyond pi, ``cos theta - m sin m``."""
    margins = torch.as_tensor(margin, dtype=cosines.dtype, device=cosines.device)
    sines = (1.0 - cosines.square()).clamp(min=SMALLEST_GAP).sqrt()
    wider = cosines * torch.cos(margins) - sines * torch.sin(margins)
    return torch.where(cosines > -torch.cos(margins), wider, cosines - margins * margins.sin())


def cosine_of_narrower_angle(cosines: Tensor, margin: float) -> Tensor:
    """``cos(theta - m)`` for cosines; 1 for angles below m."""
    sines = (1.0 - cosines.square()).clamp(min=SMALLEST_GAP).sqrt()
    nearer = cosines * math.cos(margin) + sines * math.sin(margin)
    return torch.where(cosines < math.cos(margin), nearer, torch.ones_like(cosines))


def with_gradient_of(source: Tensor, values: Tensor) -> Tensor:
    """The values, with the gradient of ``source``."""
    return source + (values - source).detach()


def at(values: Tensor, labels: Tensor) -> Tensor:
    """The values (n,) at the labels (n,) of values (n, classes)."""
    return values.gather(1, labels[:, None])[:, 0]


def put(values: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """Values (n, classes) with targets (n,) at the labels (n,)."""
    return values.scatter(1, labels[:, None], targets[:, None])


class SphereFace2Loss(SphericalLoss):
    """``lambda / r log(1 + exp(-r (g(cos theta_y) - m) - b))`` for the true class, and the sum over
    the others of ``(1 - lambda) / r log(1 + exp(r (g(cos theta_j) + m) + b))``.

    Wen et al., SphereFace2: Binary Classification is All You Need for Deep Face Recognition, 2022,
    form C. ``g(z) = 2 ((z + 1) / 2)^t - 1``.

    Arguments, with that paper's letters:
        logit_scale: r.
        positive_weight: lambda.
        exponent: t, which spreads the cosines.
        scale: a factor on the whole loss (the loss weight of the authors' code).
        initial_bias: initial value of the learnable b; None: the one with the lowest initial loss.
        detached: ``g(cos theta) - cos theta`` carries no gradient: with t = 3 the slope of g is
            nearly zero for negative cosines. The authors' code and speaker toolkits train so; the
            paper does not say it.
    """

    def __init__(
        self,
        *arguments: Any,
        positive_weight: float = 0.7,
        exponent: float = 3.0,
        scale: float = 50.0,
        initial_bias: float | None = None,
        detached: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        if not 0.0 < positive_weight < 1.0:
            raise ValueError(f"positive_weight must lie between 0 and 1, not {positive_weight}")
        if exponent <= 0.0 or scale <= 0.0:
            raise ValueError(f"exponent and scale must be positive, not {exponent} and {scale}")
        self.positive_weight = positive_weight
        self.exponent = exponent
        self.scale = scale
        self.detached = detached
        bias = self.best_first_bias() if initial_bias is None else initial_bias
        self.boundary_bias = nn.Parameter(torch.tensor(float(bias)))

    def loss_of(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosines = self.cosines(embeddings, self.class_vectors)
        spread = 2.0 * ((cosines + 1.0) / 2.0).clamp(min=0.0).pow(self.exponent) - 1.0
        if self.detached:
            spread = with_gradient_of(cosines, spread)
        is_target = functional.one_hot(labels, self.num_classes).to(spread.dtype)
        margins = self.margin * (2.0 * is_target - 1.0)
        logits = self.logit_scale * (spread - margins) + self.boundary_bias
        weights = (1.0 - self.positive_weight) + (2.0 * self.positive_weight - 1.0) * is_target
        losses = functional.binary_cross_entropy_with_logits(
            logits, is_target, weight=weights, reduction="none"
        )
        return self.scale / self.logit_scale * losses.sum(dim=1).mean()

    def best_first_bias(self) -> float:
        """The b of lowest loss if all cosines are 0: the root of a quadratic equation in e^b."""
        zero = 2.0 * 0.5**self.exponent - 1.0
        odds = self.positive_weight / ((1.0 - self.positive_weight) * (self.num_classes - 1))
        margin = self.full_margin if self.margin_ramp is None else self.no_margin
        reach = self.logit_scale * margin
        root = math.hypot(1.0 - odds, 2.0 * math.sqrt(odds) * math.exp(-reach))
        middle = -self.logit_scale * zero
        if odds > 1.0:  # few classes: the form of the root in which nothing cancels
            return middle + reach + math.log((odds - 1.0 + root) / 2.0)
        return middle - reach + math.log(2.0 * odds / (1.0 - odds + root))
