"""Two defects of the published SimPLE code, reproduced to measure what they cost.

They are for comparisons alone. Each takes the place of ``KeyQueue`` in a YAML file, as in
hparams/losses/simple_own_key_leak.yaml and simple_random_queue_start.yaml. Source: the authors'
code for faces, ydwen/opensphere.
"""

import torch
from torch import Tensor

from simple_spk.distributed import rank
from simple_spk.losses.key_queue import KeyQueue

LABELS_AT_RANDOM = 10**8  # so many that hardly any is a speaker's


class OwnKeyLeakQueue(KeyQueue):
    """A queue that reports the first slots for every batch, wherever the batch was written.

    In that code the mask that should remove each query's own key from its positives ignores the
    queue's pointer. It is correct once per round of the queue; at all other steps the key of the
    same crop stays a positive and contributes no useful gradient.

    >>> queue = OwnKeyLeakQueue(size=3, embedding_dim=1)
    >>> [queue.enqueue(torch.tensor([[1.0]]), torch.tensor([7])).item() for _ in range(3)]
    [0, 0, 0]
    """

    @torch.no_grad()
    def enqueue(self, keys: Tensor, labels: Tensor) -> Tensor:
        """Write keys (n, dim) over the oldest ones; return the first slots (n,), mostly wrong."""
        slots = super().enqueue(keys, labels)
        return rank() * len(slots) + torch.arange(len(slots), device=slots.device)


class RandomStartQueue(KeyQueue):
    """A queue that starts full, with normal vectors of deviation 0.1 and random labels.

    In that code the queue starts so. Until a whole round of keys has been enqueued, the loss pushes
    embeddings away from vectors of no speaker. The vectors are the same for every seed.
    """

    def __init__(self, size: int, embedding_dim: int) -> None:
        super().__init__(size, embedding_dim)
        generator = torch.Generator().manual_seed(0)
        self.keys.normal_(0.0, 0.1, generator=generator)
        self.labels.random_(LABELS_AT_RANDOM, generator=generator)

    def contents(self) -> tuple[Tensor, Tensor]:
        """All keys (size, dim) and labels (size,), also those that were never enqueued."""
        return self.keys, self.labels
