"""Laws of the last layer: what the lengths of embeddings are, and when."""

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


def polar(hold_steps: int = 0, minimum_length: float = 0.0) -> EmbeddingHead:
    """A polar output whose length head has learned something."""
    output = make(
        form="polar", initial_length=2.0, hold_steps=hold_steps, minimum_length=minimum_length
    )
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


@pytest.mark.parametrize("form", ["cartesian", "polar"])
def test_the_length_is_held_for_exactly_so_many_steps(form: str) -> None:
    held = polar(hold_steps=3) if form == "polar" else make(initial_length=2.0, hold_steps=3)
    free = polar() if form == "polar" else make()
    free.load_state_dict(held.state_dict() | {"length_is_held": torch.tensor(False)})
    for step in (None, 0, 1, 2):  # None: as made, before training says where it stands
        if step is not None:
            held.at_step(step)
        torch.testing.assert_close(lengths(held(statistics())), torch.full((6,), 2.0))
    for step in (3, 4, 1000):
        held.at_step(step)
        assert torch.equal(held(statistics()), free(statistics()))
    assert (lengths(free(statistics())) - 2.0).abs().min() > 1e-3


def test_a_saved_output_stays_held_or_free() -> None:
    held, restored = polar(hold_steps=3), polar(hold_steps=3)
    held.at_step(7)
    restored.load_state_dict(held.state_dict())
    assert torch.equal(restored(statistics()), held(statistics()))


def test_the_gradient_reaches_the_length_head_only_when_it_is_free() -> None:
    output = polar(hold_steps=3)
    target = torch.randn(6, 4)
    for step, is_free in ((2, False), (3, True)):
        output.zero_grad()
        output.at_step(step)
        (output(statistics()) * target).sum().backward()
        for parameter in output.length.parameters():
            assert parameter.grad is not None  # data-parallel training wants one for each
            assert bool(parameter.grad.any()) == is_free
        assert output.linear.weight.grad is not None
        assert output.linear.weight.grad.any()


@pytest.mark.parametrize("form", ["cartesian", "polar"])
def test_centering_spreads_directions_from_the_first_step(form: str) -> None:
    """Statistics that differ little give one direction without it, and many with it."""
    similar = 5.0 + 0.01 * statistics(32)
    cosines = {}
    for centered in (False, True):
        output = make(form=form, centered=centered, initial_length=2.0, hold_steps=1)
        directions = functional.normalize(output(similar).detach(), dim=-1)
        cosines[centered] = float(directions.mean(dim=0).norm())
    assert cosines[False] > 0.99
    assert cosines[True] < 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "spherical"}, "spherical"),
        ({"form": "polar"}, "initial_length"),
        ({"hold_steps": 5}, "initial_length"),
        ({"form": "polar", "initial_length": 1.0, "minimum_length": 1.0}, "minimum_length 1.0"),
        ({"form": "polar", "initial_length": 0.0}, "initial_length 0.0"),
        ({"minimum_length": 0.5}, "polar"),
    ],
)
def test_arguments_that_contradict_each_other_raise(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)
