"""Encoders of images: names and shapes of published weights, frozen BatchNorm, any torchvision."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("torchvision")

from recipes.CUB200.bn_inception import BNInception
from simple_spk.vision.encoders import ImageEncoder, SmallTrunk, TorchvisionTrunk


@pytest.fixture(scope="module")
def bn_inception() -> BNInception:
    torch.manual_seed(0)
    return BNInception().eval()


def test_bn_inception_has_the_layers_of_the_published_weights(bn_inception: BNInception) -> None:
    """Names and shapes as in the file's own index, of which these are the telling ones."""
    state = bn_inception.state_dict()
    for name, shape in {
        "conv1_7x7_s2.weight": (64, 3, 7, 7),
        "conv2_3x3.weight": (192, 64, 3, 3),
        "inception_3a_1x1.weight": (64, 192, 1, 1),
        "inception_3a_pool_proj.weight": (32, 192, 1, 1),
        "inception_3c_double_3x3_2.weight": (96, 96, 3, 3),
        "inception_4a_1x1.weight": (224, 576, 1, 1),
        "inception_4d_double_3x3_1.weight": (192, 160, 3, 3),
        "inception_4e_3x3.weight": (192, 128, 3, 3),
        "inception_5a_3x3_reduce.weight": (192, 1056, 1, 1),
        "inception_5b_pool_proj.weight": (128, 1024, 1, 1),
        "inception_5b_pool_proj_bn.running_var": (128,),
    }.items():
        assert tuple(state[name].shape) == shape, name
    weights = [name for name in state if not name.endswith("num_batches_tracked")]
    convolutions = {name.rpartition(".")[0] for name in weights if "_bn." not in name}
    assert len(convolutions) == 69 and len(weights) == 6 * 69
    assert "inception_3c_1x1.weight" not in state and "inception_4e_pool_proj.weight" not in state
    # Published: 11,295,240 weights, of which the classifier has 1,025,000.
    assert sum(p.numel() for p in bn_inception.parameters()) == 11_295_240 - 1_025_000


def test_bn_inception_takes_the_benchmark_s_images(bn_inception: BNInception) -> None:
    for side in (64, 224, 227):
        with torch.no_grad():
            features = bn_inception(torch.randn(1, 3, side, side))
        assert features.shape == (1, 1024) and (features >= 0).all() and features.std() > 0
    with pytest.raises(ValueError, match="cannot halve"):
        bn_inception(torch.randn(1, 3, 120, 120))


@pytest.mark.parametrize("old", [False, True])
def test_bn_inception_loads_files_new_and_old(
    bn_inception: BNInception, tmp_path: Path, old: bool
) -> None:
    state = {
        name: tensor[None] if old and "_bn." in name and tensor.ndim == 1 else tensor
        for name, tensor in bn_inception.state_dict().items()
        if not (old and name.endswith("num_batches_tracked"))
    }
    state |= {"last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)}
    torch.save(state, tmp_path / "weights.pth")
    loaded = BNInception(tmp_path / "weights.pth").eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(loaded(images), bn_inception(images))
    del state["inception_4a_3x3.weight"]
    torch.save(state, tmp_path / "damaged.pth")
    with pytest.raises(ValueError, match=re.escape("damaged.pth does not hold")):
        BNInception(tmp_path / "damaged.pth")


def test_frozen_batchnorm_keeps_its_statistics_and_learns_its_scales() -> None:
    torch.manual_seed(0)
    output = {"form": "polar", "centered": True, "initial_length": 2.0}
    for frozen in (True, False):
        encoder = ImageEncoder(SmallTrunk((4, 8)), 6, output, freeze_batchnorm=frozen).train()
        before = {name: tensor.clone() for name, tensor in encoder.named_buffers()}
        encoder(torch.randn(8, 3, 16, 16)).sum().backward()
        moved = {n for n, t in encoder.named_buffers() if not torch.equal(t, before[n])}
        assert ("trunk" in " ".join(moved)) != frozen
        assert any(name.startswith("output.centering") for name in moved)  # this one is ours
        assert all(p.grad is not None for p in encoder.trunk.parameters())
        assert not encoder.eval().training and not any(m.training for m in encoder.modules())


@pytest.mark.parametrize("name, features", [("resnet18", 512), ("mobilenet_v3_small", 1024)])
def test_any_torchvision_classifier_is_a_trunk(name: str, features: int, tmp_path: Path) -> None:
    trunk = TorchvisionTrunk(name).eval()
    assert trunk.feature_dim == features
    assert trunk(torch.randn(2, 3, 64, 64)).shape == (2, features)
    assert not any(isinstance(m, nn.Linear) and m.out_features == 1000 for m in trunk.modules())


def test_torchvision_weights_come_from_a_file(tmp_path: Path) -> None:
    import torchvision

    model = torchvision.models.resnet18(weights=None).eval()
    torch.save(model.state_dict(), tmp_path / "resnet18.pth")
    trunk = TorchvisionTrunk("resnet18", tmp_path / "resnet18.pth").eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(model.fc(trunk(images)), model(images))
    with pytest.raises(ValueError, match=r"resnet18.pth does not hold the weights of resnet34"):
        TorchvisionTrunk("resnet34", tmp_path / "resnet18.pth")
    with pytest.raises(ValueError, match="no classifier resnet19"):
        TorchvisionTrunk("resnet19")
