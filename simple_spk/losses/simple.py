"""The SimPLE objective (the paper's Eq. 8): binary cross-entropy over pairs."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.distributed import mean_over_ranks
from simple_spk.losses.pair_sums import PairCounts, pair_sums
from simple_spk.models.similarity import GeneralizedInnerProduct, Similarity
from simple_spk.schedules import StepwiseValue

Reduction = Literal["separate", "joint"]


class SimPLELoss(nn.Module):
    """Mean over pairs of ``alpha log(1 + exp(-(S + b) / r))`` for the same speaker and of
    ``(1 - alpha) log(1 + exp((S + b) r))`` for two speakers, where S is the similarity.

    Arguments, with the paper's letters:
        similarity: S, shared with scoring.
        positive_weight: alpha, the weight of positive pairs.
        sharpness: r, which emphasizes hard negatives and easy positives.
        scale: a factor on the whole loss (the loss weight of the authors' code).
        initial_bias: initial value of b, one learnable number. A pair is accepted if S > -b.
        reduction: "separate" averages positives and negatives separately, as the authors' code
            does (alpha = 0.001 only makes sense so); "joint" takes one mean over all pairs, as the
            formula reads.
        templates: queries are paired with the mean key of each speaker in the queue instead of
            single keys, as enrollment averages recordings at test time. This is ours.

    positive_weight, sharpness and scale are numbers, or mappings from the training step at which a
    number begins to hold: ``{0: 2.0, 5000: 4.0}``.

    With several processes the means run over the pairs of all of them, so that averaged gradients
    equal those of one process with the joined batch.
    """

    def __init__(
        self,
        similarity: Similarity | None = None,
        positive_weight: float | dict[int, float] = 0.001,
        sharpness: float | dict[int, float] = 3.0,
        scale: float | dict[int, float] = 1.0,
        initial_bias: float = -10.0,
        reduction: Reduction = "separate",
        templates: bool = False,
    ) -> None:
        super().__init__()
        self.positive_weights = StepwiseValue("positive_weight", positive_weight, float)
        self.sharpnesses = StepwiseValue("sharpness", sharpness, float)
        self.scales = StepwiseValue("scale", scale, float)
        if not all(0.0 < value < 1.0 for value in self.positive_weights.values):
            raise ValueError(f"positive_weight must lie between 0 and 1, not {positive_weight}")
        if not all(value > 0.0 for value in (*self.sharpnesses.values, *self.scales.values)):
            raise ValueError(f"sharpness and scale must be positive, not {sharpness} and {scale}")
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction must be one of {get_args(Reduction)}, not {reduction!r}")
        self.similarity = GeneralizedInnerProduct() if similarity is None else similarity
        self.at_step(0)
        self.reduction = reduction
        self.templates = templates
        self.bias = nn.Parameter(torch.tensor(float(initial_bias)))

    def at_step(self, step: int) -> None:
        """Set the values of this training step."""
        self.positive_weight = self.positive_weights(step)
        self.sharpness = self.sharpnesses(step)
        self.scale = self.scales(step)

    def forward(
        self, queries: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor, own_keys: Tensor
    ) -> Tensor:
        """The loss of queries (n, dim) with labels (n,) against keys (m, dim) with key_labels (m,).

        own_keys (n,) is the index of the key of the same crop: that pair is left out. Keys that
        require a gradient (those of a queue do not) get it from ``reference``.
        """
        if self.templates:
            with torch.autocast(queries.device.type, enabled=False):
                return self.against_templates(queries.to(keys.dtype), keys, key_labels, own_keys)
        if keys.requires_grad:
            return self.reference(queries, labels, keys, key_labels, own_keys)
        with torch.autocast(queries.device.type, enabled=False):  # sums over millions of pairs
            queries = queries.to(keys.dtype)
            positive_sum, negative_sum, counts = pair_sums(
                self.similarity.lift_queries(queries),
                self.bias,
                labels,
                keys,
                key_labels,
                own_keys,
                self.similarity.lift_keys,
                self.sharpness,
            )
            return self._reduce(positive_sum, negative_sum, counts)

    def reference(
        self, queries: Tensor, labels: Tensor, keys: Tensor, key_labels: Tensor, own_keys: Tensor
    ) -> Tensor:
        """The same loss as ``forward``, as the formula reads, with whole (n, m) matrices."""
        scores = self.similarity(queries, keys) + self.bias
        same = labels[:, None] == key_labels[None, :]
        own = torch.zeros_like(same).scatter_(1, own_keys[:, None], True)
        positive, negative = same & ~own, ~same & ~own
        positive_sum = -functional.logsigmoid(scores[positive] / self.sharpness).sum()
        negative_sum = -functional.logsigmoid(-scores[negative] * self.sharpness).sum()
        return self._reduce(positive_sum, negative_sum, PairCounts(positive.sum(), negative.sum()))

    def against_templates(
        self, queries: Tensor, keys: Tensor, key_labels: Tensor, own_keys: Tensor
    ) -> Tensor:
        """The loss of queries (n, dim) against the mean key of each label, without the own key.

        Speakers are few: unlike those of single keys, the (n, speakers) scores fit into memory.
        """
        speakers, speaker_of_key = torch.unique(key_labels, return_inverse=True)
        counts = torch.bincount(speaker_of_key, minlength=len(speakers)).to(keys.dtype)[:, None]
        sums = keys.new_zeros(len(speakers), keys.shape[1]).index_add_(0, speaker_of_key, keys)
        own = speaker_of_key[own_keys]
        others = counts[own] - 1.0
        own_templates = (sums[own] - keys[own_keys]) / others.clamp(min=1.0)
        positive = functional.softplus(
            -(self.similarity.pairs(queries, own_templates) + self.bias) / self.sharpness
        )
        negative = functional.softplus(
            (self.similarity(queries, sums / counts) + self.bias) * self.sharpness
        ).scatter(1, own[:, None], 0.0)
        is_positive = others[:, 0] > 0.0
        counted = PairCounts(is_positive.sum(), own.new_tensor(len(own) * (len(speakers) - 1)))
        return self._reduce((positive * is_positive).sum(), negative.sum(), counted)

    def _reduce(self, positive_sum: Tensor, negative_sum: Tensor, counts: PairCounts) -> Tensor:
        """The weighted mean of summed losses; the counts are means over all processes."""
        positives, negatives = mean_over_ranks(torch.stack(counts).to(positive_sum.dtype))
        if self.reduction == "joint":
            positives = negatives = positives + negatives
        return self.scale * (
            self.positive_weight * positive_sum / positives.clamp(min=1.0)
            + (1.0 - self.positive_weight) * negative_sum / negatives.clamp(min=1.0)
        )
