"""Tables of images: a CSV file with the file and the class of each."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.data.text_table import TextColumn, read_file_table, write_table
from simple_spk.vision.image_files import read_image

COLUMNS = ("ID", "image", "class")

# From a path as in the column "image" to an image, uint8 (3, height, width).
ImageReader = Callable[[Path], Tensor]


@dataclass(frozen=True, eq=False)
class ImageTable:
    """The columns of a table; ``classes`` are sorted, and ``class_of_row`` indexes them.

    Paths in the file may be relative to the folder of the table.
    """

    path: Path
    images: TextColumn
    class_of_row: NDArray[np.int32]
    classes: tuple[str, ...]
    ids: TextColumn | None  # None if they were not requested
    reader: ImageReader = read_image

    def __len__(self) -> int:
        return len(self.images)

    def image(self, row: int) -> Path:
        """The path of the image of a row."""
        return self.path.parent / self.images[row]

    @functools.cached_property
    def row_of_id(self) -> dict[str, int]:
        """The row of each image ID, in the order of the rows."""
        assert self.ids is not None, "the table was read without its IDs"
        return {name: row for row, name in enumerate(self.ids)}

    def read(self, row: int) -> Tensor:
        """The image of a row, uint8 (3, height, width)."""
        return self.reader(self.image(row))


def read_image_table(
    path: str | Path, with_ids: bool = True, reader: ImageReader = read_image
) -> ImageTable:
    """The images of a CSV file with the columns ID, image and class.

    ``reader`` reads the images; a recipe whose images are not in files of their own has its own.
    """
    table = read_file_table(path, COLUMNS, with_ids)
    return ImageTable(table.path, table.files, table.class_of_row, table.classes, table.ids, reader)


def count_classes(path: str | Path) -> int:
    """The number of classes of a table, for !apply in a YAML file."""
    return len(read_image_table(path, with_ids=False).classes)


def write_image_table(
    path: str | Path, ids: Sequence[str], images: Sequence[str], classes: Sequence[str]
) -> None:
    """Write a table, one image per row; the file is written completely or not at all.

    Paths in ``images`` are absolute, or relative to the folder of the table.
    """
    write_table(path, dict(zip(COLUMNS, (ids, images, classes), strict=True)))
