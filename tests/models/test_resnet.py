"""Laws of ResNets of several shapes, and of pooling, against a loop."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from simple_spk.models.encoder_checks import check_encoder
from simple_spk.models.pooling import statistics_pooling
from simple_spk.models.resnet import ResNet

POLAR = {"form": "polar", "centered": True, "initial_length": 2.0, "minimum_length": 0.5}
SHAPES = {
    "full depth": {"num_mels": 24, "width": 4, "embedding_dim": 6},
    "strided stem": {"num_mels": 24, "width": 4, "stem_stride": 2, "embedding_dim": 6},
    "odd height": {"num_mels": 23, "width": 8, "blocks": (1, 1, 2), "embedding_dim": 6},
    "polar": {"num_mels": 24, "width": 4, "blocks": (1, 1, 1, 1), "output": POLAR},
    "wide stride": {"num_mels": 20, "width": 3, "blocks": (2, 1), "stem_stride": 3},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_protocol(shape: str) -> None:
    torch.manual_seed(0)
    encoder = ResNet(**SHAPES[shape])
    if shape == "polar":  # whose lengths all start equal
        nn.init.normal_(encoder.output.length.weight, 0.0, 0.1)
    check_encoder(encoder)


def test_the_full_resnet_34_has_its_known_size() -> None:
    """6.6 million parameters, as the ResNet-34 of other speaker verification toolkits."""
    encoder = ResNet(num_mels=80, width=32, embedding_dim=256)
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert sum(c.kernel_size == (3, 3) for c in convolutions) == 33  # and the output makes 34
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 6_634_336


@pytest.mark.parametrize("stem_stride", [1, 2])
def test_a_stride_in_the_stem_costs_no_resolution_of_channels(stem_stride: int) -> None:
    """It only halves the height that pooling sees: all other layers keep their size."""
    encoder = ResNet(width=4, stem_stride=stem_stride, embedding_dim=16)
    assert encoder.output.linear.in_features == 2 * 32 * 10 // stem_stride


def test_statistics_pooling_is_mean_and_deviation_of_valid_frames() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([9, 4, 2])
    frames = torch.randn(3, 5, 9) + 3.0
    for row, length in zip(frames, lengths, strict=True):
        row[:, length:] = 0.0
    pooled = statistics_pooling(frames, lengths)
    for row, length, found in zip(frames, lengths, pooled, strict=True):
        valid = row[:, :length]
        expected = torch.cat([valid.mean(dim=1), valid.std(dim=1)])
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    whole = torch.randn(3, 5, 9)
    assert torch.equal(statistics_pooling(whole, None), statistics_pooling(whole, lengths * 0 + 9))


def test_statistics_pooling_of_a_constant_has_a_finite_gradient() -> None:
    """The square root has none at zero, which silence and single frames would meet."""
    frames = torch.ones(2, 5, 9)
    frames[1, :, 1:] = 0.0
    frames.requires_grad_()
    statistics_pooling(frames, torch.tensor([9, 1])).sum().backward()
    assert frames.grad is not None
    assert frames.grad.isfinite().all()


CHANNELS_LAST = """
import copy, itertools, torch
from simple_spk.models.resnet import ResNet
torch.set_num_threads(1)
for width, frames, stem_stride in itertools.product((4, 8, 12, 16), (50, 307), (1, 2)):
    torch.manual_seed(0)
    plain = ResNet(width=width, stem_stride=stem_stride, blocks=(1, 1, 1, 1), embedding_dim=16)
    nets = plain, copy.deepcopy(plain).to(memory_format=torch.channels_last)
    features = torch.randn(7, frames, 80)
    for low_precision, tolerance in ((False, 0.02), (True, 0.5)):
        gradients = []
        for net in nets:
            net.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=low_precision):
                embeddings = net.train()(features)
            embeddings.float().square().sum().backward()
            gradients.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        error = (gradients[0] - gradients[1]).norm() / gradients[0].norm()
        assert error < tolerance, (width, frames, stem_stride, low_precision, error)
"""


def test_channels_last_trains_with_any_shape() -> None:
    """In a process of its own: what is wrong there corrupts memory, and kills it."""
    done = subprocess.run([sys.executable, "-c", CHANNELS_LAST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
