"""Image files as tensors; the files are not trusted."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from simple_spk.io.input_file import file_size

FORMATS = ("JPEG", "PNG", "BMP", "PPM", "GIF", "WEBP", "TIFF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".gif", ".webp", ".tif", ".tiff")
MAX_PIXELS = 64_000_000  # 192 MB in memory; a larger image is a decompression bomb


def read_image(path: str | Path) -> Tensor:
    """An image file as RGB, uint8 (3, height, width); gray images have three equal channels."""
    if not file_size(Path(path), "image", "correct the path, or prepare the data again"):
        raise ValueError(f"image {path} is empty: fetch it again")
    return decode_image(Path(path), str(path))


def decode_image(source: Path | bytes, path: str) -> Tensor:
    """RGB, uint8 (3, height, width), of an image file or its bytes; messages name ``path``."""
    try:
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(file, formats=FORMATS) as image:
            _require_usable(path, image)
            pixels = np.array(image.convert("RGB"))  # decodes; a truncated file fails here
    except UnidentifiedImageError as error:
        raise ValueError(
            f"{path} is not an image of a known format ({', '.join(FORMATS)})"
        ) from error
    except Exception as error:  # decoders raise many kinds of errors on damaged files
        if isinstance(error, ValueError) and str(error).startswith(path):  # ours
            raise
        raise ValueError(f"{path} is damaged or truncated ({error}): fetch it again") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def write_jpeg(path: str | Path, image: Tensor, quality: int = 90) -> None:
    """Write an image, uint8 (3, height, width), as a JPEG file."""
    to_pillow(image).save(path, format="JPEG", quality=quality)


def to_pillow(image: Tensor) -> Image.Image:
    """An image, uint8 (3, height, width), as a Pillow image."""
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def _require_usable(path: str, image: Image.Image) -> None:
    """Raise if an image, of which only the header was read, is too large or has too many bits."""
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(
            f"{path} has {image.width} x {image.height} pixels according to its header, more than "
            f"{MAX_PIXELS:,}: make it smaller or leave it out"
        )
    if image.mode.startswith(("I", "F")):  # the conversion would clip values
        raise ValueError(f"{path} has more than 8 bits per channel: convert it to 8 bits")
