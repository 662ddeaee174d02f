"""A start with class vectors: they find directions for the speakers, then SimPLE takes over."""

import torch
from torch import Tensor, nn

from simple_spk.losses.margin import ProxyLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.similarity import Similarity


class WarmStartLoss(nn.Module):
    """A loss with class vectors for the first ``steps`` training steps, and SimPLE from then on.

    From scratch, SimPLE learns more slowly than class vectors. It needs few steps once directions
    are known. The first loss sees embeddings as directions times ``length``, so that it does not
    change their lengths.

    Arguments:
        first: the loss of the first stage. It is of no use afterwards.
        then: the loss of the second stage; its similarity scores in both.
        steps: when SimPLE takes over. Resuming needs only the number of the step.
        fill_steps: so many steps before that, the momentum encoder starts to fill the queue.
        length: of the embeddings that the first loss sees. Softmax, whose logits grow with it,
            wants about the square root of the dimension; losses over cosines ignore it.
    """

    def __init__(
        self,
        first: ProxyLoss,
        then: SimPLELoss,
        steps: int,
        fill_steps: int = 100,
        length: float = 16.0,
    ) -> None:
        super().__init__()
        if steps < 0 or fill_steps < 0 or length <= 0.0:
            raise ValueError(
                f"steps {steps}, fill_steps {fill_steps}, length {length}: expected numbers of "
                f"steps and a positive length"
            )
        self.first, self.then = first, then
        self.steps, self.fill_steps, self.length = steps, fill_steps, length
        self.at_step(0)

    def at_step(self, step: int) -> None:
        """Choose the stage of this training step."""
        self.is_first_stage = step < self.steps
        self.uses_queue = step >= self.steps - self.fill_steps

    @property
    def similarity(self) -> Similarity:
        """That of SimPLE."""
        return self.then.similarity

    @property
    def bias(self) -> nn.Parameter:
        """That of SimPLE."""
        return self.then.bias

    def forward(self, queries: Tensor, labels: Tensor, *queue: Tensor) -> Tensor:
        """The loss of this stage; queue has the keys, key_labels and own_keys of ``SimPLELoss``."""
        if self.is_first_stage:
            directions = nn.functional.normalize(queries.float(), dim=-1)
            loss = self.first(self.length * directions, labels)
        else:
            loss = self.then(queries, labels, *queue)
        # Data-parallel training wants a gradient for every parameter in every step.
        idle = self.then if self.is_first_stage else self.first
        return loss + 0.0 * torch.stack([torch.sum(p) for p in idle.parameters()]).sum()
