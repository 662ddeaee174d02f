"""Sums of the pair losses over a long queue, and their gradients, in one pass and little memory.

Written by hand because automatic differentiation keeps several (batch, queue) matrices, a gigabyte
each at 512 x 524,288. Here one tile of them exists at a time:

* the logits of a tile are one matrix product, because similarities are inner products of lifted
  embeddings (``similarity.py``) and the bias is one more column of them;
* a second product computes the gradient in the same pass, while the tile is in the cache;
* positive pairs are few: they are looked for only among the keys of speakers in the batch;
* keys that are easy negatives for every query, most of them in a trained model, contribute less
  than rounding, and take part in the first product only.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

# Elements of a tile: small enough for a CPU's cache, large enough to keep a GPU busy.
TILE_ELEMENTS = {"cpu": 2**20, "cuda": 2**25}


class PairCounts(NamedTuple):
    """Numbers of positive and negative pairs, as tensors ()."""

    positives: Tensor
    negatives: Tensor


def pair_sums(
    lifted_queries: Tensor,
    bias: Tensor,
    labels: Tensor,
    keys: Tensor,
    key_labels: Tensor,
    own_keys: Tensor,
    lift_keys: Callable[[Tensor], Tensor],
    sharpness: float,
) -> tuple[Tensor, Tensor, PairCounts]:
    """Summed softplus(-(S + b) / r) of positive and softplus((S + b) r) of negative pairs, counted.

    lifted_queries (n, lifted_dim) and bias () receive gradients; keys (m, dim) do not, and are
    lifted tile by tile with ``lift_keys``. The key own_keys[i] is not paired with query i.
    """
    queries = torch.cat([lifted_queries, bias.expand(len(lifted_queries), 1)], dim=1)
    positive_sum, negative_sum, positives, negatives = _PairSums.apply(
        queries, labels, keys, key_labels, own_keys, lift_keys, sharpness
    )
    return positive_sum, negative_sum, PairCounts(positives, negatives)


class _PairSums(torch.autograd.Function):
    """Both sums and both counts; a gradient for the queries, whose last column is the bias."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        labels: Tensor,
        keys: Tensor,
        key_labels: Tensor,
        own_keys: Tensor,
        lift_keys: Callable[[Tensor], Tensor],
        sharpness: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        scaled_queries = queries * sharpness
        # Below this logit, loss and gradient weight of a pair are less than rounding of 1e-3.
        negligible = math.log(torch.finfo(queries.dtype).eps) - 7.0
        positive_gradient, negative_gradient = torch.zeros_like(queries), torch.zeros_like(queries)
        positive_sum, negative_sum = queries.new_zeros(()), queries.new_zeros(())
        positives, excluded = own_keys.new_zeros(()), own_keys.new_zeros(())
        tile_keys = max(1, TILE_ELEMENTS.get(queries.device.type, 2**24) // len(queries))
        starts = range(0, len(keys), tile_keys)
        # Keys that are in a positive pair or a query's own, in ascending order.
        related = torch.isin(key_labels, labels).index_fill_(0, own_keys, True).nonzero()[:, 0]
        edges = torch.tensor([*starts, len(keys)], device=keys.device)
        bounds = torch.searchsorted(related, edges).tolist()
        for number, start in enumerate(starts):
            tile = functional.pad(lift_keys(keys[start : start + tile_keys]), (0, 1), value=1.0)
            logits = scaled_queries @ tile.T  # r (S + b)

            columns = related[bounds[number] : bounds[number + 1]]
            same = labels[:, None] == key_labels[columns]
            own = own_keys[:, None] == columns
            positive = same & ~own
            columns = columns - start
            related_logits = logits[:, columns]
            positive_logits = related_logits / sharpness**2
            positive_sum -= (functional.logsigmoid(positive_logits) * positive).sum()
            positive_gradient.addmm_(torch.sigmoid(-positive_logits) * positive, tile[columns])
            positives += positive.sum()
            excluded += (same | own).sum()
            logits[:, columns] = related_logits.masked_fill_(same | own, -torch.inf)

            hard = (~(logits.amax(dim=0) <= negligible)).nonzero()[:, 0]  # NaN included
            if 2 * len(hard) < len(tile):
                logits, tile = logits[:, hard], tile[hard]
            # The floor keeps denormal numbers, which are slow, out of the second product.
            logits.clamp_(min=2.0 * negligible)
            weights = torch.sigmoid(logits)
            # softplus(x) = max(x, 0) - log(1 - p), p = min(sigmoid(x), sigmoid(-x)): exact at both
            # ends and several times faster than functional.softplus.
            negative_sum += logits.clamp_(min=0.0).sum()
            torch.sub(1.0, weights, out=logits)
            negative_sum -= torch.minimum(logits, weights, out=logits).neg_().log1p_().sum()
            negative_gradient.addmm_(weights, tile)
        ctx.save_for_backward(
            positive_gradient.mul_(-1.0 / sharpness), negative_gradient.mul_(sharpness)
        )
        negatives = len(queries) * len(keys) - excluded
        ctx.mark_non_differentiable(positives, negatives)
        return positive_sum, negative_sum, positives, negatives

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_positive_sum: Tensor, of_negative_sum: Tensor, *of_counts: Tensor
    ) -> tuple[Tensor | None, ...]:
        positive_gradient, negative_gradient = ctx.saved_tensors
        gradient = positive_gradient * of_positive_sum + negative_gradient * of_negative_sum
        return gradient, None, None, None, None, None, None
