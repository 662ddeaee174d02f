"""Tables of images: a CSV file with the file and the class of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from simple_spk.data.text_table import FileTable, read_file_table, write_table
from simple_spk.vision.image_files import read_image

COLUMNS = ("ID", "image", "class")

# From a path as in the column "image" to an image, uint8 (3, height, width).
ImageReader = Callable[[Path], Tensor]


@dataclass(frozen=True, eq=False)
class ImageTable(FileTable):
    """A table of images and their classes; ``reader`` reads the images."""

    reader: ImageReader = read_image

    def read(self, row: int) -> Tensor:
        """The image of a row, uint8 (3, height, width)."""
        return self.reader(self.file(row))


def read_image_table(
    path: str | Path, with_ids: bool = True, reader: ImageReader = read_image
) -> ImageTable:
    """The images of a CSV file with the columns ID, image and class, read by ``reader``."""
    return read_file_table(ImageTable, path, COLUMNS, with_ids, reader=reader)


def count_classes(path: str | Path) -> int:
    """The number of classes of a table, for !apply in a YAML file."""
    return len(read_image_table(path, with_ids=False).classes)


def write_image_table(
    path: str | Path, ids: Sequence[str], images: Sequence[str], classes: Sequence[str]
) -> None:
    """Write a table; paths in ``images`` are absolute, or relative to its folder."""
    write_table(path, dict(zip(COLUMNS, (ids, images, classes), strict=True)))
