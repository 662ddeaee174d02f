"""The first-in-first-out queue of keys: many more pairs for a query than its batch has."""

import torch
from torch import Tensor, nn

from simple_spk.distributed import gather_in_rank_order, rank, world_size


class KeyQueue(nn.Module):
    """A ring buffer of the newest ``size`` keys and their labels, the same on every process.

    ``contents`` returns only what was enqueued, never empty slots. All state is in buffers, so that
    checkpoints have it; without parameters, the module needs no data-parallel wrapper.

    >>> queue = KeyQueue(size=3, embedding_dim=1)
    >>> queue.enqueue(torch.tensor([[1.0], [2.0]]), torch.tensor([7, 8]))
    tensor([0, 1])
    >>> queue.enqueue(torch.tensor([[3.0], [4.0]]), torch.tensor([7, 9]))
    tensor([2, 0])
    >>> queue.contents()
    (tensor([[4.],
            [2.],
            [3.]]), tensor([9, 8, 7]))
    """

    keys: Tensor
    labels: Tensor
    enqueued: Tensor

    def __init__(self, size: int, embedding_dim: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a queue holds at least one key, but size is {size}")
        self.size = size
        self.register_buffer("keys", torch.zeros(size, embedding_dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.long))
        self.register_buffer("enqueued", torch.zeros((), dtype=torch.long))  # in all

    @torch.no_grad()
    def enqueue(self, keys: Tensor, labels: Tensor) -> Tensor:
        """Overwrite the oldest keys with keys (n, dim); return their slots (n,).

        The keys of all processes are written, in rank order, so that every process has the same
        queue; the slots returned are those of this process's keys.
        """
        local_count = len(keys)
        if keys.shape[1:] != self.keys.shape[1:]:
            raise ValueError(
                f"keys have {keys.shape[1]} components, but the queue was made for "
                f"{self.keys.shape[1]}: give encoder and queue the same embedding_dim"
            )
        keys = gather_in_rank_order(keys.to(self.keys.dtype))
        labels = gather_in_rank_order(labels)
        if len(keys) > self.size:
            raise ValueError(
                f"the queue holds {self.size} keys but a batch brings {len(keys)} ({local_count} "
                f"from each of {world_size()} processes): make the queue at least as large"
            )
        slots = (self.enqueued + torch.arange(len(keys), device=self.keys.device)) % self.size
        self.keys[slots] = keys
        self.labels[slots] = labels
        self.enqueued += len(keys)
        return slots[rank() * local_count :][:local_count]

    def contents(self) -> tuple[Tensor, Tensor]:
        """The stored keys (m, dim) and labels (m,); slot numbers from ``enqueue`` index both.

        Both are views: the next ``enqueue`` changes them.
        """
        filled = min(int(self.enqueued), self.size)
        return self.keys[:filled], self.labels[:filled]
