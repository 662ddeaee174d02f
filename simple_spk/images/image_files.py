"""Image files as tensors, read without trusting them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

FORMATS = ("JPEG", "PNG", "BMP", "PPM", "GIF", "WEBP", "TIFF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".gif", ".webp", ".tif", ".tiff")
MOST_PIXELS = 64_000_000  # 192 MB in memory: more is a bomb, or no photograph for training


def read_image(path: str | Path) -> Tensor:
    """An image file as RGB, uint8 (3, height, width); grey ones have three equal channels."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no image at {path}: correct the path, or prepare the data again")
    try:
        with Image.open(path, formats=FORMATS) as image:
            _require_usable(path, image)
            pixels = np.array(image.convert("RGB"))  # decodes; a truncated file fails here
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is no image of a known format ({', '.join(FORMATS)})") from error
    except ValueError:
        raise
    except Exception as error:  # damaged files make decoders raise nearly anything
        raise ValueError(
            f"{path} is damaged or truncated ({error}): fetch it again or leave it out"
        ) from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def write_jpeg(path: str | Path, image: Tensor, quality: int = 90) -> None:
    """Write an image, uint8 (3, height, width), as a JPEG file."""
    to_pillow(image).save(path, format="JPEG", quality=quality)


def to_pillow(image: Tensor) -> Image.Image:
    """An image, uint8 (3, height, width), as Pillow has it."""
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def _require_usable(path: Path, image: Image.Image) -> None:
    """Raise if an image, of which only the head was read, is too large or of too many bits."""
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(
            f"{path} says it has {image.width} x {image.height} pixels, more than "
            f"{MOST_PIXELS:,}: make it smaller or leave it out"
        )
    if image.mode.startswith(("I", "F")):  # converting would cut values off
        raise ValueError(f"{path} has more than 8 bits per channel: convert it to 8 bits")
