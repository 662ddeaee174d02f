"""The start with class vectors: which loss counts when, and that both get a gradient."""

import pytest
import torch
from torch.nn import functional

from simple_spk.losses.margin import SoftmaxLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.losses.warm_start import WarmStartLoss


def make(steps: int = 10) -> WarmStartLoss:
    torch.manual_seed(0)
    simple = SimPLELoss(initial_bias=0.5, templates=True)
    return WarmStartLoss(SoftmaxLoss(6, 5), simple, steps, fill_steps=3, length=4.0)


def batch() -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, ...]]:
    torch.manual_seed(1)
    keys, key_labels = torch.randn(12, 6), torch.arange(12) % 5
    return torch.randn(4, 6), key_labels[:4], (keys, key_labels, torch.arange(4))


def test_each_stage_has_its_loss() -> None:
    loss, (queries, labels, queue) = make(), batch()
    directions = 4.0 * functional.normalize(queries, dim=1)
    for step, expected in (
        (0, loss.first(directions, labels)),
        (9, loss.first(directions, labels)),
        (10, loss.then(queries, labels, *queue)),
        (1000, loss.then(queries, labels, *queue)),
    ):
        loss.at_step(step)
        torch.testing.assert_close(loss(queries, labels, *queue), expected)


def test_the_queue_is_filled_just_before_it_is_needed() -> None:
    loss, (queries, labels, _) = make(), batch()
    uses = []
    for step in range(12):
        loss.at_step(step)
        uses.append(loss.uses_queue)
    assert uses == [False] * 7 + [True] * 5
    loss.at_step(0)
    assert torch.isfinite(loss(queries, labels))  # without a queue


def test_the_first_stage_leaves_lengths_alone() -> None:
    loss, (queries, labels, _) = make(), batch()
    queries.requires_grad_()
    loss(queries, labels).backward()
    assert queries.grad is not None
    along = (queries.grad * queries.detach()).sum(dim=1)
    torch.testing.assert_close(along, torch.zeros(4), atol=1e-6, rtol=0.0)


@pytest.mark.parametrize("step", [0, 50])
def test_every_parameter_has_a_gradient_in_every_stage(step: int) -> None:
    loss, (queries, labels, queue) = make(), batch()
    loss.at_step(step)
    loss(queries, labels, *queue).backward()
    for name, parameter in loss.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()) == (name.startswith("first") == (step == 0)), name


def test_scores_and_threshold_are_those_of_simple() -> None:
    loss = make()
    assert loss.similarity is loss.then.similarity and loss.bias is loss.then.bias
    with pytest.raises(ValueError, match="steps -1"):
        make(steps=-1)
