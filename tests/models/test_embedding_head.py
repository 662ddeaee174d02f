"""Laws of the last layer: what the lengths of embeddings are."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.models.embedding_head import EmbeddingHead


def statistics(count: int = 6, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(count, 10, generator=torch.Generator().manual_seed(3))


def make(**options: object) -> EmbeddingHead:
    torch.manual_seed(0)
    return EmbeddingHead(10, 4, **options)  # type: ignore[arg-type]


def polar(minimum_length: float = 0.0) -> EmbeddingHead:
    """A polar output whose length head has learned something."""
    output = make(form="polar", initial_length=2.0, minimum_length=minimum_length)
    nn.init.normal_(output.length.weight)
    nn.init.normal_(output.length.bias)
    return output


def lengths(embeddings: Tensor) -> Tensor:
    return torch.linalg.vector_norm(embeddings, dim=-1)


def test_the_default_is_exactly_a_linear_layer() -> None:
    output = make()
    plain = functional.linear(statistics(), output.linear.weight, output.linear.bias)
    assert torch.equal(output(statistics()), plain)
    assert {name for name, _ in output.named_parameters()} == {"linear.weight", "linear.bias"}


@pytest.mark.parametrize("initial_length", [0.01, 1.0, 2.0, 30.0, 200.0])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_polar_length_starts_at_its_initial_length(initial_length: float, share: float) -> None:
    minimum_length = share * initial_length
    output = make(form="polar", initial_length=initial_length, minimum_length=minimum_length)
    expected = torch.full((6,), initial_length)
    torch.testing.assert_close(lengths(output(statistics())), expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("minimum_length", [0.0, 0.5])
def test_a_polar_length_is_a_softplus_of_its_own(minimum_length: float) -> None:
    """length = minimum + log(1 + exp(w x + c)), with c so that w = 0 gives the initial length."""
    output = polar(minimum_length=minimum_length).double()
    x = statistics().double()
    start = torch.tensor(2.0 - minimum_length, dtype=torch.float64).expm1().log()
    raw = (x @ output.length.weight.T + output.length.bias)[:, 0] + start
    torch.testing.assert_close(lengths(output(x)), minimum_length + raw.exp().log1p())


def test_a_polar_direction_is_that_of_the_linear_layer() -> None:
    output = polar()
    cosines = functional.cosine_similarity(output(statistics()), output.linear(statistics()))
    torch.testing.assert_close(cosines, torch.ones(6))


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_polar_length_never_falls_below_its_minimum(scale: float) -> None:
    output = polar(minimum_length=0.5)
    found = lengths(output(statistics(100, scale)))
    assert found.min() >= 0.5 * (1 - 1e-6)
    assert found.min() < 0.6  # the bound was put to the test


def log_polar(scale: float = 1.0) -> EmbeddingHead:
    """A log-polar output whose length has learned something."""
    output = make(form="log_polar", centered=True, initial_length=2.0)
    nn.init.normal_(output.length.weight, std=scale)
    return output


def test_log_polar_lengths_start_equal_and_follow_the_formula() -> None:
    start = make(form="log_polar", centered=True, initial_length=2.5)
    torch.testing.assert_close(lengths(start(statistics())), torch.full((6,), 2.5))
    output, x = log_polar().double(), statistics().double()
    standardized = (x - x.mean(dim=0)) / (x.var(dim=0, correction=0) + 1e-5).sqrt()
    raw = (standardized @ output.length.weight.T)[:, 0]
    torch.testing.assert_close(lengths(output(x)), 2.0 * (1.5 * (raw / 1.5).tanh()).exp())


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_log_polar_lengths_can_neither_vanish_nor_explode(scale: float) -> None:
    found = lengths(log_polar(scale)(statistics(200)))
    assert found.min() >= 2.0 * math.exp(-1.5) * (1 - 1e-5)
    assert found.max() <= 2.0 * math.exp(1.5) * (1 + 1e-5)
    assert found.max() / found.min() > 2.0  # the bounds were put to the test


def test_the_length_of_a_fresh_log_polar_head_has_a_gradient() -> None:
    """Equal lengths at the start are no fixed point: they are free from the first step on."""
    output = make(form="log_polar", centered=True, initial_length=2.0)
    (lengths(output(statistics())) * torch.randn(6)).sum().backward()
    assert output.length.weight.grad is not None
    assert output.length.weight.grad.abs().max() > 1e-3


@pytest.mark.parametrize("hidden_dim", [None, 5])
@pytest.mark.parametrize("centered", [False, True])
def test_another_form_has_the_same_directions(hidden_dim: int | None, centered: bool) -> None:
    source = make(centered=centered, hidden_dim=hidden_dim)
    for _ in range(3):
        source(statistics())  # moves the running statistics
    head = source.in_form("log_polar", initial_length=3.0).eval()
    expected = 3.0 * functional.normalize(source.eval()(statistics()), dim=-1)
    torch.testing.assert_close(head(statistics()), expected)


@pytest.mark.parametrize("form", ["polar", "log_polar"])
def test_centering_spreads_directions_from_the_first_step(form: str) -> None:
    """Statistics that differ little give one direction without it, and many with it."""
    similar = 5.0 + 0.01 * statistics(32)
    cosines = {}
    for centered in (False, True):
        output = make(form=form, centered=centered, initial_length=2.0)
        directions = functional.normalize(output(similar).detach(), dim=-1)
        cosines[centered] = float(directions.mean(dim=0).norm())
    assert cosines[False] > 0.99
    assert cosines[True] < 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "spherical"}, "spherical"),
        ({"form": "polar"}, "initial_length"),
        ({"form": "log_polar"}, "initial_length"),
        ({"initial_length": 2.0}, "cartesian has none"),
        ({"form": "log_polar", "initial_length": 2.0, "minimum_length": 1.0}, "only polar"),
        ({"form": "polar", "initial_length": 1.0, "minimum_length": 1.0}, "minimum_length 1.0"),
        ({"form": "polar", "initial_length": 0.0}, "initial_length 0.0"),
        ({"minimum_length": 0.5}, "only polar"),
    ],
)
def test_arguments_that_contradict_each_other_raise(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)
