"""What is done to an image between its file and the encoder, in training and in tests.

A step takes an image (3, height, width) and a source of random numbers, and gives an image. All
that is random comes from there, and so from the seed of the example: an image can be made again.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

Step = Callable[[Tensor, np.random.Generator], Tensor]
TRIES = 10  # to place a crop of a random shape inside an image


class ImageTransform:
    """Steps one after the other: from an image, uint8 (3, height, width), and a seed to an input
    of the encoder, float32 (3, height, width)."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)

    def __call__(self, image: Tensor, seed: int = 0) -> Tensor:
        random = np.random.default_rng(seed)
        for step in self.steps:
            image = step(image, random)
        return image


class Resize:
    """The image with its shorter side so many pixels long, its shape kept; or, with two numbers,
    just so high and wide."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = [size] if isinstance(size, int) else list(size)

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        return functional.resize(image, self.size, antialias=True)


class CenterCrop:
    """The middle square of the image; a smaller image gets black edges."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        return functional.center_crop(image, [self.size, self.size])


class RandomResizedCrop:
    """A part of the image, of random area, shape and place, made a square of ``size`` pixels; or,
    with two numbers, so high and wide.

    area: least and greatest share of the image's area.
    aspect: least and greatest width by height; evenly spread by its logarithm.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        area: Sequence[float] = (0.08, 1.0),
        aspect: Sequence[float] = (3 / 4, 4 / 3),
    ) -> None:
        self.size = [size, size] if isinstance(size, int) else list(size)
        self.part = RandomPart(area, aspect)

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        top, left, height, width = self.part(image.shape[-2], image.shape[-1], random)
        return functional.resized_crop(image, top, left, height, width, self.size, antialias=True)


class RandomPart:
    """A part of an image, of random area, shape and place; arguments as of RandomResizedCrop."""

    def __init__(self, area: Sequence[float], aspect: Sequence[float]) -> None:
        if not 0.0 < area[0] <= area[1] <= 1.0 or not 0.0 < aspect[0] <= aspect[1]:
            raise ValueError(f"area {area} and aspect {aspect} must be rising, areas at most 1")
        self.area = area[0], area[1]
        self.log_aspect = math.log(aspect[0]), math.log(aspect[1])

    def __call__(
        self, height: int, width: int, random: np.random.Generator
    ) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part of an image of this size."""
        for _ in range(TRIES):
            area = random.uniform(*self.area) * height * width
            aspect = math.exp(random.uniform(*self.log_aspect))
            high, wide = round(math.sqrt(area / aspect)), round(math.sqrt(area * aspect))
            if 0 < high <= height and 0 < wide <= width:
                top = int(random.integers(height - high, endpoint=True))
                return top, int(random.integers(width - wide, endpoint=True)), high, wide
        side = min(height, width)  # no such part fits: the middle square
        return (height - side) // 2, (width - side) // 2, side, side


class RandomFlip:
    """The image or, with some probability, its mirror image."""

    def __init__(self, probability: float = 0.5) -> None:
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"a probability lies in [0, 1], not {probability}")
        self.probability = probability

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        return image.flip(-1) if random.random() < self.probability else image


class RandomColor:
    """The image with brightness, contrast and saturation changed by random factors, each between
    1 - strength and 1 + strength."""

    def __init__(
        self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0
    ) -> None:
        self.strengths = (brightness, contrast, saturation)
        if not all(0.0 <= strength < 1.0 for strength in self.strengths):
            raise ValueError(f"strengths lie in [0, 1), not {self.strengths}")

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        factors = [random.uniform(1.0 - strength, 1.0 + strength) for strength in self.strengths]
        image = functional.adjust_brightness(image, factors[0])
        image = functional.adjust_contrast(image, factors[1])
        return functional.adjust_saturation(image, factors[2])


class Normalize:
    """Numbers as an encoder wants them: (value - mean) / deviation of each channel, float32.

    Arguments:
        mean, deviation: in the order red, green, blue; the defaults, ImageNet's, are what models of
            torchvision want.
        largest: what the value 255 becomes before; 1, or 255 for models that came from Caffe.
        blue_first: give the channels as blue, green, red, as models that came from Caffe want them.
    """

    def __init__(
        self,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        deviation: Sequence[float] = (0.229, 0.224, 0.225),
        largest: float = 1.0,
        blue_first: bool = False,
    ) -> None:
        self.mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self.deviation = torch.tensor(deviation, dtype=torch.float32)[:, None, None]
        self.largest = largest
        self.blue_first = blue_first

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        values = (image.float() * (self.largest / 255.0) - self.mean) / self.deviation
        return values.flip(0) if self.blue_first else values
