"""A small convolutional network, to be trained from scratch on a processor in minutes."""

from collections.abc import Sequence

from torch import Tensor, nn


class SmallTrunk(nn.Module):
    """Features (n, widths[-1]) of images (n, 3, height, width) of some 64 pixels.

    Each stage halves the image: a convolution with stride 2 and one beside a shortcut.
    """

    def __init__(self, widths: Sequence[int] = (24, 48, 96, 192)) -> None:
        super().__init__()
        self.feature_dim = widths[-1]
        self.stages = nn.Sequential()
        inputs = 3
        for width in widths:
            self.stages.append(
                nn.Sequential(Layer(inputs, width, 2), Shortcut(Layer(width, width)))
            )
            inputs = width

    def forward(self, images: Tensor) -> Tensor:
        return self.stages(images).mean(dim=(2, 3))


class Layer(nn.Sequential):
    """Convolution, BatchNorm, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        )


class Shortcut(nn.Module):
    """A layer beside a shortcut."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.layer(maps)
