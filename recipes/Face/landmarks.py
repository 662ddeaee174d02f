"""Tables of five landmarks per image, such as VGGFace2's loose_landmark_train.csv."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.vision.image_files import SUFFIXES

NUMBERS = 10  # x and y of each landmark


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Landmarks (n, 5, 2) in pixels, by the names of images without their suffix."""

    row_of_name: dict[str, int]
    points: NDArray[np.float32]

    def of(self, name: str) -> NDArray[np.float32] | None:
        """The landmarks (5, 2) of an image, named by its path below the folder of images."""
        row = self.row_of_name.get(without_suffix(name))
        return None if row is None else self.points[row]


def without_suffix(name: str) -> str:
    """A name without .jpg and the like, which tables give or leave out as they please.

    >>> without_suffix("n000002/0001_01.JPG"), without_suffix("dr.no/1")
    ('n000002/0001_01', 'dr.no/1')
    """
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in SUFFIXES else name


def read_landmarks(path: str | Path) -> Landmarks:
    """The landmarks of a CSV file: a line of titles, then lines of a name and ten numbers.

    The numbers are x, y of the eyes, the nose and the corners of the mouth, left in the picture
    first, in pixels.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no table of landmarks at {path}: correct the path")
    row_of_name: dict[str, int] = {}
    points: list[NDArray[np.float32]] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.reader(file)
            titles = next(lines, [])
            if len(titles) != 1 + NUMBERS:
                raise ValueError(
                    f"line 1 has {len(titles)} columns; expected a name and {NUMBERS} numbers"
                )
            for line in filter(None, lines):
                name, *numbers = line
                values = np.array(numbers, dtype=np.float32)
                if values.shape != (NUMBERS,) or not np.isfinite(values).all():
                    raise ValueError(f"line {lines.line_num} does not hold {NUMBERS} numbers")
                if row_of_name.setdefault(without_suffix(name), len(points)) != len(points):
                    raise ValueError(f"line {lines.line_num}: {name} was there before")
                points.append(values)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path} is no table of landmarks: {error}") from error
    if not points:
        raise ValueError(f"{path} holds no landmarks")
    return Landmarks(row_of_name, np.stack(points).reshape(-1, 5, 2))
