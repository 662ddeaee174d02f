"""SFNet, the networks of SphereFace: strided convolutions, each followed by residual blocks.

As published for faces of 112 x 96; BatchNorm is an option that their authors added later.
"""

from torch import Tensor, nn

from recipes.Face.face_size import check_face_size, size_after_strides
from simple_spk.models.embedding_head import EmbeddingHead
from simple_spk.models.saved_arguments import remember_arguments

# Residual blocks per stage, by the number of convolutions in all.
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
        output: further arguments of ``EmbeddingHead``: its form, and helps for starting.
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
        area = size_after_strides(height, len(stages)) * size_after_strides(
            image_width, len(stages)
        )
        self.output = EmbeddingHead(channels * area, embedding_dim, **(output or {}))

    def forward(self, faces: Tensor) -> Tensor:
        check_face_size(faces, self.height, self.image_width)
        return self.output(self.stages(faces).flatten(1))


class ResidualBlock(nn.Module):
    """Two convolutions, each with its activation, added to what came in."""

    def __init__(self, channels: int, batch_norm: bool) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            convolution(channels, channels, 1, batch_norm),
            convolution(channels, channels, 1, batch_norm),
        )
        for layer in self.convolutions.modules():
            if isinstance(layer, nn.Conv2d) and not batch_norm:
                # Next to nothing is added at first, so that sixty layers train without BatchNorm.
                nn.init.normal_(layer.weight, std=0.01)

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.convolutions(maps)


def convolution(input_channels: int, channels: int, stride: int, batch_norm: bool) -> nn.Sequential:
    """A 3 x 3 convolution, BatchNorm if asked for, and a PReLU with a slope per channel."""
    layers: list[nn.Module] = [
        nn.Conv2d(input_channels, channels, 3, stride=stride, padding=1, bias=not batch_norm)
    ]
    if batch_norm:
        layers.append(nn.BatchNorm2d(channels))
    return nn.Sequential(*layers, nn.PReLU(channels))
