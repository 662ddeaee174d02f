"""Laws of the moving-average encoder, against its recursion."""

import pytest
import torch
from torch import Tensor, nn

from simple_spk.models.momentum_encoder import MomentumEncoder


class Encoder(nn.Module):
    """A linear layer behind BatchNorm, called as encoders are."""

    def __init__(self) -> None:
        super().__init__()
        self.normalization = nn.BatchNorm1d(3)
        self.linear = nn.Linear(3, 2)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.linear(self.normalization(features))


def make_encoder(seed: int = 0) -> Encoder:
    torch.manual_seed(seed)
    return Encoder().double()


def disturb(encoder: nn.Module) -> None:
    """What an optimizer does: change all parameters in place."""
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter))


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.5, 0.9, 0.999, 1.0])
def test_follows_the_recursion(momentum: float) -> None:
    encoder = make_encoder()
    average = MomentumEncoder(encoder, momentum)
    expected = [parameter.detach().clone() for parameter in encoder.parameters()]
    for _ in range(20):
        disturb(encoder)
        average.update(encoder)
        expected = [
            momentum * old + (1.0 - momentum) * new
            for old, new in zip(expected, encoder.parameters(), strict=True)
        ]
        for mine, other in zip(average.parameters(), expected, strict=True):
            torch.testing.assert_close(mine.data, other, rtol=1e-12, atol=1e-12)


def test_starts_as_a_copy_that_shares_nothing() -> None:
    encoder = make_encoder()
    average = MomentumEncoder(encoder)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    disturb(encoder)
    encoder(torch.randn(8, 3, dtype=torch.float64))  # moves the running statistics
    for name, tensor in average.encoder.state_dict().items():
        assert torch.equal(tensor, before[name]), name
        assert not torch.equal(tensor, encoder.state_dict()[name]), name


def test_an_update_leaves_the_encoder_and_all_running_statistics_alone() -> None:
    encoder = make_encoder()
    average = MomentumEncoder(encoder, 0.5)
    encoder(torch.randn(8, 3, dtype=torch.float64))
    disturb(encoder)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    buffers = [buffer.clone() for buffer in average.buffers()]
    average.update(encoder)
    assert all(torch.equal(before[name], now) for name, now in encoder.state_dict().items())
    assert all(torch.equal(a, b) for a, b in zip(buffers, average.buffers(), strict=True))


def test_no_gradients_in_the_copy_but_still_in_the_encoder() -> None:
    encoder = make_encoder()
    average = MomentumEncoder(encoder)
    assert not any(parameter.requires_grad for parameter in average.parameters())
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    features = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    assert not average(features).requires_grad
    assert encoder(features).requires_grad


def test_the_copy_answers_as_the_encoder_would() -> None:
    encoder = make_encoder()
    features = torch.randn(8, 3, dtype=torch.float64)
    average = MomentumEncoder(encoder, 0.0)
    disturb(encoder)
    average.update(encoder)
    torch.testing.assert_close(average(features), encoder(features).detach())


def test_a_schedule_holds_each_value_from_its_step_on() -> None:
    average = MomentumEncoder(make_encoder(), {300: 0.99, 0: 0.9, 5: 0.95})
    assert average.momentum == 0.9
    momenta = {}
    for step in (400, 300, 299, 5, 4, 0):  # any order: a resumed run may begin anywhere
        average.at_step(step)
        momenta[step] = average.momentum
    assert momenta == {400: 0.99, 300: 0.99, 299: 0.95, 5: 0.95, 4: 0.9, 0: 0.9}


@pytest.mark.parametrize("momentum", [-0.1, 1.1, float("nan"), {}, {5: 0.9}, {0: 0.9, 10: 2.0}])
def test_bad_values_raise(momentum: float | dict[int, float]) -> None:
    with pytest.raises(ValueError, match="momentum must be"):
        MomentumEncoder(make_encoder(), momentum)
