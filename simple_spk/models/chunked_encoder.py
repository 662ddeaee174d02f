"""A batch embedded in chunks: memory holds the activations of one chunk at a time."""

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class ChunkedEncoder(nn.Module):
    """An encoder that embeds a batch by ``size`` recordings, for a loss over the whole batch.

    With gradients, the activations of a chunk are dropped after its forward pass and computed again
    for its backward pass (torch's activation checkpointing). Memory falls to that of one chunk,
    time rises by about a quarter. The gradient is that of the chunks in one pass. BatchNorm
    normalizes each chunk by itself, as without SyncBatchNorm each of several processes does; its
    running statistics are updated once.
    """

    def __init__(self, encoder: nn.Module, size: int) -> None:
        super().__init__()
        if size < 2:
            raise ValueError(f"chunks of {size}: BatchNorm needs 2 recordings or more")
        self.encoder, self.size = encoder, size

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Embeddings (n, dim) of features (n, ...), padded after their lengths (n,)."""
        count = min(math.ceil(len(features) / self.size), max(1, len(features) // 2))  # none of one
        if count == 1:
            return self.encoder(features, lengths)
        parts = torch.tensor_split(features, count)
        lengths_of = [None] * count if lengths is None else torch.tensor_split(lengths, count)
        return torch.cat([self._embed(*part) for part in zip(parts, lengths_of, strict=True)])

    def _embed(self, features: Tensor, lengths: Tensor | None) -> Tensor:
        if not torch.is_grad_enabled():
            return self.encoder(features, lengths)
        embeddings: Tensor = checkpoint(
            self.encoder,
            features,
            lengths,
            use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), kept_statistics(self.encoder)),
        )
        return embeddings


@contextlib.contextmanager
def kept_statistics(module: nn.Module) -> Iterator[None]:
    """Within it, forward passes do not change the running statistics of BatchNorm."""
    layers = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [(layer.momentum, layer.num_batches_tracked) for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked = layer.num_batches_tracked.clone()
    try:
        yield
    finally:
        for layer, (momentum, tracked) in zip(layers, before, strict=True):
            layer.momentum, layer.num_batches_tracked = momentum, tracked
