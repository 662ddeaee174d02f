"""Sums of the pair losses over a long queue, and their gradients, in one pass and little memory.

Written by hand because automatic differentiation of the formula keeps several matrices of batch x
queue (a gigabyte each at 512 x 524,288). Here one tile of them exists at a time:

* the tile's logits are one matrix product, because similarities are inner products of lifted
  embeddings (``similarity.py``) and the bias is one more column of them;
* the gradient is taken in the same pass, while the tile is in the cache, by the second product;
* positive pairs are few: they are taken out of the tiles and computed apart;
* keys that are easy negatives for every query, most of them in a trained model, contribute less
  than rounding: they cost their share of the first product and nothing else.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

# Elements of a tile: small enough for a processor's cache, large enough to keep a GPU busy.
TILE_ELEMENTS = {"cpu": 2**20, "cuda": 2**25}


class PairCounts(NamedTuple):
    """How many positive and negative pairs there are, as tensors without dimensions."""

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
    lifted tile by tile with ``lift_keys``. The key own_keys[i] is no partner for query i.
    """
    same_rows, same_columns = _same_label_pairs(labels, key_labels)
    is_own = own_keys[same_rows] == same_columns
    pair_count = len(labels) * len(keys)
    counts = PairCounts(
        positives=(~is_own).sum(),
        negatives=is_own.new_tensor(pair_count - len(is_own), dtype=torch.long),
    )
    queries = torch.cat([lifted_queries, bias.expand(len(lifted_queries), 1)], dim=1)
    positive_rows, positive_columns = same_rows[~is_own], same_columns[~is_own]
    positive_keys = _with_one(lift_keys(keys[positive_columns]))
    positive_logits = (queries[positive_rows] * positive_keys).sum(dim=1)
    positive_sum = -functional.logsigmoid(positive_logits / sharpness).sum()
    negative_sum: Tensor = _NegativeSum.apply(
        queries, keys, same_rows, same_columns, lift_keys, sharpness
    )
    return positive_sum, negative_sum, counts


def _same_label_pairs(labels: Tensor, key_labels: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of all pairs of equal label, by ascending column, without an (n, m) mask."""
    candidates = torch.isin(key_labels, labels).nonzero()[:, 0]
    same = key_labels[candidates][:, None] == labels[None, :]
    positions, rows = same.nonzero(as_tuple=True)
    return rows, candidates[positions]


def _with_one(lifted_keys: Tensor) -> Tensor:
    """Lifted keys with a column of ones, the partner of the bias among the queries."""
    return functional.pad(lifted_keys, (0, 1), value=1.0)


class _NegativeSum(torch.autograd.Function):
    """Sum of softplus(r <query, key>) over all but the excluded pairs; gradient for queries."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        excluded_rows: Tensor,
        excluded_columns: Tensor,
        lift_keys: Callable[[Tensor], Tensor],
        sharpness: float,
    ) -> Tensor:
        scaled_queries = queries * sharpness
        # A pair below this logit has a loss, and a gradient weight, of less than rounding of 1e-3.
        negligible = math.log(torch.finfo(queries.dtype).eps) - 7.0
        gradient = torch.zeros_like(queries)
        total = queries.new_zeros(())
        tile_keys = max(1, TILE_ELEMENTS.get(queries.device.type, 2**24) // len(queries))
        starts = range(0, len(keys), tile_keys)
        bounds = torch.searchsorted(
            excluded_columns, torch.tensor([*starts, len(keys)], device=keys.device)
        ).tolist()
        for number, start in enumerate(starts):
            tile = _with_one(lift_keys(keys[start : start + tile_keys]))
            logits = scaled_queries @ tile.T
            inside = slice(bounds[number], bounds[number + 1])
            logits[excluded_rows[inside], excluded_columns[inside] - start] = -torch.inf
            hard = (logits.amax(dim=0) > negligible).nonzero()[:, 0]
            if 2 * len(hard) < len(tile):
                logits, tile = logits[:, hard], tile[hard]
            # The floor keeps denormal numbers, which are slow, out of the second product.
            logits.clamp_(min=2.0 * negligible)
            weights = torch.sigmoid(logits)
            # softplus(x) = max(x, 0) - log(1 - p), p = min(sigmoid(x), sigmoid(-x)): exact at both
            # ends and several times faster than functional.softplus.
            total += logits.clamp_(min=0.0).sum()
            torch.sub(1.0, weights, out=logits)
            total -= torch.minimum(logits, weights, out=logits).neg_().log1p_().sum()
            gradient.addmm_(weights, tile)
        ctx.save_for_backward(gradient.mul_(sharpness))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer_gradient: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * outer_gradient, None, None, None, None, None
