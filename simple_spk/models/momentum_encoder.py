"""The momentum encoder: a moving average of the encoder that computes the keys."""

import copy

import torch
from torch import Tensor, nn

from simple_spk.schedules import StepwiseValue


class MomentumEncoder(nn.Module):
    """A copy of an encoder, updated as theta_k <- eta theta_k + (1 - eta) theta, without gradient.

    Only parameters are averaged. BatchNorm of the copy computes its own batch statistics, as in the
    authors' code; the copy is never used at test time.

    ``momentum``, the paper's eta, is a number, or for runs too short for 0.999 a mapping from the
    training step at which a number begins to hold: ``{0: 0.9, 300: 0.99}``.
    """

    def __init__(self, encoder: nn.Module, momentum: float | dict[int, float] = 0.999) -> None:
        super().__init__()
        self.schedule = StepwiseValue("momentum", momentum, float)
        if not all(0.0 <= value <= 1.0 for value in self.schedule.values):
            raise ValueError(
                f"momentum must be a number in [0, 1], or a mapping from steps to such numbers, "
                f"not {momentum}"
            )
        self.momentum = self.schedule(0)
        self.encoder = copy.deepcopy(encoder).requires_grad_(False)

    def at_step(self, step: int) -> None:
        """Set the momentum of this training step."""
        self.momentum = self.schedule(step)

    @torch.no_grad()
    def update(self, encoder: nn.Module) -> None:
        """Move the copy's parameters toward those of ``encoder`` by one step."""
        torch._foreach_lerp_(
            list(self.encoder.parameters()), list(encoder.parameters()), 1.0 - self.momentum
        )

    @torch.no_grad()
    def forward(self, *inputs: Tensor | None) -> Tensor:
        """Keys (n, dim) of the encoder's inputs."""
        return self.encoder(*inputs)
