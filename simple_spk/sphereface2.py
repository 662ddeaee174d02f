"""SphereFace2: a binary classifier per class, with one boundary for all of them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.proxy_losses import SphericalLoss, with_gradient_of


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
        initial_bias: where b, one learnable number, starts; None: where the first loss is least.
        detached: ``g(cos theta) - cos theta`` carries no gradient, so that g weighs pairs but does
            not bend the way they are pushed: with t = 3 its slope is nearly nil where cosines are
            negative. The authors' code, and speaker toolkits after it, train so; the paper's text
            does not say it.
    """

    def __init__(
        self,
        embedding_dim: int,
        num_classes: int,
        margin: float = 0.2,
        logit_scale: float = 32.0,
        positive_weight: float = 0.7,
        exponent: float = 3.0,
        scale: float = 50.0,
        initial_bias: float | None = None,
        margin_ramp: Sequence[int] | None = None,
        detached: bool = False,
    ) -> None:
        super().__init__(embedding_dim, num_classes, logit_scale, margin, margin_ramp)
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
        """The b of least loss when all cosines are 0: the root of a quadratic equation in e^b."""
        zero = 2.0 * 0.5**self.exponent - 1.0
        odds = self.positive_weight / ((1.0 - self.positive_weight) * (self.num_classes - 1))
        margin = self.full_margin if self.margin_ramp is None else self.no_margin
        reach = self.logit_scale * margin
        root = math.hypot(1.0 - odds, 2.0 * math.sqrt(odds) * math.exp(-reach))
        middle = -self.logit_scale * zero
        if odds > 1.0:  # few classes: the form of the root in which nothing cancels
            return middle + reach + math.log((odds - 1.0 + root) / 2.0)
        return middle - reach + math.log(2.0 * odds / (1.0 - odds + root))
