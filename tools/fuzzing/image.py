"""Image files of all formats."""

import random
from pathlib import Path

import numpy as np
from PIL import Image

from simple_spk.vision.image_files import read_image
from tools.fuzzing.mutations import BYTE_DAMAGES, write_damaged


def write_originals(folder: Path) -> None:
    """A picture in several formats."""
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    for suffix in ("jpg", "png", "bmp", "ppm", "gif", "webp", "tif"):
        Image.fromarray(pixels).save(folder / f"image.{suffix}")


def write_mutant(originals: Path, place: Path, dice: random.Random) -> Path:
    """A damaged image."""
    return write_damaged(originals, place, dice, BYTE_DAMAGES)


def read(path: Path) -> None:
    """Decode an image."""
    assert read_image(path).shape[0] == 3
