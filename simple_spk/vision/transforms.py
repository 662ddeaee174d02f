"""Preprocessing and augmentation of images: torchvision's v2 transforms, seeded per example."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torchvision.transforms import v2

# From an image, uint8 (3, height, width), and a seed to an encoder input (3, height, width).
Transform = Callable[[Tensor, int], Tensor]


class ImageTransform:
    """Encoder inputs, float32 (3, height, width), of images, uint8 (3, height, width).

    ``steps`` are applied in order. They may be transforms of torchvision.transforms.v2 or any
    function of an image that draws its random numbers with torch. These depend on the seed of the
    example only, so an example is the same in any worker process and in a resumed run.
    """

    def __init__(self, steps: Sequence[Callable[[Tensor], Tensor]]) -> None:
        self.steps = v2.Compose(list(steps))

    def __call__(self, image: Tensor, seed: int = 0) -> Tensor:
        # Images are on the CPU. torch.manual_seed would also seed GPUs, which are not restored.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return self.steps(image)


class Normalize:
    """(value - mean) / std of each channel, float32.

    Unlike torchvision's own transform, this one also prepares images for models from Caffe.

    Arguments:
        mean, std: in the order red, green, blue. The defaults are those of ImageNet, which the
            models of torchvision expect.
        max_value: what pixel value 255 is scaled to first: 1, or 255 for models from Caffe.
        bgr: return the channels in the order blue, green, red, as models from Caffe expect.
    """

    def __init__(
        self,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
        max_value: float = 1.0,
        bgr: bool = False,
    ) -> None:
        self.mean = torch.tensor(mean, dtype=torch.float32)[:, None, None]
        self.std = torch.tensor(std, dtype=torch.float32)[:, None, None]
        self.max_value = max_value
        self.bgr = bgr

    def __call__(self, image: Tensor) -> Tensor:
        values = (image.float() * (self.max_value / 255.0) - self.mean) / self.std
        return values.flip(0) if self.bgr else values
