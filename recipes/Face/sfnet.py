"""SFNet, the networks of SphereFace: strided convolutions, each followed by residual blocks.

They were published for faces of 112 x 96; their authors added the option of BatchNorm later.
"""

import math

from torch import Tensor, nn

from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.saved_arguments import remember_arguments

STRIDE = 16  # of all four stages together
# Residual blocks per stage, by the total number of convolutions.
BLOCKS_OF_DEPTH = {
    4: (0, 0, 0, 0),
    10: (0, 1, 2, 0),
    20: (1, 2, 4, 1),
    36: (2, 4, 8, 2),
    64: (3, 8, 16, 3),
}


@remember_arguments
class SFNet(nn.Module):
    """Embeddings (n, embedding_dim) of aligned faces (n, 3, height, width) in [-1, 1].

    Arguments:
        depth: 4, 10, 20, 36 or 64 convolutions.
        width: channels of the first stage; each of the three later ones doubles them.
        height, image_width: size of the faces; the published networks take 112 x 96 or 112 x 112.
        batch_norm: BatchNorm after each convolution, which then has no bias.
        embedding_dim: size of the embedding.
        output: further arguments of ``EmbeddingHead``.
    """

    def __init__(
        self,
        depth: int = 20,
        width: int = 64,
        height: int = 112,
        image_width: int = 112,
        batch_norm: bool = False,
        embedding_dim: int = 512,
        output: dict | None = None,
    ) -> None:
        super().__init__()
        if depth not in BLOCKS_OF_DEPTH:
            raise ValueError(f"there is an SFNet of depth {list(BLOCKS_OF_DEPTH)}, not {depth}")
        self.height, self.image_width = height, image_width
        stages, channels = [], 3
        for number, blocks in enumerate(BLOCKS_OF_DEPTH[depth]):
            wider = width * 2**number
            first = convolution(channels, wider, 2, batch_norm)
            nn.init.xavier_normal_(first.get_parameter("0.weight"))
            stages.append(
                nn.Sequential(first, *(ResidualBlock(wider, batch_norm) for _ in range(blocks)))
            )
            channels = wider
        self.stages = nn.Sequential(*stages)
        area = math.ceil(height / STRIDE) * math.ceil(image_width / STRIDE)
        self.output = EmbeddingHead(channels * area, embedding_dim, **(output or {}))

    def forward(self, faces: Tensor) -> Tensor:
        check_face_size(faces, self.height, self.image_width)
        return self.output(self.stages(faces).flatten(1))


def check_face_size(faces: Tensor, height: int, width: int) -> None:
    """Raise unless faces are a batch (n, 3, height, width)."""
    if faces.ndim != 4 or tuple(faces.shape[1:]) != (3, height, width):
        raise ValueError(
            f"the encoder takes faces of shape (n, 3, {height}, {width}), not "
            f"{tuple(faces.shape)}: align the images to that size, or set it in the encoder"
        )


class ResidualBlock(nn.Module):
    """Two convolutions, each with its activation, and a residual connection."""

    def __init__(self, channels: int, batch_norm: bool) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            convolution(channels, channels, 1, batch_norm),
            convolution(channels, channels, 1, batch_norm),
        )
        for layer in self.convolutions.modules():
            if isinstance(layer, nn.Conv2d) and not batch_norm:
                # The block starts near the identity, so that 64 layers train without BatchNorm.
                nn.init.normal_(layer.weight, std=0.01)

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.convolutions(maps)


def convolution(input_channels: int, channels: int, stride: int, batch_norm: bool) -> nn.Sequential:
    """A 3 x 3 convolution, optional BatchNorm, and a PReLU with a slope per channel."""
    layers: list[nn.Module] = [
        nn.Conv2d(input_channels, channels, 3, stride=stride, padding=1, bias=not batch_norm)
    ]
    if batch_norm:
        layers.append(nn.BatchNorm2d(channels))
    return nn.Sequential(*layers, nn.PReLU(channels))
