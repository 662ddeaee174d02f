"""Laws of the face encoders: sizes as published, names as InsightFace's, any output of ours."""

import pytest
import torch
from torch import nn

from recipes.Face.iresnet import IResNet, load_published_weights
from recipes.Face.sfnet import SFNet


def number_of_parameters(make, **arguments):
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in make(**arguments).parameters())


@pytest.mark.parametrize(
    "depth, count", [(18, 24_025_600), (34, 34_139_328), (50, 43_590_848), (100, 65_156_160)]
)
def test_iresnets_are_as_large_as_published(depth, count):
    assert number_of_parameters(IResNet, depth=depth) == count


def test_sfnets_are_as_large_as_published():
    # SphereFace's 20 layers for 112 x 96, of which 22.671 million are told
    assert number_of_parameters(SFNet, depth=20, image_width=96) == 22_670_656
    # by hand: seven more columns of 512 x 7 maps in the linear layer
    assert number_of_parameters(SFNet, depth=20) == 22_670_656 + 512 * 512 * 7
    # a convolution's bias gives way to scale and shift
    channels = 64 * 3 + 128 * 5 + 256 * 9 + 512 * 3
    more = number_of_parameters(SFNet, depth=20, batch_norm=True) - 22_670_656 - 512 * 512 * 7
    assert more == channels
    assert number_of_parameters(SFNet, depth=64) == 50_035_520


@pytest.mark.parametrize("depth", [4, 10, 20, 36, 64])
def test_an_sfnet_has_as_many_convolutions_as_its_name_says(depth):
    with torch.device("meta"):
        layers = [layer for layer in SFNet(depth).modules() if isinstance(layer, nn.Conv2d)]
    assert len(layers) == depth


@pytest.mark.parametrize("image_width", [96, 112])
@pytest.mark.parametrize(
    "make", [lambda **a: SFNet(10, **a), lambda **a: SFNet(10, batch_norm=True, **a), IResNet]
)
@pytest.mark.parametrize(
    "output",
    [None, {"form": "cartesian"}, {"form": "polar", "initial_length": 2.0}],
)
def test_embeddings_have_the_shape_that_was_asked_for(make, image_width, output):
    small = {"width": 4, "embedding_dim": 24, "image_width": image_width, "output": output}
    if make is IResNet:
        small["depth"] = 18
    torch.manual_seed(0)
    encoder = make(**small)
    faces = torch.randn(3, 3, 112, image_width)
    embeddings = encoder(faces)
    assert embeddings.shape == (3, 24) and embeddings.isfinite().all()
    if output is not None and output["form"] == "polar":
        assert torch.allclose(embeddings.norm(dim=1), torch.tensor(2.0))
    embeddings.sum().backward()
    unused = [n for n, p in encoder.named_parameters() if p.requires_grad and p.grad is None]
    assert unused == ([] if output is None or output["form"] == "cartesian" else unused)
    with pytest.raises(ValueError, match=rf"\(n, 3, 112, {image_width}\)"):
        encoder(torch.randn(3, 3, 64, 64))


def test_sixty_four_layers_without_batch_norm_pass_signals_on():
    torch.manual_seed(0)
    encoder = SFNet(64, width=8, embedding_dim=16)
    embeddings = encoder(torch.randn(4, 3, 112, 112))
    assert 1e-4 < embeddings.std() < 1e2


def published_names(depth):
    """The state dict of InsightFace's arcface_torch networks, written down name by name."""
    batch_norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")

    def normalized(name):
        return {f"{name}.{part}" for part in batch_norm}

    names = {"conv1.weight", "prelu.weight", "fc.weight", "fc.bias"}
    names |= normalized("bn1") | normalized("bn2") | normalized("features")
    blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 14, 3), 100: (3, 13, 30, 3)}[depth]
    for stage, count in enumerate(blocks, start=1):
        for number in range(count):
            block = f"layer{stage}.{number}"
            names |= {f"{block}.{part}.weight" for part in ("conv1", "conv2", "prelu")}
            names |= normalized(f"{block}.bn1") | normalized(f"{block}.bn2")
            names |= normalized(f"{block}.bn3")
            if number == 0:
                names |= {f"{block}.downsample.0.weight"} | normalized(f"{block}.downsample.1")
    return names


@pytest.mark.parametrize("depth", [18, 34, 50, 100])
def test_layers_have_the_names_of_published_weights(depth):
    with torch.device("meta"):
        weights = IResNet(depth).state_dict()
    assert set(weights) == published_names(depth)
    assert weights["fc.weight"].shape == (512, 25088)
    assert weights["layer2.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert weights["layer4.1.conv1.weight"].shape == (512, 512, 3, 3)


def test_published_weights_load_with_either_output(tmp_path):
    torch.manual_seed(0)
    small = {"depth": 18, "width": 4, "embedding_dim": 8}
    published = IResNet(**small).eval()
    for name, buffer in published.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
    torch.save(published.state_dict(), tmp_path / "backbone.pth")
    faces = torch.randn(2, 3, 112, 112)
    same = load_published_weights(IResNet(**small), tmp_path / "backbone.pth").eval()
    assert torch.equal(same(faces), published(faces))

    ours = IResNet(**small, output={"form": "polar", "initial_length": 2.0})
    before = ours.output.linear.weight.clone()
    load_published_weights(ours, tmp_path / "backbone.pth")
    assert torch.equal(ours.layer3[1].conv1.weight, published.layer3[1].conv1.weight)
    assert torch.equal(ours.output.linear.weight, before)

    for other in ({"depth": 34}, {"width": 8}, {"embedding_dim": 9}):
        with pytest.raises(ValueError, match=r"backbone\.pth does not hold"):
            load_published_weights(IResNet(**(small | other)), tmp_path / "backbone.pth")


def test_an_encoder_remembers_how_it_was_made():
    for make in (SFNet, IResNet):
        with torch.device("meta"):
            first = make(width=8, output={"form": "polar", "initial_length": 2.0})
            again = make(**first.arguments)
        assert [(n, t.shape) for n, t in first.state_dict().items()] == [
            (n, t.shape) for n, t in again.state_dict().items()
        ]
        with pytest.raises(ValueError, match="of depth"):
            make(depth=19)
