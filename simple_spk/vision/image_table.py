"""The table of images: which file, which class."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.data.text_table import TextColumn, read_file_table, write_table
from simple_spk.vision.image_files import read_image

COLUMNS = ("ID", "image", "class")


class LabeledImages(Protocol):
    """Images of known classes, wherever they come from; ``class_of_row`` indexes ``classes``."""

    @property
    def class_of_row(self) -> NDArray[np.int32]: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def read(self, row: int) -> Tensor:
        """The image of a row, uint8 (3, height, width)."""


@dataclass(frozen=True, eq=False)
class ImageTable:
    """A table as columns; ``classes`` are in alphabetical order, ``class_of_row`` is the label.

    Paths in the file may be relative to the folder of the table.
    """

    path: Path
    images: TextColumn
    class_of_row: NDArray[np.int32]
    classes: tuple[str, ...]
    ids: TextColumn | None  # None if they were not asked for

    def __len__(self) -> int:
        return len(self.images)

    def image(self, row: int) -> Path:
        """Where the image of a row lies."""
        return self.path.parent / self.images[row]

    @functools.cached_property
    def row_of_id(self) -> dict[str, int]:
        """From an image's ID to its row, in the order of the rows."""
        assert self.ids is not None, "the table was read without its IDs"
        return {name: row for row, name in enumerate(self.ids)}

    def read(self, row: int) -> Tensor:
        """The image of a row, uint8 (3, height, width)."""
        return read_image(self.image(row))


def read_image_table(path: str | Path, with_ids: bool = True) -> ImageTable:
    """The images of a CSV file with the columns ID, image and class."""
    table = read_file_table(path, COLUMNS, with_ids)
    return ImageTable(table.path, table.files, table.class_of_row, table.classes, table.ids)


def images_of(source: LabeledImages | str | Path) -> LabeledImages:
    """The images of a source, which may be named by the path of its table."""
    return read_image_table(source) if isinstance(source, str | Path) else source


def count_classes(path: str | Path) -> int:
    """How many classes a table has; a YAML file can ask for it with !apply."""
    return len(read_image_table(path, with_ids=False).classes)


def write_image_table(
    path: str | Path, ids: Sequence[str], images: Sequence[str], classes: Sequence[str]
) -> None:
    """Write images, one per row, as ``read_image_table`` reads them; whole or not at all.

    Paths in ``images`` are absolute, or relative to the folder of the table.
    """
    write_table(path, dict(zip(COLUMNS, (ids, images, classes), strict=True)))
