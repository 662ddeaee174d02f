"""Preprocessing of aligned faces and the paper's augmentation, made of torchvision's transforms."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.transforms.v2 import (
    ColorJitter,
    InterpolationMode,
    RandomApply,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    functional,
)

from simple_spk.vision.transforms import ImageTransform, Normalize

INTERPOLATIONS = (
    InterpolationMode.NEAREST,
    InterpolationMode.BILINEAR,
    InterpolationMode.BICUBIC,
    InterpolationMode.BOX,
    InterpolationMode.LANCZOS,
)


class RandomKeepPart(torch.nn.Module):
    """The image with everything but a random rectangle set to black.

    ``scale`` and ``ratio`` are the range of its area and of its width / height, as in torchvision's
    RandomResizedCrop.
    """

    def __init__(
        self, scale: Sequence[float] = (0.2, 1.0), ratio: Sequence[float] = (0.75, 4 / 3)
    ) -> None:
        super().__init__()
        self.crop = RandomResizedCrop(1, (scale[0], scale[1]), (ratio[0], ratio[1]))

    def forward(self, image: Tensor) -> Tensor:
        part = self.crop.make_params([image])
        rows = slice(part["top"], part["top"] + part["height"])
        columns = slice(part["left"], part["left"] + part["width"])
        kept = torch.zeros_like(image)
        kept[:, rows, columns] = image[:, rows, columns]
        return kept


class RandomLowResolution(torch.nn.Module):
    """The image downsampled and upsampled again, each with a random filter.

    scale: range of the factor by which its sides are reduced.
    """

    def __init__(self, scale: Sequence[float] = (0.2, 1.0)) -> None:
        super().__init__()
        if not 0.0 < scale[0] <= scale[1] <= 1.0:
            raise ValueError(f"scale must be two increasing numbers in (0, 1], not {scale}")
        self.scale = scale[0], scale[1]

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        scale = torch.empty(1).uniform_(*self.scale).item()
        pillow = functional.to_pil_image(image)  # tensors have neither box nor Lanczos filters
        filters = torch.randint(len(INTERPOLATIONS), (2,)).tolist()
        small = [max(1, int(scale * height)), max(1, int(scale * width))]
        for size, number in zip((small, [height, width]), filters, strict=True):
            pillow = functional.resize(pillow, size, INTERPOLATIONS[number])
        return functional.pil_to_tensor(pillow)


class FaceTrainingTransform(ImageTransform):
    """Augmented faces (3, height, width) in [-1, 1].

    A face is mirrored with probability ``flip``; cropped, reduced in resolution and changed in
    color, each with ``probability``: the augmentation of AdaFace, which the paper follows.
    """

    def __init__(
        self, height: int = 112, width: int = 112, probability: float = 0.2, flip: float = 0.5
    ) -> None:
        augmentations = (RandomKeepPart(), RandomLowResolution(), ColorJitter(0.5, 0.5, 0.5))
        super().__init__(
            [
                Resize([height, width]),
                RandomHorizontalFlip(flip),
                *(RandomApply([augmentation], probability) for augmentation in augmentations),
                minus_one_to_one(),
            ]
        )


class UnalignedFaceTransform(ImageTransform):
    """Augmented faces (3, height, width) in [-1, 1] of images that are cropped only roughly.

    Each example is a random part of the image, of a share of its area in the range ``area``,
    mirrored with probability ``flip``, with random brightness and contrast. This makes the encoder
    invariant to position and size of the face.
    """

    def __init__(
        self,
        height: int = 112,
        width: int = 112,
        area: Sequence[float] = (0.6, 1.0),
        flip: float = 0.5,
    ) -> None:
        ratio = width / height
        super().__init__(
            [
                RandomResizedCrop([height, width], (area[0], area[1]), (ratio / 1.1, ratio * 1.1)),
                RandomHorizontalFlip(flip),
                ColorJitter(0.3, 0.3),
                minus_one_to_one(),
            ]
        )


class FaceTestTransform(ImageTransform):
    """Faces (3, height, width) in [-1, 1]; those of another size are resized."""

    def __init__(self, height: int = 112, width: int = 112) -> None:
        super().__init__([Resize([height, width]), minus_one_to_one()])


def minus_one_to_one() -> Normalize:
    """The scaling of pixel values to [-1, 1]."""
    return Normalize(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
