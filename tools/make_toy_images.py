"""Make a folder of toy images: python tools/make_toy_images.py FOLDER [--classes 16] [--images 6]

FOLDER/CLASS/NUMBER.jpg, as in CUB-200-2011. A class has a shape, colors of shape and background,
and stripes of one width; its images differ in position, size, angle and light.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from simple_spk.cli.errors import exit_code

SIDE_PIXELS = 64
SHAPES = (3, 4, 5, 24)  # corners; the last is nearly a circle


def make_toy_images(folder: str | Path, classes: int = 16, images: int = 6, seed: int = 0) -> None:
    """Write the images of all classes."""
    for number in range(classes):
        random = np.random.default_rng((seed, number))
        colors = random.integers(30, 226, size=(2, 3))
        stripe = float(random.uniform(4.0, 12.0))
        target = Path(folder) / f"{number + 1:03d}.Toy_{number + 1}"
        target.mkdir(parents=True, exist_ok=True)
        for take in range(images):
            pixels = toy_image(SHAPES[number % len(SHAPES)], colors, stripe, random)
            Image.fromarray(pixels).save(target / f"{take:03d}.jpg", quality=90)


def toy_image(
    corners: int, colors: NDArray[np.int64], stripe: float, random: np.random.Generator
) -> NDArray[np.uint8]:
    """One image (height, width, 3) of a class."""
    width = SIDE_PIXELS + int(random.integers(0, 17))
    shape = Image.new("L", (width, SIDE_PIXELS))
    center = np.array([width, SIDE_PIXELS]) * random.uniform(0.4, 0.6, size=2)
    angles = random.uniform(0, 2 * np.pi) + 2 * np.pi * np.arange(corners) / corners
    radius = SIDE_PIXELS * random.uniform(0.25, 0.38)
    points = center + radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    ImageDraw.Draw(shape).polygon([tuple(point) for point in points.tolist()], fill=255)
    inside = np.asarray(shape, dtype=np.float64)[..., None] / 255.0
    across = np.arange(width) * np.cos(angles[0]) + np.arange(SIDE_PIXELS)[:, None] * np.sin(
        angles[0]
    )
    stripes = 0.75 + 0.25 * np.sign(np.sin(2 * np.pi * across / stripe))[..., None]
    picture = inside * colors[0] * stripes + (1.0 - inside) * colors[1]
    noise = random.normal(0.0, 8.0, picture.shape)
    return np.clip(picture * random.uniform(0.8, 1.2) + noise, 0, 255).astype(np.uint8)


def main() -> int:
    """Make a folder; on a user's mistake say what is wrong."""
    parser = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder to make")
    parser.add_argument("--classes", type=int, default=16, help="(default 16)")
    parser.add_argument("--images", type=int, default=6, help="per class (default 6)")
    parser.add_argument("--seed", type=int, default=0, help="each gives other images (default 0)")
    options = parser.parse_args()
    return exit_code("make_toy_images.py", lambda: make_toy_images(**vars(options)))


if __name__ == "__main__":
    sys.exit(main())
