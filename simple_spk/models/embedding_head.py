"""The last layer of an encoder: from pooled statistics to an embedding."""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

HeadForm = Literal["cartesian", "polar", "log_polar"]
LENGTH_PARTS = ("length", "standardize")
LARGEST_LOG_LENGTH = 1.5  # log-polar lengths stay within a factor of e^1.5 of the initial length


class EmbeddingHead(nn.Module):
    """A linear layer that gives the embedding, or its direction beside a separate length.

    form:
        cartesian: the embedding is the linear output, as the paper's text has it.
        polar: length = minimum_length + softplus(linear output), as in the authors' face code.
        log_polar: length = initial_length * exp(1.5 tanh(h / 1.5)), where h is a linear output of
            the standardized statistics that starts at zero. This form is ours. Training begins
            with equal lengths, and no gradient step can take them to zero, where the gradient of
            directions vanishes: so no phase with a fixed length is needed.
    centered: BatchNorm without scale and shift on the linear output, so that directions differ
        from the first step on. This is ours, too.
    initial_length: the length before training; needed by polar and log_polar.
    hidden_dim: size of a hidden layer with ReLU; None, as everywhere in the paper, for none.
    """

    def __init__(
        self,
        input_dim: int,
        embedding_dim: int,
        form: HeadForm = "cartesian",
        centered: bool = False,
        initial_length: float | None = None,
        minimum_length: float = 0.0,
        hidden_dim: int | None = None,
    ) -> None:
        super().__init__()
        if form not in get_args(HeadForm):
            raise ValueError(f"the output form must be one of {get_args(HeadForm)}, not {form!r}")
        if (initial_length is None) != (form == "cartesian"):
            raise ValueError(
                f"polar and log_polar need an initial_length, for example 2.0, and cartesian has "
                f"none; the form is {form}, initial_length {initial_length}"
            )
        if minimum_length < 0.0 or (minimum_length > 0.0 and form != "polar"):
            raise ValueError(f"minimum_length {minimum_length}: only polar has one, of at least 0")
        if initial_length is not None and initial_length <= minimum_length:
            raise ValueError(
                f"initial_length {initial_length} must be above minimum_length {minimum_length}"
            )
        self.form = form
        self.initial_length = initial_length
        self.minimum_length = minimum_length
        self.hidden: nn.Module = nn.Identity()
        if hidden_dim is not None:
            self.hidden = nn.Sequential(nn.Linear(input_dim, hidden_dim), nn.ReLU())
            input_dim = hidden_dim
        self.linear = nn.Linear(input_dim, embedding_dim)
        self.centering = nn.BatchNorm1d(embedding_dim, affine=False) if centered else nn.Identity()
        if form != "cartesian":
            self.length = nn.Linear(input_dim, 1, bias=form == "polar")
            for parameter in self.length.parameters():
                nn.init.zeros_(parameter)
        if form == "log_polar":
            self.standardize = nn.BatchNorm1d(input_dim, affine=False)

    def forward(self, statistics: Tensor) -> Tensor:
        """Embeddings (n, embedding_dim) of pooled statistics (n, input_dim)."""
        statistics = self.hidden(statistics)
        vectors = self.centering(self.linear(statistics))
        if self.form == "cartesian":
            return vectors
        return functional.normalize(vectors, dim=-1) * self._lengths(statistics)

    def _lengths(self, statistics: Tensor) -> Tensor:
        """Lengths (n, 1) of the embeddings of statistics (n, input_dim)."""
        assert self.initial_length is not None
        if self.form == "log_polar":
            steepness = self.length(self.standardize(statistics)) / LARGEST_LOG_LENGTH
            return self.initial_length * torch.exp(LARGEST_LOG_LENGTH * torch.tanh(steepness))
        range_above = self.initial_length - self.minimum_length
        offset = range_above + math.log(-math.expm1(-range_above))  # the inverse of softplus
        return self.minimum_length + functional.softplus(self.length(statistics) + offset)

    def in_form(self, form: HeadForm, **arguments: Any) -> "EmbeddingHead":
        """A new head of another form with the same directions."""
        first: Any = self.hidden[0] if isinstance(self.hidden, nn.Sequential) else self.linear
        hidden_dim = None if first is self.linear else first.out_features
        centered = not isinstance(self.centering, nn.Identity)
        sizes = (first.in_features, self.linear.out_features, form, centered)
        head = EmbeddingHead(*sizes, hidden_dim=hidden_dim, **arguments)
        own = {n: t for n, t in self.state_dict().items() if not n.startswith(LENGTH_PARTS)}
        head.load_state_dict(head.state_dict() | own)
        return head


IS_HELD = "output.length_is_held"  # a flag among the weights before format 4 of model folders


def arguments_without_hold(arguments: Mapping[str, Any], is_held: bool) -> dict[str, Any]:
    """The arguments of a head that could hold its length, as version 0.1 had it, as they are now.

    A length that was held to the end becomes that of a polar head with weights of zero.
    """
    kept = {name: value for name, value in arguments.items() if name != "hold_steps"}
    if is_held:
        return kept | {"form": "polar"}
    if kept.get("form", "cartesian") == "cartesian":
        kept.pop("initial_length", None)
    return kept
