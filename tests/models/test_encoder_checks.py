"""The check of encoders passes those that keep the protocol and finds each way to break it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from simple_spk.models.encoder_checks import check_encoder
from simple_spk.models.pooling import ValidFrames, statistics_pooling

DIM, MELS = 3, 5


class Small(nn.Module):
    """A convolution and statistics pooling, done right."""

    num_mels = MELS

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv1d(MELS, DIM, 3, padding=1)
        self.norm = nn.BatchNorm1d(DIM)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        valid = ValidFrames(lengths)
        frames = valid(self.norm(self.conv(valid(features.transpose(1, 2)))))
        return statistics_pooling(frames, lengths)


class NoMels(nn.Linear):
    """It does not say the height of its features."""

    def __init__(self) -> None:
        super().__init__(MELS, DIM)


class IgnoresLengths(Small):
    """The mistake of most encoders."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().forward(features)


class UnmaskedConvolution(Small):
    """What pads is seen by the convolution at the end of a recording."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        frames = ValidFrames(lengths)(self.norm(self.conv(features.transpose(1, 2))))
        return statistics_pooling(frames, lengths)


class UnmaskedNorm(nn.Module):
    """Zeros that pad become the bias of a normalization before the next convolution."""

    num_mels = MELS

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.small = nn.BatchNorm1d(MELS), nn.Conv1d(MELS, DIM, 3, padding=1)

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        valid = ValidFrames(lengths)
        frames = valid(self.small(self.norm(valid(features.transpose(1, 2)))))
        return statistics_pooling(frames, lengths)


class LosesTheEnd(Small):
    """The last frame counts as padding."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        if lengths is None:
            lengths = torch.full((len(features),), features.shape[1])
        lengths = (lengths - 2).clamp(min=1)
        valid = ValidFrames(lengths)
        return statistics_pooling(valid(self.norm(self.conv(valid(features.mT)))), lengths)


class ChangesLengths(Small):
    """It uses a tensor that is not its own."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        embeddings = super().forward(features, lengths)
        if lengths is not None:
            lengths += 1
        return embeddings


class ChangesItself(Small):
    """It keeps running statistics in evaluation mode."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        embeddings = super().forward(features, lengths)
        assert self.norm.running_mean is not None
        self.norm.running_mean += 1e-6
        return embeddings


class SeesTheBatch(Small):
    """Embeddings depend on the others of a batch."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        embeddings = super().forward(features, lengths)
        return embeddings - 0.1 * embeddings.mean(dim=0)


class WithoutUse(Small):
    """A layer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(2, 2)


class NotFinite(Small):
    """A deviation of one frame, divided by zero."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        frames = self.norm(self.conv(features.transpose(1, 2)))
        return frames.std(dim=-1)


class ThreeDimensional(Small):
    """The shape of SpeechBrain's embeddings."""

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().forward(features, lengths)[:, None]


BROKEN: dict[type[nn.Module], str] = {
    NoMels: "num_mels",
    IgnoresLengths: "padding changes",
    UnmaskedConvolution: "padding changes",
    UnmaskedNorm: "padding changes",
    LosesTheEnd: "frame 1 of 2 has no effect",
    ChangesLengths: "the lengths that it is given",
    ChangesItself: "running_mean",
    SeesTheBatch: "padding|order",
    WithoutUse: r"spare\.weight gets no gradient",
    NotFinite: "1 frames has an embedding that is not finite",
    ThreeDimensional: "shape",
}


@pytest.mark.parametrize("cls", BROKEN, ids=lambda cls: cls.__name__)
def test_a_broken_encoder_is_found(cls: Callable[[], nn.Module]) -> None:
    with pytest.raises(AssertionError, match=BROKEN[cls]):
        check_encoder(cls())


def test_an_encoder_that_keeps_the_protocol_passes_and_is_left_as_it_is() -> None:
    encoder = Small()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    check_encoder(encoder)
    check_encoder(encoder.eval(), lengths=(30, 7))
    assert not encoder.training
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(parameter.grad is None for parameter in encoder.parameters())
