"""Losses and encoders that break the protocol are named in the first step or before it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from speechbrain import Stage
from torch import Tensor, nn

from simple_spk.data.dataset import LabeledBatch
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.margin import SoftmaxLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.losses.warm_start import WarmStartLoss
from simple_spk.training.brain import SimPLEBrain, require_protocol

BATCH = LabeledBatch(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))


class Returns(nn.Module):
    """A loss or an encoder that gives what a function makes of its first argument."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, first: Tensor, *others: Tensor) -> Any:
        return self.function(first)


def brain(loss: nn.Module, encoder: nn.Module | None = None) -> SimPLEBrain:
    made = SimPLEBrain({"encoder": encoder or nn.Linear(3, 2), "loss": loss}, hparams={})
    made.optimizer_step = 0
    return made


def loss_of(made: SimPLEBrain) -> Tensor:
    return made.compute_objectives(made.compute_forward(BATCH, Stage.TRAIN), BATCH, Stage.TRAIN)


def test_losses_are_called_with_what_they_take() -> None:
    simple, softmax = SimPLELoss(), SoftmaxLoss(2, 2)
    require_protocol(simple, has_queue=True)
    require_protocol(softmax, has_queue=False)
    with pytest.raises(ValueError, match=r"SimPLELoss\.forward: missing .* 'keys'.*add both"):
        require_protocol(simple, has_queue=False)
    with pytest.raises(ValueError, match=r"SoftmaxLoss\.forward: too many.*remove both"):
        require_protocol(softmax, has_queue=True)
    warm_start = WarmStartLoss(first=softmax, then=simple, steps=5)
    with pytest.raises(ValueError, match="WarmStartLoss needs a queue"):
        require_protocol(warm_start, has_queue=False)
    with pytest.raises(ValueError, match="Returns has no attribute similarity"):
        require_protocol(Returns(torch.sum), has_queue=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.sum(dim=1), r"Returns returned Tensor of the shape \(4,\): expected"),
        (lambda x: (x.sum(), {}), "Returns returned tuple: expected"),
        (lambda x: x.sum().detach(), "without a gradient"),
    ],
)
def test_a_loss_is_one_number_with_a_gradient(
    function: Callable[[Tensor], Any], message: str
) -> None:
    assert loss_of(brain(Returns(torch.sum))).ndim == 0
    with pytest.raises(ValueError, match=message):
        loss_of(brain(Returns(function)))


def test_a_loss_that_begins_with_nan_is_not_blamed_on_the_learning_rate() -> None:
    made = brain(Returns(torch.sum))
    with pytest.raises(FloatingPointError, match=r"first step is nan.* in Returns"):
        made.check_loss_isfinite(torch.tensor(torch.nan))
    made.optimizer_step = 1
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        made.check_loss_isfinite(torch.tensor(torch.nan))


@pytest.mark.parametrize("function", [lambda x: x[:, None], lambda x: x.T, lambda x: None])
def test_embeddings_have_a_row_for_each_input(function: Callable[[Tensor], Any]) -> None:
    with pytest.raises(ValueError, match=r"Returns returned embeddings .* expected \(4, dim\)"):
        brain(Returns(torch.sum), Returns(function)).compute_forward(BATCH, Stage.TRAIN)


def test_keys_have_the_length_of_the_queue() -> None:
    with pytest.raises(ValueError, match=r"keys have 2 components, .* for 3: give encoder"):
        KeyQueue(size=4, embedding_dim=3).enqueue(torch.zeros(1, 2), torch.zeros(1).long())
