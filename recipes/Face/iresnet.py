"""IResNet, the residual network of ArcFace: BatchNorm before the first convolution of each block.

Layers are named as in InsightFace's implementation, so that published weights can be loaded.
"""

import math
from pathlib import Path

from torch import Tensor, nn

from recipes.Face.sfnet import STRIDE, check_face_size
from simple_spk.io.tensor_file import read_tensors
from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.saved_arguments import remember_arguments
from simple_spk.vision.encoders import load_weights

BLOCKS_OF_DEPTH = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 14, 3),
    100: (3, 13, 30, 3),
}
# The layers after the last convolution in InsightFace's networks.
PUBLISHED_OUTPUT = ("fc.", "features.")


@remember_arguments
class IResNet(nn.Module):
    """Embeddings (n, embedding_dim) of aligned faces (n, 3, height, width) in [-1, 1].

    Arguments:
        depth: 18, 34, 50 or 100 layers.
        width: channels of the first stage; each of the three later ones doubles them.
        height, image_width: size of the faces; published weights are for 112 x 112.
        dropout: probability of dropout on the last feature maps.
        embedding_dim: size of the embedding.
        output: arguments of an ``EmbeddingHead``. None: the last layers of InsightFace, which are
            a linear layer and BatchNorm without scale.
    """

    def __init__(
        self,
        depth: int = 100,
        width: int = 64,
        height: int = 112,
        image_width: int = 112,
        dropout: float = 0.0,
        embedding_dim: int = 512,
        output: dict | None = None,
    ) -> None:
        super().__init__()
        if depth not in BLOCKS_OF_DEPTH:
            raise ValueError(f"there is an IResNet of depth {list(BLOCKS_OF_DEPTH)}, not {depth}")
        self.depth, self.height, self.image_width = depth, height, image_width
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.prelu = nn.PReLU(width)
        channels = width
        for number, count in enumerate(BLOCKS_OF_DEPTH[depth]):
            wider = width * 2**number
            first = Block(channels, wider, stride=2)
            rest = (Block(wider, wider, stride=1) for _ in range(count - 1))
            self.add_module(f"layer{number + 1}", nn.Sequential(first, *rest))
            channels = wider
        self.bn2 = nn.BatchNorm2d(channels)
        self.dropout = nn.Dropout(dropout)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.1)
        inputs = channels * math.ceil(height / STRIDE) * math.ceil(image_width / STRIDE)
        if output is None:
            self.fc = nn.Linear(inputs, embedding_dim)
            self.features = nn.BatchNorm1d(embedding_dim)
            self.features.weight.requires_grad_(False)
        else:
            self.output = EmbeddingHead(inputs, embedding_dim, **output)

    def forward(self, faces: Tensor) -> Tensor:
        check_face_size(faces, self.height, self.image_width)
        maps = self.prelu(self.bn1(self.conv1(faces)))
        for number in range(1, 5):
            maps = self.get_submodule(f"layer{number}")(maps)
        statistics = self.dropout(self.bn2(maps).flatten(1))
        if hasattr(self, "output"):
            return self.output(statistics)
        return self.features(self.fc(statistics))


class Block(nn.Module):
    """Two convolutions and a residual connection; the second convolution has the stride."""

    def __init__(self, input_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(input_channels)
        self.conv1 = nn.Conv2d(input_channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.prelu = nn.PReLU(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(input_channels, channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, maps: Tensor) -> Tensor:
        inner = self.prelu(self.bn2(self.conv1(self.bn1(maps))))
        shortcut = maps if self.downsample is None else self.downsample(maps)
        return self.bn3(self.conv2(inner)) + shortcut


def load_published_weights(encoder: IResNet, path: str | Path) -> IResNet:
    """The encoder with the weights of a file of InsightFace's arcface_torch (backbone.pth).

    For an encoder with an ``output``, the last layers of the file are ignored.
    """
    tensors = read_tensors(Path(path))
    if hasattr(encoder, "output"):
        tensors = {n: t for n, t in tensors.items() if not n.startswith(PUBLISHED_OUTPUT)}
        tensors |= encoder.output.state_dict(prefix="output.")
    load_weights(encoder, f"an IResNet of depth {encoder.depth}", path, tensors)
    return encoder
