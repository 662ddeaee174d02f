"""What is done to an aligned face on its way to the encoder: the augmentation of the paper."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode, functional

from simple_spk.vision.transforms import (
    ImageTransform,
    Normalize,
    RandomColor,
    RandomFlip,
    RandomPart,
    RandomResizedCrop,
    Resize,
    Step,
)

INTERPOLATIONS = (
    InterpolationMode.NEAREST,
    InterpolationMode.BILINEAR,
    InterpolationMode.BICUBIC,
    InterpolationMode.BOX,
    InterpolationMode.LANCZOS,
)


class Sometimes:
    """What a step makes of the image, with some probability; else the image as it is."""

    def __init__(self, step: Step, probability: float) -> None:
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"a probability lies in [0, 1], not {probability}")
        self.step = step
        self.probability = probability

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        return self.step(image, random) if random.random() < self.probability else image


class KeepPart:
    """A random part of the image where it was, and black around it."""

    def __init__(
        self, area: Sequence[float] = (0.2, 1.0), aspect: Sequence[float] = (0.75, 4 / 3)
    ) -> None:
        self.part = RandomPart(area, aspect)

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        top, left, height, width = self.part(image.shape[-2], image.shape[-1], random)
        place = (..., slice(top, top + height), slice(left, left + width))
        kept = torch.zeros_like(image)
        kept[place] = image[place]
        return kept


class LowResolution:
    """The image made smaller and as large again, both in one of several manners.

    scale: least and greatest share of its sides that it is brought down to.
    """

    def __init__(self, scale: Sequence[float] = (0.2, 1.0)) -> None:
        if not 0.0 < scale[0] <= scale[1] <= 1.0:
            raise ValueError(f"scale must be two rising numbers in (0, 1], not {scale}")
        self.scale = scale[0], scale[1]

    def __call__(self, image: Tensor, random: np.random.Generator) -> Tensor:
        height, width = image.shape[-2:]
        scale = random.uniform(*self.scale)
        small = [max(1, int(scale * height)), max(1, int(scale * width))]
        for size in (small, [height, width]):
            manner = INTERPOLATIONS[random.integers(len(INTERPOLATIONS))]
            image = _resized(image, size, manner)
        return image


def _resized(image: Tensor, size: list[int], manner: InterpolationMode) -> Tensor:
    """An image, uint8, of another size."""
    pillow = functional.to_pil_image(image)  # tensors have neither box nor Lanczos filters
    return functional.pil_to_tensor(functional.resize(pillow, size, manner))


class FaceTrainingTransform(ImageTransform):
    """Augmented faces (3, height, width) in [-1, 1].

    Mirrored with the probability ``flip``; cut, coarsened and with other colors, each with
    ``probability``, as in AdaFace, whose augmentation the paper follows.
    """

    def __init__(
        self, height: int = 112, width: int = 112, probability: float = 0.2, flip: float = 0.5
    ) -> None:
        super().__init__(
            [
                Resize([height, width]),
                RandomFlip(flip),
                Sometimes(KeepPart(), probability),
                Sometimes(LowResolution(), probability),
                Sometimes(RandomColor(0.5, 0.5, 0.5), probability),
                _minus_one_to_one(),
            ]
        )


class UnalignedFaceTransform(ImageTransform):
    """Augmented faces (3, height, width) in [-1, 1] of images that were cut out by hand or eye.

    Each example shows a random part, of this share of the ``area``, mirrored with the probability
    ``flip``, in another light: so the encoder learns that place and size of a face mean nothing.
    """

    def __init__(
        self,
        height: int = 112,
        width: int = 112,
        area: Sequence[float] = (0.6, 1.0),
        flip: float = 0.5,
    ) -> None:
        aspect = width / height
        super().__init__(
            [
                RandomResizedCrop([height, width], area, (aspect / 1.1, aspect * 1.1)),
                RandomFlip(flip),
                RandomColor(0.3, 0.3),
                _minus_one_to_one(),
            ]
        )


class FaceTestTransform(ImageTransform):
    """Faces (3, height, width) in [-1, 1]; those of another size are stretched to it."""

    def __init__(self, height: int = 112, width: int = 112) -> None:
        super().__init__([Resize([height, width]), _minus_one_to_one()])


def _minus_one_to_one() -> Normalize:
    """From pixels to [-1, 1]."""
    return Normalize(mean=(0.5, 0.5, 0.5), deviation=(0.5, 0.5, 0.5))
