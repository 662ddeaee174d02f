"""Toy faces: python tools/make_toy_faces.py FOLDER [--persons 24] [--images 8]

Drawn heads with eyes, brows, nose and mouth: proportions and colors depend on the person;
position, light, expression and noise on the image. Writes aligned images, train.csv with the first
half of the persons, and pairs of the others as validation sets under several names.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipes.Face.pairs import make_pair_list, write_pair_list
from simple_spk.cli.errors import exit_code
from simple_spk.io.atomic_file import atomic_write
from simple_spk.vision.image_files import write_jpeg
from simple_spk.vision.image_table import write_image_table

SIZE = 112
SETS = ("lfw", "agedb_30", "calfw", "cplfw", "cfp_fp")
MEASURES = 9
COLORS = 4


def draw_face(person: int, image: int, size: int = SIZE) -> Tensor:
    """An image of a person, uint8 (3, size, size); the same numbers draw the same face."""
    own = np.random.default_rng((1, person))
    measures, colors = own.uniform(-1, 1, MEASURES), own.uniform(0, 1, (COLORS, 3))
    here = np.random.default_rng((2, person, image))
    measures = measures + 0.12 * here.normal(size=MEASURES)
    shift, light = 0.02 * here.normal(size=2), here.uniform(0.8, 1.2)
    skin = np.array([150, 110, 80]) + 90 * colors[0]
    hair, eyes, lips = 130 * colors[1], 160 * colors[2], [150, 40, 40] + 60 * colors[3]
    canvas = Image.new("RGB", (2 * size, 2 * size), _rgb(here.uniform(40, 220, 3)))
    draw = ImageDraw.Draw(canvas)

    def oval(x: float, y: float, wide: float, high: float, color: Sequence[float]) -> None:
        """Draw an ellipse; all numbers are relative to the side of the image."""
        center = np.array([0.5 + x, 0.52 + y]) + shift
        corner = np.array([wide, high])
        draw.ellipse(
            [*(2 * size * (center - corner)), *(2 * size * (center + corner))], _rgb(color)
        )

    m = measures
    head_wide, head_high = 0.32 + 0.04 * m[0], 0.42 + 0.04 * m[1]
    oval(0, -0.05, head_wide + 0.03, head_high + 0.03 + 0.02 * m[2], hair)
    oval(0, 0.05, head_wide, head_high - 0.04, skin)
    for side in (-1, 1):
        x, y = side * (0.15 + 0.025 * m[3]), -0.08 + 0.02 * m[4]
        oval(x, y - 0.08 - 0.015 * m[5], 0.07, 0.014, hair)
        oval(x, y, 0.055, 0.03 + 0.008 * m[5], (240, 240, 240))
        oval(x, y, 0.024, 0.024, eyes)
    oval(0, 0.07 + 0.02 * m[6], 0.03 + 0.01 * m[7], 0.07, 0.82 * skin)
    oval(0, 0.24 + 0.02 * m[6], 0.11 + 0.03 * m[8], 0.025 + 0.01 * here.uniform(-1, 1), lips)
    pixels = np.array(canvas.resize((size, size), Image.Resampling.BOX), dtype=np.float64)
    pixels = light * pixels + here.normal(scale=6.0, size=pixels.shape)
    return torch.from_numpy(pixels.clip(0, 255).astype(np.uint8)).permute(2, 0, 1).contiguous()


def _rgb(color: Sequence[float] | NDArray[np.float64]) -> tuple[int, int, int]:
    """A color for Pillow."""
    red, green, blue = (int(min(255, max(0, value))) for value in color)
    return red, green, blue


def make_toy_faces(
    folder: str | Path,
    persons: int = 24,
    images: int = 8,
    size: int = SIZE,
) -> None:
    """Write the toy faces unless all lists of pairs are there."""
    folder = Path(folder)
    if persons < 4 or images < 2:
        raise ValueError(f"{persons} persons with {images} images are too few: 4 with 2 at least")
    if all((folder / f"{name}_pairs.txt").is_file() for name in SETS):
        return
    rows = [
        (f"p{person:03d}/{image}", person, image)
        for person in range(persons)
        for image in range(images)
    ]
    for name, person, image in rows:
        with atomic_write(folder / "images" / f"{name}.jpg") as partial:
            write_jpeg(partial, draw_face(person, image, size))
    parts = {"train": range(persons // 2), **dict.fromkeys(SETS, range(persons // 2, persons))}
    for number, (part, chosen) in enumerate(parts.items()):
        names = [name for name, person, _ in rows if person in chosen]
        people = [name.partition("/")[0] for name in names]
        write_image_table(folder / f"{part}.csv", names, [f"images/{n}.jpg" for n in names], people)
        if part != "train":
            pairs = make_pair_list(names, people, maximum=400, seed=number)
            write_pair_list(folder / f"{part}_pairs.txt", pairs)


def main() -> int:
    """Write toy faces into a folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder to make")
    parser.add_argument("--persons", type=int, default=24, help="(default 24)")
    parser.add_argument("--images", type=int, default=8, help="per person (default 8)")
    options = parser.parse_args()
    return exit_code("make_toy_faces.py", lambda: make_toy_faces(**vars(options)))


if __name__ == "__main__":
    sys.exit(main())
