"""Image files as tensors, read without trusting them."""

import functools
import io
import re
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from simple_spk.vision.record_file import RecordFile

FORMATS = ("JPEG", "PNG", "BMP", "PPM", "GIF", "WEBP", "TIFF")
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm", ".gif", ".webp", ".tif", ".tiff")
RECORD = re.compile(r"(.+\.rec)@(\d+)", re.DOTALL)  # a record file, and where in it
MOST_PIXELS = 64_000_000  # 192 MB in memory: more is a bomb, or no photograph for training


def read_image(path: str | Path) -> Tensor:
    """An image file as RGB, uint8 (3, height, width); gray ones have three equal channels.

    ``train.rec@8048`` is the image of the record that begins at byte 8048 of train.rec.
    """
    record = RECORD.fullmatch(str(path))
    if record is not None:
        return decode_image(_record_file(record[1]).read(int(record[2])).content, str(path))
    if not Path(path).is_file():
        raise FileNotFoundError(f"no image at {path}: correct the path, or prepare the data again")
    return decode_image(Path(path), str(path))


@functools.lru_cache(maxsize=16)
def _record_file(path: str) -> RecordFile:
    """A record file, which stays open."""
    return RecordFile(path)


def decode_image(source: Path | bytes, path: str) -> Tensor:
    """An image file, or its bytes, as ``read_image`` gives it; ``path`` names it in messages."""
    try:
        with Image.open(
            io.BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS
        ) as image:
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


def _require_usable(path: str, image: Image.Image) -> None:
    """Raise if an image, of which only the head was read, is too large or of too many bits."""
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(
            f"{path} says it has {image.width} x {image.height} pixels, more than "
            f"{MOST_PIXELS:,}: make it smaller or leave it out"
        )
    if image.mode.startswith(("I", "F")):  # converting would cut values off
        raise ValueError(f"{path} has more than 8 bits per channel: convert it to 8 bits")
