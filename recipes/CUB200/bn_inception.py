"""BN-Inception (Ioffe and Szegedy, 2015), for ImageNet weights that were converted from Caffe.

Layers are named as in the public weight files for PyTorch, such as bn_inception-52deb4733.pth. They
expect BGR images with values up to 255, minus the means 104, 117, 128 of blue, green and red (see
``Normalize``).
"""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.io.tensor_file import read_tensors
from simple_spk.vision.encoders import load_weights

CLASSIFIERS = ("last_linear.", "fc.", "fc_action.")  # layers of the files that are not used here


class Mixed(NamedTuple):
    """The channels of a block of four parallel branches, or of three that halve the image."""

    name: str
    one: int | None  # of the 1x1 branch; None: no such branch, and stride 2
    three: tuple[int, int]  # of the 3x3 branch: reduced, and at the end
    double: tuple[int, int]  # of the branch of two 3x3
    pool: int | None  # after pooling; None: no projection


BLOCKS = (
    Mixed("3a", 64, (64, 64), (64, 96), 32),
    Mixed("3b", 64, (64, 96), (64, 96), 64),
    Mixed("3c", None, (128, 160), (64, 96), None),
    Mixed("4a", 224, (64, 96), (96, 128), 128),
    Mixed("4b", 192, (96, 128), (96, 128), 128),
    Mixed("4c", 160, (128, 160), (128, 160), 128),
    Mixed("4d", 96, (128, 192), (160, 192), 128),
    Mixed("4e", None, (128, 192), (192, 256), None),
    Mixed("5a", 352, (192, 320), (160, 224), 128),
    Mixed("5b", 352, (192, 320), (192, 224), 128),
)
MAXIMUM_POOLING = "5b"  # the only block with stride 1 and max pooling


class BNInception(nn.Module):
    """Features (n, 1024) of images (n, 3, height, width), sides of 224, 227 or a multiple of 32.

    weights: a file of ImageNet weights; None starts from random ones.
    """

    feature_dim = 1024

    def __init__(self, weights: str | Path | None = None) -> None:
        super().__init__()
        self._add("conv1_7x7_s2", 3, 64, 7, 2)
        self._add("conv2_3x3_reduce", 64, 64, 1)
        self._add("conv2_3x3", 64, 192, 3)
        channels = 192
        for block in BLOCKS:
            prefix, stride = f"inception_{block.name}", 2 if block.one is None else 1
            if block.one is not None:
                self._add(f"{prefix}_1x1", channels, block.one, 1)
            self._add(f"{prefix}_3x3_reduce", channels, block.three[0], 1)
            self._add(f"{prefix}_3x3", *block.three, 3, stride)
            self._add(f"{prefix}_double_3x3_reduce", channels, block.double[0], 1)
            self._add(f"{prefix}_double_3x3_1", *block.double, 3)
            self._add(f"{prefix}_double_3x3_2", block.double[1], block.double[1], 3, stride)
            if block.pool is not None:
                self._add(f"{prefix}_pool_proj", channels, block.pool, 1)
            pooled = channels if block.pool is None else block.pool
            channels = (block.one or 0) + block.three[1] + block.double[1] + pooled
        assert channels == self.feature_dim
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # BatchNorm keeps its defaults
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        if weights is not None:
            load_bn_inception(self, Path(weights))

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.max_pool2d(self._layer("conv1_7x7_s2", images), 3, 2, ceil_mode=True)
        maps = self._layer("conv2_3x3", self._layer("conv2_3x3_reduce", maps))
        maps = functional.max_pool2d(maps, 3, 2, ceil_mode=True)
        for block in BLOCKS:
            maps = self._mixed(block, maps)
        return maps.mean(dim=(2, 3))

    def _add(self, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> None:
        """Add a convolution and its BatchNorm."""
        self.add_module(name, nn.Conv2d(inputs, outputs, size, stride, padding=size // 2))
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))

    def _layer(self, name: str, maps: Tensor) -> Tensor:
        """Convolution, BatchNorm, ReLU."""
        convolved = self.get_submodule(name)(maps)
        return torch.relu_(self.get_submodule(f"{name}_bn")(convolved))

    def _mixed(self, block: Mixed, maps: Tensor) -> Tensor:
        """The concatenated branches of a block."""
        prefix = f"inception_{block.name}"
        three = self._layer(f"{prefix}_3x3", self._layer(f"{prefix}_3x3_reduce", maps))
        double = self._layer(f"{prefix}_double_3x3_reduce", maps)
        double = self._layer(f"{prefix}_double_3x3_1", double)
        double = self._layer(f"{prefix}_double_3x3_2", double)
        if block.one is None:
            if maps.shape[2] % 2 or maps.shape[3] % 2:
                raise ValueError(
                    f"BN-Inception cannot halve maps of {maps.shape[2]} x {maps.shape[3]}: use "
                    f"images of 224 or 227 pixels, or of a multiple of 32"
                )
            pooled = functional.max_pool2d(maps, 3, 2, ceil_mode=True)
            return torch.cat([three, double, pooled], dim=1)
        if block.name == MAXIMUM_POOLING:
            pooled = functional.max_pool2d(maps, 3, 1, padding=1)
        else:
            pooled = functional.avg_pool2d(maps, 3, 1, padding=1)
        pooled = self._layer(f"{prefix}_pool_proj", pooled)
        return torch.cat([self._layer(f"{prefix}_1x1", maps), three, double, pooled], dim=1)


def load_bn_inception(model: BNInception, path: Path) -> None:
    """Load the weights of a file into a model; the file's classifier is ignored.

    In files of PyTorch before 0.2, BatchNorm parameters are (1, channels), and the numbers of
    batches are missing.
    """
    found = {
        name: tensor.reshape(-1) if "_bn." in name and tensor.ndim == 2 else tensor
        for name, tensor in read_tensors(path).items()
        if not name.startswith(CLASSIFIERS)
    }
    counts = {n: t for n, t in model.state_dict().items() if n.endswith("num_batches_tracked")}
    load_weights(model, "BN-Inception", path, counts | found)
