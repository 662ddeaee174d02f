"""The last layer of an encoder: from pooled statistics to an embedding."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

HeadForm = Literal["cartesian", "polar"]


class EmbeddingHead(nn.Module):
    """A linear layer that gives the embedding (cartesian: the paper's text), or its direction, the
    length being a separate softplus output (polar: the authors' face code).

    hidden_dim: size of a hidden layer with ReLU; None, as everywhere in the paper, for none.

    The other arguments are ours: they stabilize the start of training. Their defaults do nothing.
        centered: BatchNorm without scale and shift on the linear output, so that directions differ
            from the first step on.
        initial_length, hold_steps: for so many training steps every embedding has exactly this
            length. While the mean positive cosine is below b_theta, the loss would shrink lengths
            and with them all gradients to zero. A polar length starts from this value.
        minimum_length: lower bound of a polar length.
    """

    length_is_held: Tensor

    def __init__(
        self,
        input_dim: int,
        embedding_dim: int,
        form: HeadForm = "cartesian",
        centered: bool = False,
        initial_length: float | None = None,
        hold_steps: int = 0,
        minimum_length: float = 0.0,
        hidden_dim: int | None = None,
    ) -> None:
        super().__init__()
        if form not in get_args(HeadForm):
            raise ValueError(f"the output form must be one of {get_args(HeadForm)}, not {form!r}")
        if initial_length is None and (hold_steps > 0 or form == "polar"):
            raise ValueError("a held or polar length needs an initial_length, for example 2.0")
        if initial_length is not None and initial_length <= minimum_length:
            raise ValueError(
                f"initial_length {initial_length} must be above minimum_length {minimum_length}"
            )
        if minimum_length < 0.0 or hold_steps < 0:
            raise ValueError(f"negative: minimum_length {minimum_length}, hold_steps {hold_steps}")
        if form == "cartesian" and minimum_length > 0.0:
            raise ValueError("minimum_length needs the polar form: a cartesian length is free")
        self.form = form
        self.initial_length = initial_length
        self.hold_steps = hold_steps
        self.minimum_length = minimum_length
        self.hidden: nn.Module = nn.Identity()
        if hidden_dim is not None:
            self.hidden = nn.Sequential(nn.Linear(input_dim, hidden_dim), nn.ReLU())
            input_dim = hidden_dim
        self.linear = nn.Linear(input_dim, embedding_dim)
        self.centering = nn.BatchNorm1d(embedding_dim, affine=False) if centered else nn.Identity()
        self.register_buffer("length_is_held", torch.tensor(hold_steps > 0))
        if form == "polar":
            self.length = nn.Linear(input_dim, 1)
            nn.init.zeros_(self.length.weight)
            nn.init.zeros_(self.length.bias)

    def at_step(self, step: int) -> None:
        """Fix the length before training step ``hold_steps``; from there on it is free."""
        self.length_is_held.fill_(step < self.hold_steps)

    def forward(self, statistics: Tensor) -> Tensor:
        """Embeddings (n, embedding_dim) of pooled statistics (n, input_dim)."""
        statistics = self.hidden(statistics)
        vectors = self.centering(self.linear(statistics))
        if self.initial_length is None:
            return vectors
        directions = functional.normalize(vectors, dim=-1)
        held = directions * self.initial_length
        if self.form == "cartesian":
            return torch.where(self.length_is_held, held, vectors)
        range_above = self.initial_length - self.minimum_length
        offset = range_above + math.log(-math.expm1(-range_above))  # the inverse of softplus
        lengths = self.minimum_length + functional.softplus(self.length(statistics) + offset)
        return torch.where(self.length_is_held, held, directions * lengths)
